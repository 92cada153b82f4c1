/*
 * usmb_element.h: elements as Python's numbers.
 */
#ifndef USMB_ELEMENT_H
#define USMB_ELEMENT_H

#include "usmb_array.h"

/* item, tolist and the conversions of one element. */
PyObject *usmb_array_item(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *usmb_array_tolist(PyObject *self, PyObject *unused);
PyObject *usmb_array_int(PyObject *self);
PyObject *usmb_array_float(PyObject *self);
PyObject *usmb_array_complex(PyObject *self, PyObject *unused);
PyObject *usmb_array_index(PyObject *self);
int usmb_array_bool(PyObject *self);

#endif
