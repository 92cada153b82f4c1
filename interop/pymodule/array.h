/*
 * array.h: arrays.
 */
#ifndef USMB_PYMODULE_ARRAY_H
#define USMB_PYMODULE_ARRAY_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

enum {
	USMB_ARR_READONLY = 1,
	USMB_ARR_C = 2,          /* C-contiguous */
	USMB_ARR_F = 4,          /* Fortran-contiguous */
	USMB_ARR_HOST = 8,       /* plain host memory: the host backend or a kDLCPU import */
	USMB_ARR_READ = 16,      /* the processor may read the memory */
	USMB_ARR_PADDED = 32,    /* sub-byte elements, one to a byte */
	USMB_ARR_KEEP = 64,      /* the memory may be kept (usmb_kept.h); not a view's */
	USMB_ARR_RELEASED = 128, /* release() was called: nothing may be asked of it */
	USMB_ARR_WISH = 8,       /* with KEEP, the first bit of its usmb_wish */
	/* Of the memory, and so of views: other processes can map it; they can only read it;
	   it is another process's, and is not there in a forked child. */
	USMB_ARR_INTERPROCESS = 1 << 12,
	USMB_ARR_PEERS_READ = 1 << 13,
	USMB_ARR_RECEIVED = 1 << 14,
	USMB_ARR_MEMORY = USMB_ARR_INTERPROCESS | USMB_ARR_PEERS_READ | USMB_ARR_RECEIVED
};

/* An Array. It owns one reference of its cell; shape and strides follow the
   object, so that a view is one block of memory. Immutable after creation,
   but for release().

   queue is what usmb_queue_of made of a queue that somebody named: the SyclQueue of
   dpctl that was given, a SyclQueue made of the capsule that was. Neither can refer
   to an Array, so that no cycle forms through it. What Go holds of it, if anything,
   is a reference of its own to the sycl::queue (memmgr's table of queues), never the
   object.

   Memory that belongs to a Python object can be in a cycle with its arrays. The first
   array on a cell is the root of the others: they own a reference of it, and it knows
   how many share the cell. So the collector sees the object through the root alone, and
   only while nobody but arrays holds the cell. */
