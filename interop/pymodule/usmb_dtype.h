/*
 * usmb_dtype.h: element types as Python's objects.
 */
#ifndef USMB_DTYPE_H
#define USMB_DTYPE_H

#include "usmb_support.h"

/* The object for an element type: its name, a str that also equals NumPy's objects for
   it. The same one each time. */
PyObject *usmb_dtype_object(usmb_dl_dtype t);
/* Reads a dtype argument: a name, a type string, NumPy's or ml_dtypes' objects; NULL or
   None: dflt. */
int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out);
int usmb_dtype_register(PyObject *module);

#endif
