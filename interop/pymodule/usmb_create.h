/*
 * usmb_create.h: new memory, and where it is wanted.
 */
#ifndef USMB_CREATE_H
#define USMB_CREATE_H

#include "usmb_array.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

/* Where new memory is wanted. */
typedef struct {
	usmb_syclref queue; /* form NONE: the device decides */
	PyObject *device;   /* owned str with a filter string, or NULL */
	int kind;           /* USMB_USM_*, or 0: what the device's default is */
	int host;           /* 1: the host backend */
} usmb_where;

PyObject *usmb_py_empty(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_zeros(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* New memory at w, laid out in C (or Fortran) order. */
PyObject *usmb_new_array(const usmb_where *w, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                         int zero);
void usmb_where_clear(usmb_where *w);
/* An array of the whole of new memory; takes over the cell. extra as for
   usmb_array_settle. */
PyObject *usmb_array_dense(usmb_cell *cell, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                           uint32_t extra);
/* Bytes of a dense array; -1 with ValueError when they cannot be addressed. */
int64_t usmb_dense_bytes(int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype);
/* Reads the usm_type, sycl_queue and device arguments, each NULL where there is none. */
int usmb_parse_where(PyObject *kind, PyObject *queue, PyObject *dev, usmb_where *w);
/* Reads the device= argument: a Device, a filter string. */
int usmb_parse_device(PyObject *o, usmb_where *w);
/* Reads a dtype argument; NULL or None: dflt. */
int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out);
/* Whether the array already lies where w, which names no queue, says. */
int usmb_is_at(usmb_array *a, const usmb_where *w);

/* Memory that is wanted. Text is borrowed and may lack a terminator. */
typedef struct {
	int64_t bytes;
	int32_t form; /* USMB_FORM_*, NONE: device decides */
	int32_t kind; /* USMB_USM_*, 0: device memory */
	int32_t host; /* 1: the host backend */
	int32_t reserved;
	void *ref;    /* queue or context, borrowed */
	char *filter; /* filter string of form FILTER or of the device, NULL: the default device */
	uint64_t nfilter;
} usmb_alloc_req;
int usmb_go_alloc(usmb_alloc_req *req, usmb_cell **out, usmb_goerr *err);
/* 1 when the memory of a cell lies where a request would be met, 0 when elsewhere. */
int usmb_go_is_at(usmb_alloc_req *req, usmb_cell *cell, usmb_goerr *err);
/* The request of w, whose texts it borrows; bytes are left 0. -1 with an exception. */
int usmb_request(const usmb_where *w, usmb_alloc_req *req);

#endif
