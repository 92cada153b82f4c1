/* array.c: arrays as C sees them: life, layout, views. Their type is array_type.c. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_storage.h"
#include "usmb_support.h"

PyTypeObject *usmb_array_type;

/* Freed arrays of few dimensions, kept for the next ones: most arrays live for
   one hand-over only. Guarded by the GIL. */
enum { KEEP_NDIM = 4, KEEP_MAX = 64 };
static usmb_array *kept[KEEP_MAX];
static int nkept;

usmb_array *usmb_array_raw(int32_t ndim)
{
	usmb_array *a;
	if (ndim <= KEEP_NDIM && nkept > 0) {
		a = kept[--nkept];
	} else {
		int32_t room = ndim < KEEP_NDIM ? KEEP_NDIM : ndim;
		a = usmb_py.PyObject_Malloc(sizeof *a + 2 * (size_t)room * sizeof(int64_t));
		if (!a) {
			usmb_py.PyErr_NoMemory();
			return NULL;
		}
	}
	usmb_py.PyObject_Init((PyObject *)a, usmb_array_type);
	a->ob_base.ob_size = 2 * ndim;
	a->cell = NULL;
	a->ndim = ndim;
	return a;
}

void usmb_array_dealloc(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (a->cell) usmb_cell_drop_gil(a->cell);
	usmb_owner_drain();
	if (a->ndim <= KEEP_NDIM && nkept < KEEP_MAX)
		kept[nkept++] = a;
	else
		usmb_py.PyObject_Free(a);
	Py_DECREF(type);
}

uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags)
{
	if (dtype.bits < 8 && (flags & USMB_ARR_PADDED)) return 8;
	return dtype.bits;
}

void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran)
{
	int64_t step = 1;
	for (int32_t k = 0; k < ndim; k++) {
		int32_t i = fortran ? k : ndim - 1 - k;
		strides[i] = step;
		if (shape[i] > 0) step *= shape[i];
	}
}

/* Strides of modes that have one element do not matter; an array without
   elements is contiguous in every order. Products are unsigned: they wrap in arrays
   without elements only, where they mean nothing. */
static uint32_t contiguity(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	uint32_t flags = USMB_ARR_C | USMB_ARR_F;
	uint64_t c = 1, f = 1;
	for (int32_t i = ndim - 1; i >= 0; i--) {
		if (shape[i] == 0) return USMB_ARR_C | USMB_ARR_F;
		if (shape[i] != 1 && (uint64_t)strides[i] != c) flags &= ~(uint32_t)USMB_ARR_C;
		c *= (uint64_t)shape[i];
	}
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] != 1 && (uint64_t)strides[i] != f) flags &= ~(uint32_t)USMB_ARR_F;
		f *= (uint64_t)shape[i];
	}
	return flags;
}

static uint32_t memory_flags(const usmb_cell *cell, uint32_t extra)
{
	uint32_t cellflags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	uint32_t flags = extra & (USMB_ARR_READONLY | USMB_ARR_PADDED);
	if (cellflags & USMB_CELL_READONLY) flags |= USMB_ARR_READONLY;
	if (!cell->place)
		flags |= USMB_ARR_HOST | USMB_ARR_READ;
	else if (((usmb_place *)cell->place)->host_readable)
		flags |= USMB_ARR_READ;
	return flags;
}

void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra, const usmb_dl_span *span)
{
	uint32_t flags = memory_flags(cell, extra);
	if (span->contig & USMB_DL_C_CONTIGUOUS) flags |= USMB_ARR_C;
	if (span->contig & USMB_DL_F_CONTIGUOUS) flags |= USMB_ARR_F;
	a->cell = cell;
	a->first = span->first;
	a->dtype = dtype;
	a->flags = flags;
	a->nelem = span->nelem;
	a->itembits = span->itembits;
}

void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra)
{
	uint32_t flags = memory_flags(cell, extra) | contiguity(a->ndim, usmb_shape(a), usmb_strides(a));
	uint64_t n = 1; /* see contiguity */
	for (int32_t i = 0; i < a->ndim; i++) n *= (uint64_t)usmb_shape(a)[i];
	a->cell = cell;
	a->first = first;
	a->dtype = dtype;
	a->flags = flags;
	a->nelem = (int64_t)n;
	a->itembits = usmb_item_bits(dtype, flags);
}

PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	usmb_array *a = usmb_array_raw(ndim);
	if (!a) return NULL;
	if (ndim > 0) {
		memcpy(usmb_shape(a), shape, (size_t)ndim * sizeof *shape);
		memcpy(usmb_strides(a), strides, (size_t)ndim * sizeof *strides);
	}
	usmb_cell_retain(src->cell);
	usmb_array_settle(a, src->cell, first, src->dtype, src->flags);
	return (PyObject *)a;
}

void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi)
{
	int64_t down = 0, up = 0;
	*lo = *hi = 0;
	if (a->nelem == 0) return;
	for (int32_t i = 0; i < a->ndim; i++) {
		int64_t reach = (usmb_shape(a)[i] - 1) * usmb_strides(a)[i];
		if (reach < 0)
			down += reach;
		else
			up += reach;
	}
	int64_t bits = a->itembits;
	*lo = (down * bits) >> 3; /* packed elements: down to the whole byte */
	*hi = ((up + 1) * bits + 7) / 8;
}

int usmb_array_wait(usmb_array *a)
{
	void *event = usmb_pending_copy(a->cell);
	void *producer = usmb_owned_by_python(a->cell) ? usmb_cell_producer(a->cell) : NULL;
	if (!event && !producer) return 0;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int code = event ? usmb_sycl_wait_event(event) : USMB_SYCL_OK;
	if (event) {
		usmb_sycl_event_delete(event);
		usmb_pending_done(a->cell);
	}
	if (code == USMB_SYCL_OK && producer) code = usmb_sycl_wait_queue(producer);
	usmb_py.PyEval_RestoreThread(saved);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(usmb_py.PyExc_RuntimeError, "waiting for pending work on the array's memory: %s",
	           usmb_sycl_strerror(code));
	return -1;
}
