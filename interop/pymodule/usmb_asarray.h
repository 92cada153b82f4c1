/*
 * usmb_asarray.h: arrays of any object.
 */
#ifndef USMB_ASARRAY_H
#define USMB_ASARRAY_H

#include "usmb_create.h"

PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* The array of an object by SUAI, DLPack or its buffer, never a copy; TypeError
   for what has none of them. */
PyObject *usmb_take_object(PyObject *o);

/* sequence.c: the array of a number or nested sequence of numbers, at w (NULL: in
   host memory); dtype may be NULL. */
PyObject *usmb_from_sequence(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w);

#endif
