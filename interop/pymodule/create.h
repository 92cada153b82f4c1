/*
 * create.h: new memory and its place, copies, assignment.
 */
#ifndef USMB_PYMODULE_CREATE_H
#define USMB_PYMODULE_CREATE_H

#include "support.h"
#include "sycl.h"
#include "array.h"

/* ---- create ---- */

/* Where new memory is wanted. */
typedef struct {
	usmb_syclref queue; /* form NONE: the device decides */
	PyObject *device;   /* owned str with a filter string, or NULL */
	int kind;           /* USMB_USM_*, or 0: what the device's default is */
	int host;           /* 1: the host backend */
	int audience;       /* USMB_AUDIENCE_*: what other processes may do with it */
} usmb_where;

/* The values of interprocess=: None and False, True, "readonly". As package segment
   numbers audiences. */
enum { USMB_AUDIENCE_NONE = 0, USMB_AUDIENCE_WRITE = 1, USMB_AUDIENCE_READ = 2 };
/* Reads the interprocess argument, NULL where there is none. */
int usmb_parse_audience(PyObject *o, int *audience);

/* The arguments of empty and its sisters. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM];
	int ndim;
	int fortran;
	PyObject *dtype; /* borrowed, NULL: none was given */
	usmb_dl_dtype t; /* for the caller, who knows the default */
	usmb_where w;
} usmb_new_args;
/* Reads them; value, where there is one, gets full's fill_value, borrowed. clear gives
   back what they hold; made: the array, if one came of it. */
int usmb_parse_new(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kw, PyObject **value,
                   usmb_new_args *out);
void usmb_new_args_clear(usmb_new_args *in, PyObject *made);

PyObject *usmb_py_empty(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_zeros(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* What is to be in new memory: anything, zeros, or what the caller writes at once; of the
   former user's work it is waited for only where something is written. */
typedef enum { USMB_ANY, USMB_ZEROS, USMB_WRITTEN } usmb_content;
/* New memory at w, laid out in C (or Fortran) order. */
PyObject *usmb_new_array(const usmb_where *w, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                         usmb_content content);
void usmb_where_clear(usmb_where *w);
/* An array of the whole of new memory; takes over the cell. extra as for
   usmb_array_settle. */
PyObject *usmb_array_dense(usmb_cell *cell, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                           uint32_t extra);
/* Bytes of a dense array; -1 with ValueError when they cannot be addressed. */
int64_t usmb_dense_bytes(int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype);
/* Reads the usm_type, sycl_queue and device arguments, each NULL where there is none. */
int usmb_parse_where(PyObject *kind, PyObject *queue, PyObject *dev, usmb_where *w);
/* Reads the device= argument: whatever usmb_syclref_device takes. */
int usmb_parse_device(PyObject *o, usmb_where *w);
/* Whether a device= argument says anything. */
static inline int usmb_has_device(const usmb_where *w)
{
	return w->device || w->queue.form != USMB_FORM_NONE;
}
/* Whether the array already lies where w says: in its device and kind of memory, and
   where w names a queue, in the queue's context. */
int usmb_is_at(usmb_array *a, const usmb_where *w);
/* An array that is there: itself, or a view that names the queue in w. w may be NULL. */
PyObject *usmb_stay(usmb_array *a, const usmb_where *w);
/* Where a copy of an array that is there goes: beside it (NULL), or in the same kind of
   memory on the queue in w, borrowed by room. */
const usmb_where *usmb_near(usmb_array *a, const usmb_where *w, usmb_where *room);

/* Memory that is wanted. Text is borrowed and may lack a terminator. */
typedef struct {
	int64_t bytes;
	int32_t form;     /* USMB_FORM_*, NONE: device decides */
	int32_t kind;     /* USMB_USM_*, 0: device memory */
	int32_t host;     /* 1: the host backend */
	int32_t padded;   /* 1: elements of less than a byte take one each */
	int32_t shared;   /* written by usmb_go_alloc: 1 for memory of one of the shared pools */
	int32_t audience; /* USMB_AUDIENCE_*; usmb_go_alloc alone asks */
	int32_t arena;    /* 1: the context of the call that this thread is in carries an arena */
	void *ref;        /* queue or context, borrowed */
	char *filter;     /* filter string of form FILTER or of the device, NULL: the default device */
	uint64_t nfilter;
} usmb_alloc_req;
int usmb_go_alloc(usmb_alloc_req *req, usmb_cell **out, usmb_goerr *err);
/* Whether the context of the call from Go that this thread is in carries an arena. */
int usmb_go_call_arena(void);
/* 1 when the memory of a cell lies where a request would be met, 0 when elsewhere. */
int usmb_go_is_at(usmb_alloc_req *req, usmb_cell *cell, usmb_goerr *err);
/* Whether the memory of a cell can be mapped by other processes: USMB_AUDIENCE_*. */
int usmb_go_audience(usmb_cell *cell);

/* ---- copy ---- */

/* Where beside src is: the same context, device and kind of memory. It borrows what
   src holds: not for usmb_where_clear. */
void usmb_copy_beside(usmb_array *src, usmb_where *w);
/* A copy of src at w (NULL: beside src), C order. */
PyObject *usmb_copy_to(usmb_array *src, const usmb_where *w);
/* The same with the elements converted to dtype. */
PyObject *usmb_copy_as(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w);
/* A copy at w in which each element of less than a byte takes a byte. */
PyObject *usmb_copy_padded(usmb_array *src, const usmb_where *w);
/* A copy that DLPack consumers can take: on dev, or in the default context of
   the array's own device when dev is NULL. */
PyObject *usmb_copy_for(usmb_array *src, const usmb_dl_device *dev);
/* The memory of src, from its lowest element on, with a cell of its own and the layout
   given; place NULL: plain host memory. */
PyObject *usmb_array_rooted(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, usmb_place *place, int32_t ndim,
                            const int64_t *shape, const int64_t *strides);
/* The same memory seen as plain host memory; NULL unless the host may read. */
PyObject *usmb_as_host(usmb_array *src);
PyObject *usmb_array_copy(PyObject *self, PyObject *unused);
PyObject *usmb_array_to_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* New memory with the elements of src as dtype, in C order; bytes of the request do
   not count. Sub-byte elements are stored as src stores them where the type stays,
   else packed; padded where the request says so. */
int usmb_go_copy(usmb_alloc_req *req, usmb_array *src, usmb_dl_dtype dtype, usmb_cell **out, usmb_goerr *err);

/* ---- assignment ---- */

/* The part of an array that an index names. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	int32_t ndim;   /* modes of the part (so far) */
	int32_t axis;   /* next mode of the array, while it is found */
	int64_t offset; /* elements from the array's first */
} usmb_region;
/* The whole of an array. */
void usmb_whole(usmb_array *a, usmb_region *part);
/* Writes src, broadcast and converted, to a part of dst, which may be read-only. */
int usmb_assign_array(usmb_array *dst, const usmb_region *part, usmb_array *src);
int usmb_go_assign(usmb_array *dst, usmb_region *part, usmb_array *src, usmb_goerr *err);

#endif
