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

enum {
	USMB_NUMPY_NONE,
	USMB_NUMPY_SHARES,  /* __array_interface__ or __array_struct__, which describe memory */
	USMB_NUMPY_MAY_COPY /* __array__ only */
};
/* Which of NumPy's array protocols o has: USMB_NUMPY_NONE also where NumPy cannot be imported; -1 with
   an exception. */
int usmb_numpy_protocol(PyObject *o);
/* The ndarray of o.__array__(copy=False), which is on the memory of o. A ValueError for an __array__
   that does not take copy. */
PyObject *usmb_numpy_view(PyObject *o);
/* numpy.asarray(o), which may copy where o has __array__ only. */
PyObject *usmb_numpy_asarray(PyObject *o);

#endif
