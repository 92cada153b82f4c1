/*
 * usmb_pygo.h: Go values and Go functions held by Python objects.
 */
#ifndef USMB_PYGO_H
#define USMB_PYGO_H

#include "usmb_pyresult.h"

/* A Go handle is a number of handle.go's, not 0. Making takes it over, on failure
   too: it is freed when the Python object that holds it goes. */

/* A Python function that calls the Go function of the handle. */
usmb_pyret usmb_pyop_function(uintptr_t handle, const char *name, const char *doc);

/* GIL: a capsule that holds a handle, and the handle in one (0 and an exception in
   others). */
PyObject *usmb_py_handle_new(uintptr_t handle);
uintptr_t usmb_py_handle_of(PyObject *capsule);

/* Frees one that no object came to hold. In a forked child the Go runtime is not
   there to be told: the handle leaks. */
void usmb_py_handle_free(uintptr_t handle);

/* Exported by Go, the only calls of these files into it: runs a Go function with the
   GIL held, result a new reference or NULL with an exception set; frees a handle. */
extern PyObject *usmb_py_go_call(uintptr_t handle, PyObject *args, PyObject *kwargs);
extern void usmb_py_go_free(uintptr_t handle);

#endif /* USMB_PYGO_H */
