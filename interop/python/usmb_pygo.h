/*
 * usmb_pygo.h: Go values and Go functions held by Python objects.
 */
#ifndef USMB_PYGO_H
#define USMB_PYGO_H

#include "usmb_pyresult.h"

/* A handle is a number, not 0, that newHandle of callback.go returned. The Python object that
   holds it frees it. Functions that create such an object take over the handle, also if they
   fail. */

/* val: a Python function that calls the Go function of the handle */
usmb_pyret usmb_pyop_function(uintptr_t handle, const char *name, const char *doc);

/* GIL: returns a new capsule that holds a handle, or NULL with an exception. */
PyObject *usmb_py_handle_new(uintptr_t handle);

/* GIL: returns the handle in a capsule, or 0 with an exception. */
uintptr_t usmb_py_handle_of(PyObject *capsule);

/* Frees a handle. In a forked child, Go cannot be called, and the handle leaks. */
void usmb_py_handle_free(uintptr_t handle);

/* Exported by Go. GIL: runs a Go function and returns a new reference, or NULL with an
   exception. */
extern PyObject *usmb_py_go_call(uintptr_t handle, PyObject *args, PyObject *kwargs);
/* Exported by Go: frees a handle. */
extern void usmb_py_go_free(uintptr_t handle);

#endif /* USMB_PYGO_H */
