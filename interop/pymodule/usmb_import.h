/*
 * usmb_import.h: arrays from DLPack tensors.
 */
#ifndef USMB_IMPORT_H
#define USMB_IMPORT_H

#include "usmb_pyapi.h"

PyObject *usmb_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* The array of x by any of DLPack's ways, without copying. */
PyObject *usmb_import_object(PyObject *x);
/* The array of a managed tensor; takes it on success, leaves it on failure. */
PyObject *usmb_import_managed(void *managed, int versioned);

#endif
