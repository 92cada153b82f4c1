/*
 * usmb_array.h: arrays.
 */
#ifndef USMB_ARRAY_H
#define USMB_ARRAY_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

enum {
	USMB_ARR_READONLY = 1,
	USMB_ARR_C = 2,      /* C-contiguous */
	USMB_ARR_F = 4,      /* Fortran-contiguous */
	USMB_ARR_HOST = 8,   /* plain host memory: the host backend or a kDLCPU import */
	USMB_ARR_READ = 16,  /* the processor may read the memory */
	USMB_ARR_PADDED = 32 /* sub-byte elements, one to a byte */
};

/* An Array. It owns one reference of its cell; shape and strides follow the
   object, so that a view is one block of memory. Immutable after creation. */
typedef struct usmb_array {
	PyObject_VAR_HEAD usmb_cell *cell; /* owner of the memory; never NULL */
	char *first;                       /* address of element [0, ..., 0] */
	int64_t nelem;                     /* number of elements */
	usmb_dl_dtype dtype;               /* lanes 1 */
	int32_t ndim;                      /* 0..64 */
	uint32_t flags;                    /* USMB_ARR_* */
	uint32_t itembits;                 /* bits from one element to the next */
	int64_t dims[];                    /* shape[ndim], then strides[ndim] in elements */
} usmb_array;

static inline int64_t *usmb_shape(usmb_array *a)
{
	return a->dims;
}
static inline int64_t *usmb_strides(usmb_array *a)
{
	return a->dims + a->ndim;
}
static inline usmb_place *usmb_array_place(usmb_array *a)
{
	return (usmb_place *)a->cell->place;
}
/* Bytes of one element as Python reports them: a packed sub-byte type has 1. */
static inline int64_t usmb_itemsize(const usmb_array *a)
{
	return a->itembits >= 8 ? a->itembits / 8 : 1;
}
/* Bytes that the elements take when they lie one after the other. */
static inline int64_t usmb_nbytes(const usmb_array *a)
{
	return a->itembits >= 8 ? a->nelem * (a->itembits / 8) : (a->nelem * a->itembits + 7) / 8;
}

/* Whether the elements lie at multiples of their size; SUAI asks for no alignment. */
static inline int usmb_array_aligned(const usmb_array *a)
{
	return a->itembits < 8 || a->nelem == 0 || ((uintptr_t)a->first & (a->itembits / 8 - 1)) == 0;
}

extern PyTypeObject *usmb_array_type;
static inline int usmb_is_array(PyObject *o)
{
	return Py_TYPE(o) == usmb_array_type;
}

/* A new array without cell, first, flags; the caller fills it at once, shape
   and strides included, then calls usmb_array_settle. */
usmb_array *usmb_array_raw(int32_t ndim);
/* Computes nelem, contiguity and the flags that follow from the cell; takes
   over one reference of cell. extra: USMB_ARR_READONLY | USMB_ARR_PADDED. */
void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra);
/* The same where a check has found nelem, itembits and the contiguity already. */
void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra,
                          const usmb_dl_span *span);
/* Bits from one element to the next. */
uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags);
/* A view on src's cell with the layout given (copied); first is an address. */
PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides);
/* Fills C or Fortran order strides. */
void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran);
/* Waits, with the GIL dropped, for work of ours pending on the memory, and for the
   queue of a producer that names one. */
int usmb_array_wait(usmb_array *a);
/* Byte range [lo, hi) of the elements relative to first. */
void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi);
void usmb_array_dealloc(PyObject *self); /* tp_dealloc */

#endif
