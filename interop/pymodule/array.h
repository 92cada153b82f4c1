/*
 * array.h: arrays.
 */
#ifndef USMB_PYMODULE_ARRAY_H
#define USMB_PYMODULE_ARRAY_H

#include "support.h"
#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

enum {
	USMB_ARR_READONLY = 1,
	USMB_ARR_C = 2,          /* C-contiguous */
	USMB_ARR_F = 4,          /* Fortran-contiguous */
	USMB_ARR_READ = 16,      /* the processor may read the memory */
	USMB_ARR_PADDED = 32,    /* sub-byte elements, one to a byte */
	USMB_ARR_KEEP = 64,      /* the memory may be kept for reuse (storage.h); never set in a view */
	USMB_ARR_RELEASED = 128, /* release() was called: every use raises ValueError */
	USMB_ARR_WISH = 8,       /* with KEEP, the first bit of its usmb_wish */
	/* Properties of the memory, which views inherit: other processes can map it; they can only
	   read it; it belongs to another process and is not mapped in a forked child. */
	USMB_ARR_INTERPROCESS = 1 << 12,
	USMB_ARR_PEERS_READ = 1 << 13,
	USMB_ARR_RECEIVED = 1 << 14,
	/* A view for a computation by dpnp, and its views: their dictionaries do not count as shown. */
	USMB_ARR_OURS = 1 << 15,
	USMB_ARR_MEMORY = USMB_ARR_INTERPROCESS | USMB_ARR_PEERS_READ | USMB_ARR_RECEIVED | USMB_ARR_OURS
};

/* An Array. It owns one reference of its cell. Shape and strides follow the object, so that a view
   is one block of memory. Immutable after creation, except for release().

   queue is the result of usmb_queue_of for a queue that a caller gave: the dpctl.SyclQueue itself,
   or a SyclQueue made from a capsule. Neither can refer to an Array, so no reference cycle forms
   through it. Go never holds the object, only a reference of its own to the sycl::queue (memmgr's
   table of queues).

   Memory that belongs to a Python object can be in a cycle with its arrays. The first array on a
   cell is the root of the others: they own a reference of the root, and the root counts the arrays
   that share the cell. So the collector sees the object through the root alone, and only while the
   cell has no other holders than arrays. A view of other memory owns a reference of the array that it
   is a view of: the attribute base. */
