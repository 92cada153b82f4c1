//go:build linux

/* Checks of a tensor that need no knowledge of its device. */
#include "usmb_dl_internal.h"

int usmb_dl_is_handle_device(int32_t type)
{
	switch (type) {
	case USMB_DL_OPENCL:
	case USMB_DL_VULKAN:
	case USMB_DL_METAL:
	case USMB_DL_WEBGPU: return 1;
	default: return 0;
	}
}

int usmb_dl_dtype_check(usmb_dl_dtype d)
{
	unsigned b = d.bits;

	if (d.lanes != 1) return USMB_DL_ELANES;
	switch (d.code) {
	case USMB_DL_INT:
	case USMB_DL_UINT: return b >= 1 && b <= 64 && (b & (b - 1)) == 0 ? USMB_DL_OK : USMB_DL_EDTYPE;
	case USMB_DL_FLOAT: return b == 16 || b == 32 || b == 64 ? USMB_DL_OK : USMB_DL_EDTYPE;
	case USMB_DL_BFLOAT: return b == 16 ? USMB_DL_OK : USMB_DL_EDTYPE;
	case USMB_DL_COMPLEX: return b == 32 || b == 64 || b == 128 ? USMB_DL_OK : USMB_DL_EDTYPE;
	case USMB_DL_FLOAT6_E2M3FN:
	case USMB_DL_FLOAT6_E3M2FN: return b == 6 ? USMB_DL_OK : USMB_DL_EDTYPE;
	case USMB_DL_FLOAT4_E2M1FN: return b == 4 ? USMB_DL_OK : USMB_DL_EDTYPE;
	default: /* bool and the eight fp8 */
		return d.code >= USMB_DL_BOOL && d.code <= USMB_DL_FLOAT8_E8M0FNU && b == 8 ? USMB_DL_OK
		                                                                            : USMB_DL_EDTYPE;
	}
}

/* The extent of a layout, in elements. */
typedef struct {
	int64_t nelem, lo, hi;
	uint32_t contig;
} extent;

/* OK, ESHAPE or EOVERFLOW. The product skips extents of 0, so that the C-order strides of an empty tensor
 * can be computed too. */
static int check_shape(int32_t ndim, const int64_t *shape, uint32_t bits, int64_t *product, int *empty)
{
	int64_t n = 1;

	*empty = 0;
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] < 0) return USMB_DL_ESHAPE;
		if (shape[i] == 0)
			*empty = 1;
		else if (__builtin_mul_overflow(n, shape[i], &n))
			return USMB_DL_EOVERFLOW;
	}
	*product = n;
	/* Some consumers count sizes in bits, so those must fit as well. */
	return __builtin_mul_overflow(n, (int64_t)bits, &n) ? USMB_DL_EOVERFLOW : USMB_DL_OK;
}

static uint32_t f_contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	int64_t expected = 1;

	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] == 1) continue;
		if (strides[i] != expected) return 0;
		expected *= shape[i]; /* cannot overflow: the product did not */
	}
	return USMB_DL_F_CONTIGUOUS;
}

/* Span and contiguity of a tensor with elements and strides: OK or ESTRIDES. */
static int walk_strides(int32_t ndim, const int64_t *shape, const int64_t *strides, extent *e)
{
	int64_t expected = 1, lo = 0, hi = 0, step;
	int c = 1, wide = 0; /* dimensions of more than one element */

	for (int32_t i = ndim - 1; i >= 0; i--) {
		if (shape[i] == 1) continue;
		if (strides[i] != expected) c = 0;
		wide++;
		expected *= shape[i];
		if (__builtin_mul_overflow(strides[i], shape[i] - 1, &step)) return USMB_DL_ESTRIDES;
		if (step < 0 ? __builtin_add_overflow(lo, step, &lo) : __builtin_add_overflow(hi, step, &hi))
			return USMB_DL_ESTRIDES;
	}
	e->lo = lo;
	e->hi = hi;
	if (c) /* both orders only if at most one dimension has several elements */
		e->contig = USMB_DL_C_CONTIGUOUS | (wide < 2 ? USMB_DL_F_CONTIGUOUS : 0);
	else
		e->contig = wide < 2 ? 0 : f_contiguous(ndim, shape, strides);
	return USMB_DL_OK;
}

