/*
 * usmb_pickle.h: pickles.
 */
#ifndef USMB_PICKLE_H
#define USMB_PICKLE_H

#include "usmb_pyapi.h"

PyObject *usmb_array_reduce(PyObject *self, PyObject *protocol); /* __reduce_ex__ */
PyObject *usmb_py_unpickle(PyObject *m, PyObject *const *args, Py_ssize_t n);

#endif
