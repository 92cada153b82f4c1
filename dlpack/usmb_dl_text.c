//go:build linux

/* Names of types and devices, and error messages. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "usmb_dl_internal.h"
#include "usmb_dl_names.h"

typedef struct {
	usmb_dl_dtype dtype;
	const char *name;    /* as the array API and ml_dtypes write it */
	const char *typestr; /* as the array interface writes it, or NULL */
} type_name;

static const type_name types[] = {USMB_DL_TYPE_NAMES};

enum { TYPES = sizeof types / sizeof types[0] };

static const type_name *find_type(usmb_dl_dtype d)
{
	for (int i = 0; i < TYPES; i++) {
		const usmb_dl_dtype *o = &types[i].dtype;

		if (o->code == d.code && o->bits == d.bits && o->lanes == d.lanes) return &types[i];
	}
	return NULL;
}

const char *usmb_dl_dtype_name(usmb_dl_dtype dtype)
{
	const type_name *t = find_type(dtype);

	return t != NULL ? t->name : NULL;
}

const char *usmb_dl_dtype_typestr(usmb_dl_dtype dtype)
{
	const type_name *t = find_type(dtype);

	return t != NULL ? t->typestr : NULL;
}

int usmb_dl_dtype_by_name(const char *name, usmb_dl_dtype *out)
{
	for (int i = 0; name != NULL && i < TYPES; i++) {
		if (strcmp(types[i].name, name) == 0) {
			*out = types[i].dtype;
			return USMB_DL_OK;
		}
	}
	return USMB_DL_EDTYPE;
}

int usmb_dl_dtype_by_typestr(const char *s, size_t n, usmb_dl_dtype *out)
{
	int sign = n > 0 && (*s == '<' || *s == '=' || *s == '|' || *s == '>' || *s == '!');
	int foreign = sign && (*s == '>' || *s == '!'); /* invalid for more than one byte */

	s += sign;
	n -= (size_t)sign;
	if (n < 2) return USMB_DL_EDTYPE;
	for (int i = 0; i < TYPES; i++) {
		const char *t = types[i].typestr;

		/* Compare two letters first: they differ for nearly all, and no call is needed. */
		if (t == NULL || t[1] != s[0] || t[2] != s[1] || strlen(t + 1) != n || memcmp(t + 1, s, n) != 0)
			continue;
		if (foreign && types[i].dtype.bits > 8) return USMB_DL_EDTYPE;
		*out = types[i].dtype;
		return USMB_DL_OK;
	}
	return USMB_DL_EDTYPE;
}

const char *usmb_dl_device_name(int32_t device_type)
{
	static const char *const names[] = {USMB_DL_DEVICE_NAMES};

	return device_type >= 0 && device_type <= USMB_DL_TRN ? names[device_type] : NULL;
}

static const char *const general[USMB_DL_ECODES] = {
        [USMB_DL_OK] = "no error",
        [USMB_DL_ENOMEM] = "out of memory for the DLPack block (a few hundred bytes): free host memory and try again",
        [USMB_DL_EVERSION] = "the tensor's DLPack major version is not 1: it can only be deleted; ask its producer for "
                             "max_version=(1, 3)",
        [USMB_DL_ENDIM] = "a tensor has 0 to 64 dimensions: reshape it",
        [USMB_DL_ESHAPE] = "a tensor has a shape of non-negative extents: fix the producer",
        [USMB_DL_ESTRIDES] =
                "the strides reach outside of what can be addressed: make the array contiguous or fix the producer",
        [USMB_DL_EOVERFLOW] = "its size in bits, or where it ends, does not fit 63 bits: fix the shape or the offset",
        [USMB_DL_EDTYPE] = "the element type cannot be exchanged: convert to one of the array API's types",
        [USMB_DL_ELANES] =
                "vector types (lanes other than 1) cannot be exchanged: give the lanes a dimension of their own",
        [USMB_DL_EALIGN] = "the first element does not lie at a multiple of the item size: copy the array first",
        [USMB_DL_ENULL] = "there is no memory behind the tensor (NULL): fix the producer",
        [USMB_DL_EREADONLY] = "read-only memory cannot be exported as a legacy tensor, which has no read-only flag: "
                              "ask with max_version=(1, 0) or newer, or copy",
        [USMB_DL_EDEVICE] = "not a DLPack device: the type is 1 to 18 and the id is not negative",
        [USMB_DL_EPADDED] =
                "padded sub-byte elements cannot be exported as a legacy tensor, which has no flag for it: ask "
                "with max_version=(1, 0) or newer, or pack them",
        [USMB_DL_EFLAGS] = "unknown export flags: use READ_ONLY 1, IS_COPIED 2 and SUBBYTE_PADDED 4",
};

static void explain_shape(const usmb_dl_tensor *t, char *buf, size_t n)
{
	if (t->shape == NULL) {
		snprintf(buf, n,
		         "shape is NULL but ndim is %" PRId32
		         ": a tensor with dimensions has a shape; fix the producer",
		         t->ndim);
		return;
	}
	for (int32_t i = 0; i < t->ndim; i++) {
		if (t->shape[i] < 0) {
			snprintf(buf, n,
			         "shape[%" PRId32 "] is %" PRId64 ": extents are not negative; fix the producer", i,
			         t->shape[i]);
			return;
		}
	}
	snprintf(buf, n, "%s", general[USMB_DL_ESHAPE]);
}

/* Writes the type's name, or "type code 3 of 64 bits". */
static void print_type(usmb_dl_dtype d, char *buf, size_t n)
{
	const char *name = usmb_dl_dtype_name((usmb_dl_dtype){d.code, d.bits, 1});

	if (name != NULL)
		snprintf(buf, n, "%s", name);
	else
		snprintf(buf, n, "type code %u of %u bits", d.code, d.bits);
}