static void fill_c_order(int32_t ndim, const int64_t *shape, int64_t *strides)
{
	int64_t n = 1;

	for (int32_t i = ndim - 1; i >= 0; i--) {
		strides[i] = n;
		if (shape[i] > 0) n *= shape[i];
	}
}

/* Converts element positions to bytes relative to the first element. OK or ESTRIDES. */
static int to_bytes(const extent *e, uint32_t bits, usmb_dl_span *s)
{
	int64_t lo, hi;

	if (__builtin_mul_overflow(e->lo, (int64_t)bits, &lo) || __builtin_add_overflow(e->hi, 1, &hi) ||
	    __builtin_mul_overflow(hi, (int64_t)bits, &hi))
		return USMB_DL_ESTRIDES;
	s->lo = lo >> 3; /* rounds down */
	s->hi = (hi >> 3) + ((hi & 7) != 0);
	return USMB_DL_OK;
}

/* The end of the last element lies at most here: no process has memory above 2^63. */
#define TOP (UINTPTR_MAX < INT64_MAX ? UINTPTR_MAX : (uint64_t)INT64_MAX)

/* Checks address, offset and alignment of a tensor that has elements. */
static int check_address(const usmb_dl_tensor *t, uint32_t bits, usmb_dl_span *s)
{
	uint64_t mask = bits >= 8 ? bits / 8 - 1 : 0; /* every whole-byte width is a power of two */
	uint64_t data = (uintptr_t)t->data, first = t->byte_offset;
	int handle = usmb_dl_is_handle_device(t->device.type);

	if (data == 0) return USMB_DL_ENULL;
	if ((first & mask) != 0) return USMB_DL_EALIGN;
	/* A handle is not an address; only the offset can be checked. */
	if (!handle && __builtin_add_overflow(data, first, &first)) return USMB_DL_EOVERFLOW;
	if (first > TOP) return USMB_DL_EOVERFLOW;
	if ((first & mask) != 0) return USMB_DL_EALIGN;
	if (handle) {
		s->offset = first;
	} else {
		s->first = (void *)(uintptr_t)first;
	}
	if (first < (uint64_t)0 - (uint64_t)s->lo || (uint64_t)s->hi > TOP - first) return USMB_DL_ESTRIDES;
	return USMB_DL_OK;
}

/* Fast path for dense C order, the layout of most tensors. Returns 1 if everything but the address has
 * been checked, 0 if check_layout must decide. Reads every extent and stride once and writes them to
 * shape_out and strides_out (which may be NULL). */
static inline __attribute__((always_inline)) int check_dense(const usmb_dl_tensor *t, uint32_t bits, int64_t *shape_out,
                                                             int64_t *strides_out, usmb_dl_span *s)
{
	int64_t n = 1, total;
	int wide = 0;

	for (int32_t i = t->ndim - 1; i >= 0; i--) {
		int64_t extent = READ(t->shape[i]), stride = t->strides != NULL ? READ(t->strides[i]) : n;

		if (extent <= 0 || (extent != 1 && stride != n)) return 0;
		if (shape_out != NULL) shape_out[i] = extent;
		if (strides_out != NULL) strides_out[i] = stride;
		wide += extent != 1;
		if (__builtin_mul_overflow(n, extent, &n)) return 0;
	}
	if (__builtin_mul_overflow(n, (int64_t)bits, &total) || total > INT64_MAX - 7) return 0;
	s->first = t->data;
	s->nelem = n;
	s->lo = 0;
	s->hi = (total + 7) >> 3;
	s->itembits = bits;
	s->contig = USMB_DL_C_CONTIGUOUS | (wide < 2 ? USMB_DL_F_CONTIGUOUS : 0);
	s->offset = 0;
	return 1;
}

