/*
 * create.h: new memory and its place, copies, assignment.
 */
#ifndef USMB_PYMODULE_CREATE_H
#define USMB_PYMODULE_CREATE_H

#include "support.h"
#include "sycl.h"
#include "array.h"

/* ---- create ---- */

/* The place of new memory. */
typedef struct {
	usmb_syclref queue; /* form NONE: device decides */
	PyObject *device;   /* owned str with a filter string, or NULL */
	int kind;           /* USMB_USM_*, or 0: the device's default */
	int host;           /* 1: the host backend */
	int audience;       /* USMB_AUDIENCE_*: the access of other processes */
} usmb_where;

/* The names of USMB_USM_DEVICE to USMB_USM_HOST at these indices. */
extern const char *const usmb_kind_names[4];
/* The place of host memory. */
extern const usmb_where usmb_on_host;

/* The values of interprocess=: None or False, True, "readonly". The numbers are those of package
   segment. */
enum { USMB_AUDIENCE_NONE = 0, USMB_AUDIENCE_WRITE = 1, USMB_AUDIENCE_READ = 2 };
PyObject *usmb_py_set_make_room(PyObject *m, PyObject *function);

PyObject *usmb_py_empty(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_zeros(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* The contents of new memory: undefined, zeros, or to be written by the caller at once. Only the
   last two wait for work that the memory's last user left pending. */
typedef enum { USMB_ANY, USMB_ZEROS, USMB_WRITTEN } usmb_content;
/* New memory at w, laid out in C (or Fortran) order. */
PyObject *usmb_new_array(const usmb_where *w, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                         usmb_content content);
/* A cell that owns new memory of malloc, for which Go is not needed. */
usmb_cell *usmb_new_block(int64_t bytes);
void usmb_where_clear(usmb_where *w);
/* An array of all of new memory; takes over the cell. extra as for usmb_array_settle. */
PyObject *usmb_array_dense(usmb_cell *cell, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                           uint32_t extra);
/* Bytes of a dense array; -1 with ValueError when they cannot be addressed. */
int64_t usmb_dense_bytes(int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype);
/* Reads the usm_type, sycl_queue and device arguments, each of which may be NULL. */
int usmb_parse_where(PyObject *kind, PyObject *queue, PyObject *dev, usmb_where *w);
/* The defaults that set_default has set in the current context. The references are owned. */
typedef struct {
	PyObject *usm_type, *device, *dtype; /* NULL or None: not set */
} usmb_defaults;
/* Makes get the source of the defaults: a function that returns a tuple of the three. */
PyObject *usmb_py_defaults_from(PyObject *m, PyObject *get);
void usmb_defaults_clear(void);
/* Completes a place: the device and the kind that the caller has not given are the defaults. */
int usmb_default_place(const usmb_defaults *d, usmb_where *w);
/* The default real element type at a place: that of d, else float64, or float32 if the device has
   no double precision. */
int usmb_default_real(const usmb_defaults *d, const usmb_where *w, usmb_dl_dtype *t);
int usmb_defaults_read(usmb_defaults *d);
void usmb_defaults_drop(usmb_defaults *d);
/* Reads the device= argument: any form that usmb_syclref_device accepts. */
int usmb_parse_device(PyObject *o, usmb_where *w);
/* Whether a device was given. */
static inline int usmb_has_device(const usmb_where *w)
{
	return w->device || w->queue.form != USMB_FORM_NONE;
}
/* Whether the memory of an array is at w: the same device and kind of memory, and if w has a queue,
   the queue's context. */
int usmb_is_at(usmb_array *a, const usmb_where *w);
/* A request for memory. Text is borrowed and may lack a terminator. */
typedef struct {
	int64_t bytes;
	int32_t form;     /* USMB_FORM_*; NONE: filter decides */
	int32_t kind;     /* USMB_USM_*, 0: the default, shared memory */
	int32_t host;     /* 1: the host backend */
	int32_t padded;   /* 1: a sub-byte element takes a byte */
	int32_t shared;   /* written by usmb_go_alloc: 1 for memory of one of the shared pools */
	int32_t audience; /* USMB_AUDIENCE_*; only for usmb_go_alloc */
	int32_t arena;    /* 1: the context of the current call from Go carries an arena */
	void *ref;        /* queue or context, borrowed */
	char *filter;     /* filter string of form FILTER or of the device; NULL: the default device */
	uint64_t nfilter;
} usmb_alloc_req;
int usmb_go_alloc(usmb_alloc_req *req, usmb_cell **out, usmb_goerr *err);
/* Whether the device of a request computes with 64-bit floating-point numbers: 1 or 0, -1 with
   *err. */
int usmb_go_has_double(usmb_alloc_req *req, usmb_goerr *err);
/* Whether the context of the current call from Go carries an arena. */
int usmb_go_call_arena(void);
/* 1 if the memory of a cell is where a request would put it, else 0. */
int usmb_go_is_at(usmb_alloc_req *req, usmb_cell *cell, usmb_goerr *err);
/* Other processes' access to the memory of a cell: USMB_AUDIENCE_*. */
int usmb_go_audience(usmb_cell *cell);

/* ---- copy ---- */

/* The place of src: its context, device and kind of memory. The references are borrowed from src:
   do not call usmb_where_clear. */
void usmb_copy_beside(usmb_array *src, usmb_where *w);
/* A copy of src at w (NULL: at the place of src) in C order. */
PyObject *usmb_copy_to(usmb_array *src, const usmb_where *w);
/* The same with the elements converted to dtype. */
PyObject *usmb_copy_as(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w);
/* A copy at w in which each sub-byte element takes a byte. */
PyObject *usmb_copy_padded(usmb_array *src, const usmb_where *w);
/* A copy that DLPack consumers can import: on dev, or if dev is NULL, in the default context of the
   array's own device. */
PyObject *usmb_copy_for(usmb_array *src, const usmb_dl_device *dev);
/* A view of the memory of src, from its lowest element on, with a cell of its own. place NULL:
   plain host memory. */
PyObject *usmb_array_rooted(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, usmb_place *place, int32_t ndim,
                            const int64_t *shape, const int64_t *strides);
/* Takes over an imported array on memory that other arrays may have described before, and returns it, or an array with a
   cell of its own if the position of its first element in that memory is not a multiple of the element size: Go counts
   positions in elements. */
PyObject *usmb_array_recounted(usmb_array *a);
static inline PyObject *usmb_array_counted(usmb_array *a)
{
	if (__builtin_expect(a->first == (char *)a->cell->data, 1)) return (PyObject *)a;
	return usmb_array_recounted(a);
}
/* Raises error for copy=False where why needs a copy; returns -1. */
int usmb_no_copy(PyObject *error, const char *why);
/* Returns src itself if it has the requested type and place, else a view or, unless copy is 0, a copy;
   see usmb_parse_copy. dtype and w may be NULL: any. error is raised if copy is 0 but needed. */
PyObject *usmb_adapt(usmb_array *src, const usmb_dl_dtype *dtype, const usmb_where *w, int copy, PyObject *error);

PyObject *usmb_array_copy(PyObject *self, PyObject *unused);
PyObject *usmb_array_to_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* New memory with the elements of src converted to dtype, in C order; ignores bytes in the request.
   Sub-byte elements keep their storage if the type stays, else they are packed, or padded if the
   request says so. */
int usmb_go_copy(usmb_alloc_req *req, usmb_array *src, usmb_dl_dtype dtype, usmb_cell **out, usmb_goerr *err);

/* ---- assignment ---- */

/* The part of an array that an index selects. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	int32_t ndim;   /* axes of the part so far */
	int32_t axis;   /* next axis of the array; used by the parser only */
	int64_t offset; /* in elements, from the first element of the array */
} usmb_region;
/* The whole of an array. */
void usmb_whole(usmb_array *a, usmb_region *part);
/* Writes src, broadcast and converted, to a part of dst, which may be read-only. */
int usmb_assign_array(usmb_array *dst, const usmb_region *part, usmb_array *src);
int usmb_go_assign(usmb_array *dst, usmb_region *part, usmb_array *src, usmb_goerr *err);

#endif
