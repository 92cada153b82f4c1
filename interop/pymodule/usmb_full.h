/*
 * usmb_full.h: new arrays with a value, or like others.
 */
#ifndef USMB_FULL_H
#define USMB_FULL_H

#include "usmb_pyapi.h"

PyObject *usmb_py_ones(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_full(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_empty_like(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_zeros_like(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_ones_like(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_full_like(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);

#endif