/* Checks any layout, after check_fields. */
static int check_layout(const usmb_dl_tensor *t, uint32_t bits, int64_t *strides_out, usmb_dl_span *s)
{
	const int64_t *strides = t->strides;
	extent e = {0, 0, 0, USMB_DL_C_CONTIGUOUS | USMB_DL_F_CONTIGUOUS};
	int64_t c_order[USMB_DL_MAX_NDIM];
	int empty, rc;

	rc = check_shape(t->ndim, t->shape, bits, &e.nelem, &empty);
	if (rc != USMB_DL_OK) return rc;
	if (strides == NULL) {
		fill_c_order(t->ndim, t->shape, strides_out ? strides_out : c_order);
		strides = strides_out ? strides_out : c_order;
	} else if (strides_out != NULL) {
		for (int32_t i = 0; i < t->ndim; i++) strides_out[i] = strides[i];
	}
	s->first = t->data;
	s->offset = 0;
	s->itembits = bits;
	if (empty) {
		s->nelem = s->lo = s->hi = 0;
		s->contig = e.contig;
		return USMB_DL_OK;
	}
	rc = walk_strides(t->ndim, t->shape, strides, &e);
	if (rc == USMB_DL_OK) rc = to_bytes(&e, bits, s);
	if (rc != USMB_DL_OK) return rc;
	s->nelem = e.nelem;
	s->contig = e.contig;
	return check_address(t, bits, s);
}

/* Checks the fields without the arrays of shape and strides. */
static inline int check_fields(const usmb_dl_tensor *t)
{
	if (t->ndim < 0 || t->ndim > USMB_DL_MAX_NDIM) return USMB_DL_ENDIM;
	if (t->ndim > 0 && t->shape == NULL) return USMB_DL_ESHAPE;
	if (t->device.type < 1 || t->device.id < 0) return USMB_DL_EDEVICE;
	return usmb_dl_dtype_check(t->dtype);
}

int usmb_dl_check(const usmb_dl_tensor *t, uint64_t flags, int64_t *strides_out, usmb_dl_span *out)
{
	usmb_dl_span scratch;
	uint32_t bits;
	int rc;

	if (t == NULL) return USMB_DL_ENULL;
	rc = check_fields(t);
	if (rc != USMB_DL_OK) return rc;
	if (out == NULL) out = &scratch;
	bits = usmb_dl_item_bits(t->dtype, flags);
	if (check_dense(t, bits, NULL, strides_out, out)) return check_address(t, bits, out);
	return check_layout(t, bits, strides_out, out);
}

int usmb_dl_read_dims(usmb_dl_tensor *t, uint64_t flags, int64_t *shape, int64_t *strides, usmb_dl_span *span)
{
	const int64_t *theirs = t->shape, *steps = t->strides;
	uint32_t bits = usmb_dl_item_bits(t->dtype, flags);
	int32_t ndim = t->ndim;
	int rc = check_fields(t), dense;

	if (rc == USMB_DL_ENDIM || (theirs == NULL && ndim > 0)) return rc;
	dense = rc == USMB_DL_OK && check_dense(t, bits, shape, strides, span);
	t->shape = shape;
	if (steps != NULL) t->strides = strides;
	if (dense) return check_address(t, bits, span);
	/* Discard the values that check_dense read, and read each once again. */
	for (int32_t i = 0; i < ndim; i++) shape[i] = READ(theirs[i]);
	if (steps != NULL)
		for (int32_t i = 0; i < ndim; i++) strides[i] = READ(steps[i]);
	return rc == USMB_DL_OK ? check_layout(t, bits, strides, span) : rc;
}
