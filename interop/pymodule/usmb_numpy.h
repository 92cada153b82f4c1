/*
 * usmb_numpy.h: what NumPy asks of an array of others, and its element types.
 */
#ifndef USMB_NUMPY_H
#define USMB_NUMPY_H

#include "usmb_array.h"

PyObject *usmb_array_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw); /* __array__ */
PyObject *usmb_array_function(PyObject *self, PyObject *const *args, Py_ssize_t n);            /* __array_function__ */
PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused);
/* The array of an ndarray whose element type NumPy has from ml_dtypes, and so gives
   by no protocol, without a copy. NULL without an exception where o is none. */
PyObject *usmb_import_ml(PyObject *o);
/* The array of an object that has one of NumPy's own protocols (__array_interface__,
   __array_struct__, __array__), through NumPy, without a copy of ours. NULL without an
   exception where o has none, or NumPy is not there. */
PyObject *usmb_import_numpy_view(PyObject *o);

#endif