static void explain_dtype(const usmb_dl_tensor *t, char *buf, size_t n)
{
	usmb_dl_dtype d = t->dtype;

	if (d.code == USMB_DL_OPAQUE_HANDLE)
		snprintf(buf, n,
		         "elements are opaque handles (type code 3), which mean nothing to another library: export "
		         "numbers");
	else if (d.code == USMB_DL_BOOL)
		snprintf(buf, n, "bool of %u bits: bools are 8 bits each in DLPack; convert to bool of one byte",
		         d.bits);
	else if (d.code > USMB_DL_FLOAT4_E2M1FN)
		snprintf(buf, n, "type code %u is newer than DLPack %d.%d knows: convert to another type", d.code,
		         USMB_DL_MAJOR, USMB_DL_MINOR);
	else
		snprintf(buf, n, "type code %u of %u bits has no such width: convert to one of the array API's types",
		         d.code, d.bits);
}

static void explain_align(const usmb_dl_tensor *t, char *buf, size_t n)
{
	unsigned item = (unsigned)t->dtype.bits / 8;
	char type[64];

	print_type(t->dtype, type, sizeof type);
	snprintf(buf, n,
	         "data %p with byte_offset %" PRIu64
	         " is not aligned to %s, whose items take %u bytes: copy the array first",
	         t->data, t->byte_offset, type, item);
}

/* Writes "(2, 3)", cut off with "..." if there are many. */
static void print_ints(const int64_t *v, int32_t count, char *buf, size_t n)
{
	size_t at = (size_t)snprintf(buf, n, "(");

	for (int32_t i = 0; i < count; i++) {
		if (i == 6 || at + 32 > n) {
			at += (size_t)snprintf(buf + at, n - at, ", ...");
			break;
		}
		at += (size_t)snprintf(buf + at, n - at, i > 0 ? ", %" PRId64 : "%" PRId64, v[i]);
	}
	snprintf(buf + at, n - at, ")");
}

/* Message for codes about a valid shape; it begins with the layout. */
static void explain_extent(int code, const usmb_dl_tensor *t, char *buf, size_t n)
{
	char shape[192], strides[192] = "in C order", type[64];

	if (t->ndim < 0 || t->ndim > USMB_DL_MAX_NDIM || (t->ndim > 0 && t->shape == NULL)) {
		snprintf(buf, n, "%s", general[code]);
		return;
	}
	print_type(t->dtype, type, sizeof type);
	print_ints(t->shape, t->ndim, shape, sizeof shape);
	if (t->strides != NULL) print_ints(t->strides, t->ndim, strides, sizeof strides);
	snprintf(buf, n, "%s of shape %s, strides %s, at %p + %" PRIu64 ": %s", type, shape, strides, t->data,
	         t->byte_offset, general[code]);
}

static void explain_device(const usmb_dl_tensor *t, char *buf, size_t n)
{
	snprintf(buf, n,
	         "device (%" PRId32 ", %" PRId32
	         ") is invalid: the type must be 1 (kDLCPU) to 18 (kDLTrn), and the id not negative",
	         t->device.type, t->device.id);
}

char *usmb_dl_explain(int code, const usmb_dl_tensor *t, char *buf, size_t n)
{
	char type[64];

	if (n == 0) return buf;
	if (code < 0 || code >= USMB_DL_ECODES) {
		snprintf(buf, n, "unknown DLPack error %d", code);
		return buf;
	}
	if (t == NULL) {
		snprintf(buf, n, "%s", general[code]);
		return buf;
	}
	switch (code) {
	case USMB_DL_ENDIM:
		snprintf(buf, n, "ndim is %" PRId32 ": a tensor has 0 to %d dimensions; reshape it", t->ndim,
		         USMB_DL_MAX_NDIM);
		break;
	case USMB_DL_ESHAPE: explain_shape(t, buf, n); break;
	case USMB_DL_EOVERFLOW:
	case USMB_DL_ESTRIDES: explain_extent(code, t, buf, n); break;
	case USMB_DL_EDTYPE: explain_dtype(t, buf, n); break;
	case USMB_DL_ELANES:
		print_type(t->dtype, type, sizeof type);
		snprintf(buf, n,
		         "%s with %u lanes: only 1 lane can be exchanged; give the lanes a dimension of their own",
		         type, t->dtype.lanes);
		break;
	case USMB_DL_EALIGN: explain_align(t, buf, n); break;
	case USMB_DL_ENULL:
		snprintf(buf, n,
		         "data is NULL on device (%" PRId32 ", %" PRId32
		         "): only an empty tensor outside of kDLOneAPI has no memory; fix the producer",
		         t->device.type, t->device.id);
		break;
	case USMB_DL_EDEVICE: explain_device(t, buf, n); break;
	default: snprintf(buf, n, "%s", general[code]);
	}
	return buf;
}

char *usmb_dl_explain_version(usmb_dl_version found, char *buf, size_t n)
{
	if (n > 0)
		snprintf(buf, n,
		         "the tensor is of DLPack %" PRIu32 ".%" PRIu32
		         ", another major version than %d: it can only be deleted; ask its producer for "
		         "max_version=(%d, %d)",
		         found.major, found.minor, USMB_DL_MAJOR, USMB_DL_MAJOR, USMB_DL_MINOR);
	return buf;
}

char *usmb_dl_explain_snapshot(int code, const usmb_dl_snapshot *s, char *buf, size_t n)
{
	if (code == USMB_DL_EVERSION) return usmb_dl_explain_version(s->version, buf, n);
	/* If the device is zero, there was no tensor. */
	return usmb_dl_explain(code, code == USMB_DL_ENULL && s->t.device.type == 0 ? NULL : &s->t, buf, n);
}
