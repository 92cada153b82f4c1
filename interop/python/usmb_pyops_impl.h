/* usmb_pyops_impl.h: how the operations of usmb_pyops.h begin and end. */
#ifndef USMB_PYOPS_IMPL_H
#define USMB_PYOPS_IMPL_H

#include "usmb_pyops.h"

/* Declares r and st and takes the GIL; returns r at once when that is refused. */
#define BEGIN(r) \
	usmb_pyret r = {0}; \
	PyGILState_STATE st; \
	if ((r.code = usmb_py_enter(&st))) return r

/* The current exception as one normalized object with its traceback; cleared. */
PyObject *usmb_py_take_exception(void);

/* The attribute of an exception that holds the Go error behind it. */
#define USMB_PY_GO_ERROR "__go_error__"

/* A capsule that owns a Go handle (freed on failure too), and the handle in one. */
PyObject *usmb_py_handle_new(uintptr_t handle);
uintptr_t usmb_py_handle_of(PyObject *capsule);

/* Go's side (exported): runs a Go function with the GIL held, result a new
   reference or NULL with an exception set; frees a handle. */
extern PyObject *usmb_py_go_call(uintptr_t handle, PyObject *args, PyObject *kwargs);
extern void usmb_py_go_free(uintptr_t handle);

static inline usmb_pyret end(usmb_pyret r, PyGILState_STATE st, int ok)
{
	if (!ok) {
		r.val = NULL;
		r.exc = usmb_py_take_exception();
		r.code = USMB_PYE_EXCEPTION;
	}
	usmb_py_leave(st);
	return r;
}

#endif /* USMB_PYOPS_IMPL_H */