typedef struct usmb_array {
	PyObject_VAR_HEAD usmb_cell *cell; /* owner of the memory; never NULL */
	PyObject *queue;                   /* owned: the queue that the caller gave, or NULL */
	char *first;                       /* address of element [0, ..., 0] */
	int64_t nelem;                     /* number of elements */
	usmb_dl_dtype dtype;               /* lanes 1 */
	int32_t ndim;                      /* 0..64 */
	uint32_t flags;                    /* USMB_ARR_* */
	uint32_t itembits;                 /* bits from one element to the next */
	uint32_t sharers;                  /* of a root: the number of arrays that hold its cell, itself included */
	uint32_t holds;                    /* operations and buffers that release() waits for */
	uint32_t tracked;                  /* known to the cycle collector */
	uint32_t shown;                    /* 1: a consumer has the address (usmb_array_show) */
	uint32_t noted;                    /* the facts that its memory has recorded (order.h) */
	struct usmb_array *root; /* owned: the root of the cell's arrays, or the base of a view; NULL in that array */
	PyObject *weak;          /* weak references, managed by CPython */
	PyObject *peer;          /* owned: dpnp's array on the memory, or NULL */
	int64_t dims[];          /* shape[ndim], then strides[ndim] in elements */
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

/* Whether the position of the first element in the memory is a whole number of elements of so many bits, which Go
   requires. */
static inline int usmb_array_counts(const usmb_array *a, int64_t itembits)
{
	return (a->first - (char *)a->cell->data) * 8 % itembits == 0;
}

extern PyTypeObject *usmb_array_type;
static inline int usmb_is_array(PyObject *o)
{
	return Py_TYPE(o) == usmb_array_type;
}

/* Raises ValueError for a released array; returns 0. */
int usmb_array_released(void);
/* Returns 1; in a forked child, where memory of other processes is not mapped, raises RuntimeError
   and returns 0. */
int usmb_array_received(void);
/* A new Array for a forked child that unpickles an array sent by handle: every use of it except
   repr() raises the RuntimeError above. Unpickling itself must not raise: a worker of
   multiprocessing that cannot unpickle a task ends without an answer. */
PyObject *usmb_array_unreachable(void);
static inline int usmb_array_alive(const usmb_array *a)
{
	uint32_t flags = a->flags & (USMB_ARR_RELEASED | USMB_ARR_RECEIVED);
	if (__builtin_expect(!flags, 1)) return 1;
	return flags & USMB_ARR_RELEASED ? usmb_array_released() : usmb_array_received();
}
/* The gate of forked children for an operation that reaches SYCL if the memory is USM. */
static inline int usmb_array_allowed(const usmb_array *a)
{
	return a->cell->place ? usmb_go_allowed() : 0;
}
/* Holds the memory of an array. Code that drops the GIL or runs foreign code while it uses an array
   must hold it, and so does a buffer: release() frees the memory when the last hold ends. Every
   method holds its own array (array_type.c), so an operation that has begun can finish. */
static inline void usmb_array_hold(usmb_array *a)
{
	a->holds++;
}
void usmb_array_drop_memory(usmb_array *a); /* drops the memory: called by the last hold to end after release() */
static inline void usmb_array_unhold(usmb_array *a)
{
	if (--a->holds == 0 && __builtin_expect(a->flags & USMB_ARR_RELEASED, 0)) usmb_array_drop_memory(a);
}
/* The cell of arrays that dropped their memory. */
extern usmb_cell usmb_no_memory;
/* Holds an array that a caller passed, which another thread can release meanwhile. Returns -1 with
   ValueError if its memory is gone. */
static inline int usmb_array_begin(usmb_array *a)
{
	if (__builtin_expect(a->cell == &usmb_no_memory, 0)) {
		usmb_array_released();
		return -1;
	}
	if (__builtin_expect(a->flags & USMB_ARR_RECEIVED, 0) && !usmb_array_received()) return -1;
	usmb_array_hold(a);
	return 0;
}
/* Keeps the memory until the array is deallocated, even after release(): a consumer has the address
   of the elements and keeps only the array object alive. This is so for both dictionaries and for
   the borrowed tensor of the C exchange API. The hold ends with the object, or when the collector
   clears it together with its consumers. */
static inline void usmb_array_show(usmb_array *a)
{
	if (a->shown) return;
	a->shown = 1;
	usmb_array_hold(a);
}
/* Releases the array: later uses raise, and the memory is dropped as soon as there are no holds. */
void usmb_array_release(usmb_array *a);
int usmb_array_traverse(PyObject *self, int (*visit)(PyObject *, void *), void *arg);
int usmb_array_clear(PyObject *self);

/* A new array without cell, first and flags. The caller must fill them at once, with shape and
   strides, and then call usmb_array_settle. */
usmb_array *usmb_array_raw(int32_t ndim);
/* The same with shape and strides. */
static inline usmb_array *usmb_array_laid_out(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	usmb_array *a = usmb_array_raw(ndim);
	if (!a) return NULL;
	for (int32_t i = 0; i < ndim; i++) {
		usmb_shape(a)[i] = shape[i];
		usmb_strides(a)[i] = strides[i];
	}
	return a;
}
/* Computes nelem, contiguity and the flags that follow from the cell; takes
   over one reference of cell. extra: USMB_ARR_READONLY | USMB_ARR_PADDED | USMB_ARR_MEMORY. */
void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra);
/* The same with nelem, itembits and contiguity from an earlier check. */
void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra,
                          const usmb_dl_span *span);
/* Bits from one element to the next. */
uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags);
/* A view on src's cell with the layout given (copied); first is an address. */
PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides);
/* A view of all elements that does not keep src itself: it has no base. */
PyObject *usmb_array_alone(usmb_array *src);
/* usmb_array_view with another element type. extra: USMB_ARR_PADDED, and USMB_ARR_READONLY for a read-only
   view. */
PyObject *usmb_array_view_as(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, char *first, int32_t ndim,
                             const int64_t *shape, const int64_t *strides);
/* Fills C or Fortran order strides. */
void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran);
/* Sets the queue of an array; takes over the reference of queue, which may be NULL. */
void usmb_array_name_queue(usmb_array *a, PyObject *queue);
/* Byte range [lo, hi) of the elements relative to first. */
void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi);
void usmb_array_dealloc(PyObject *self); /* tp_dealloc */

#endif
