/*
 * usmb_dtype.h: element types as Python's objects.
 */
#ifndef USMB_DTYPE_H
#define USMB_DTYPE_H

#include "usmb_support.h"

/* The object for an element type: its name, a str that also equals NumPy's objects for
   it. The same one each time. */
PyObject *usmb_dtype_object(usmb_dl_dtype t);
/* Reads a dtype argument: a name, a type string, or a type or dtype of NumPy or ml_dtypes in
   this machine's byte order; NULL or None: dflt. */
int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out);
/* Reports whether o, such as a NumPy dtype, has this machine's byte order or none: 1 or 0, -1
   with an exception. */
int usmb_native_order(PyObject *o);
int usmb_dtype_register(PyObject *module);

#endif
