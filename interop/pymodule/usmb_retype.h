/*
 * usmb_retype.h: the elements as another type: view, astype; and as_readonly.
 */
#ifndef USMB_RETYPE_H
#define USMB_RETYPE_H

#include "usmb_pyapi.h"

PyObject *usmb_array_retype(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw); /* view */
PyObject *usmb_array_astype(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_array_as_readonly(PyObject *self, PyObject *unused);

#endif