typedef struct usmb_array {
	PyObject_VAR_HEAD usmb_cell *cell; /* owner of the memory; never NULL */
	PyObject *queue;                   /* owned: the queue that was named, NULL: none was */
	char *first;                       /* address of element [0, ..., 0] */
	int64_t nelem;                     /* number of elements */
	usmb_dl_dtype dtype;               /* lanes 1 */
	int32_t ndim;                      /* 0..64 */
	uint32_t flags;                    /* USMB_ARR_* */
	uint32_t itembits;                 /* bits from one element to the next */
	uint32_t sharers;                  /* of a root: arrays that hold its cell, itself too */
	uint32_t holds;                    /* operations and buffers that release() waits for */
	uint32_t tracked;                  /* known to the cycle collector */
	uint32_t shown;                    /* 1: a consumer has the address (usmb_array_show) */
	struct usmb_array *root;           /* owned, the root of the cell's arrays, NULL: this, or none */
	PyObject *weak;                    /* weak references, CPython's */
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

/* ValueError and 0 when the array was released. */
int usmb_array_released(void);
/* RuntimeError and 0 in a forked child, where memory of other processes is not mapped. */
int usmb_array_received(void);
/* What a forked child has of an array that was sent to it by handle: an Array of which every use
   but repr() raises that error. Unpickling must not raise it: a worker of multiprocessing whose task cannot
   be unpickled ends without an answer. */
PyObject *usmb_array_unreachable(void);
static inline int usmb_array_alive(const usmb_array *a)
{
	uint32_t flags = a->flags & (USMB_ARR_RELEASED | USMB_ARR_RECEIVED);
	if (__builtin_expect(!flags, 1)) return 1;
	return flags & USMB_ARR_RELEASED ? usmb_array_released() : usmb_array_received();
}
/* Whoever drops the GIL or runs code of others while it uses an array, and a buffer of
   it, holds it: release() gives the memory up when the last of them lets go. Every method
   holds its own array (array_type.c); an operation that has begun goes on. */
static inline void usmb_array_hold(usmb_array *a)
{
	a->holds++;
}
void usmb_array_give_up(usmb_array *a); /* what the last one does after release() */
static inline void usmb_array_let(usmb_array *a)
{
	if (--a->holds == 0 && __builtin_expect(a->flags & USMB_ARR_RELEASED, 0)) usmb_array_give_up(a);
}
/* What an array has for memory whose memory was given up. */
extern usmb_cell usmb_no_memory;
/* Holds the array of a caller, which others can release meanwhile: -1 with ValueError
   when its memory has gone. */
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
/* Keeps the memory until the array is deallocated, beyond release(): a consumer got the
   address of the elements and keeps nothing alive but the array object. That is so for
   both dictionaries and for the borrowed tensor of the C exchange API. The hold ends with
   the object, or when the collector clears it together with its consumers. */
static inline void usmb_array_show(usmb_array *a)
{
	if (a->shown) return;
	a->shown = 1;
	usmb_array_hold(a);
}
/* Closes the array to its user, and drops its reference of the memory as soon as there
   are no holds. */
void usmb_array_release(usmb_array *a);
int usmb_array_traverse(PyObject *self, int (*visit)(PyObject *, void *), void *arg);
int usmb_array_clear(PyObject *self);

/* A new array without cell, first, flags; the caller fills it at once, shape
   and strides included, then calls usmb_array_settle. */
usmb_array *usmb_array_raw(int32_t ndim);
/* Computes nelem, contiguity and the flags that follow from the cell; takes
   over one reference of cell. extra: USMB_ARR_READONLY | USMB_ARR_PADDED | USMB_ARR_MEMORY. */
void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra);
/* The same where a check has found nelem, itembits and the contiguity already. */
void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra,
                          const usmb_dl_span *span);
/* Bits from one element to the next. */
uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags);
/* A view on src's cell with the layout given (copied); first is an address. */
PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides);
/* The same with the elements seen as another type; extra: USMB_ARR_PADDED, and
   USMB_ARR_READONLY where src is not already. */
PyObject *usmb_array_view_as(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, char *first, int32_t ndim,
                             const int64_t *shape, const int64_t *strides);
/* Fills C or Fortran order strides. */
void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran);
/* Waits, with the GIL dropped, for work of ours pending on the memory, for the queue
   that the array names, and where it names none, and others were shown the memory, for the
   one that they were told: what whoever reads or writes here does first. */
int usmb_array_wait(usmb_array *a);
/* The same without the last: before the memory is shown to others, who are told that
   queue. */
int usmb_array_wait_known(usmb_array *a);
/* Whether others were shown the memory, or had it first, who let devices work on it. */
static inline int usmb_cell_seen(usmb_cell *cell)
{
	return atomic_load_explicit(&cell->flags, memory_order_relaxed) &
	       (USMB_CELL_EXPORTED | USMB_CELL_ASYNC | USMB_CELL_FOREIGN);
}
/* Notes on the memory that others may let a device work on it in queues of theirs, where
   nothing else says so. */
static inline void usmb_array_note_async(usmb_array *a)
{
	uint32_t flags = atomic_load_explicit(&a->cell->flags, memory_order_relaxed);
	if (!(flags & (USMB_CELL_ASYNC | USMB_CELL_EXPORTED)))
		atomic_fetch_or_explicit(&a->cell->flags, USMB_CELL_ASYNC, memory_order_relaxed);
}
/* Waits, with the GIL dropped, for work of ours on memory that the caller keeps, and for a
   queue, or NULL. */
int usmb_cell_wait(usmb_cell *cell, void *queue);
/* Takes over a queue object, or NULL, in the place of what was there. */
void usmb_array_name_queue(usmb_array *a, PyObject *queue);
/* Byte range [lo, hi) of the elements relative to first. */
void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi);
void usmb_array_dealloc(PyObject *self); /* tp_dealloc */

#endif
