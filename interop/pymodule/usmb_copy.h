/*
 * usmb_copy.h: copies and conversions.
 */
#ifndef USMB_COPY_H
#define USMB_COPY_H

#include "usmb_array.h"
#include "usmb_create.h"

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

#endif
