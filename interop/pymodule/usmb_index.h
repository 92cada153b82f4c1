/*
 * usmb_index.h: views: basic indexing, reshape, transpose.
 */
#ifndef USMB_INDEX_H
#define USMB_INDEX_H

#include "usmb_array.h"

/* The part of an array that an index names. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	int32_t ndim;   /* modes of the part (so far) */
	int32_t axis;   /* next mode of the array, while it is found */
	int64_t offset; /* elements from the array's first */
} usmb_region;

int usmb_array_region(usmb_array *a, PyObject *key, usmb_region *out);
PyObject *usmb_array_subscript(PyObject *self, PyObject *key);
PyObject *usmb_array_reshape(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_transpose(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *usmb_array_T(PyObject *self, void *closure);
PyObject *usmb_array_mT(PyObject *self, void *closure);

#endif
