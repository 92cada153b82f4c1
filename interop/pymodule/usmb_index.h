/*
 * usmb_index.h: views: basic indexing, reshape, transpose.
 */
#ifndef USMB_INDEX_H
#define USMB_INDEX_H

#include "usmb_pyapi.h"

PyObject *usmb_array_subscript(PyObject *self, PyObject *key);
PyObject *usmb_array_reshape(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_transpose(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *usmb_array_T(PyObject *self, void *closure);

#endif
