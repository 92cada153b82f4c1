/*
 * usmb_asarray.h: arrays of any object.
 */
#ifndef USMB_ASARRAY_H
#define USMB_ASARRAY_H

#include "usmb_create.h"

PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* The array of an object by SUAI, DLPack, its buffer, NumPy's array protocols or Arrow, never
   a copy; TypeError for an object that has none of them. */
PyObject *usmb_take_object(PyObject *o);

/* Whether o's type has one of the array protocols. */
int usmb_is_exporter(PyObject *o);

/* The same; NULL without an exception where o has none of them. For callers that copy the
   elements anyway: booleans of Arrow, which are bits, are in memory of their own. */
PyObject *usmb_take_memory(PyObject *o);
/* The array of o, by all of asarray's ways. */
PyObject *usmb_array_of(PyObject *o);
/* The same of what is to be assigned to elements of type t: numbers are checked as t,
   and lie there as of a type that holds them. */
PyObject *usmb_array_of_value(PyObject *o, usmb_dl_dtype t);

/* sequence.c: the array of a number, or of a nested sequence of numbers and arrays, at
   w (NULL: beside the first array in USM, else in host memory); dtype may be NULL. */
PyObject *usmb_from_sequence(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w);
/* usmb_array_of_value of such. */
PyObject *usmb_from_numbers(PyObject *o, usmb_dl_dtype t);

#endif
