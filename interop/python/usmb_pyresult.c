//go:build linux && cgo

/* Entering Python for several operations, and exceptions as results. */
#include "usmb_pyresult.h"

/* Returns the current exception as one normalized object with its traceback, and clears it. */
static PyObject *take_exception(void)
{
	if (usmb_py.PyErr_GetRaisedException) {
		PyObject *exc = usmb_py.PyErr_GetRaisedException();
		if (exc) return exc;
	} else {
		PyObject *type, *value, *tb;
		PyErr_Fetch(&type, &value, &tb);
		if (type) {
			PyErr_NormalizeException(&type, &value, &tb);
			if (tb && value) PyException_SetTraceback(value, tb);
			Py_XDECREF(type);
			Py_XDECREF(tb);
			if (value) return value;
		}
	}
	return PyObject_CallFunction(PyExc_SystemError, "s", "a call failed without an exception");
}

void usmb_py_take_exception(usmb_pyret *r)
{
	r->val = NULL;
	r->exc = take_exception();
	if (usmb_py_in_child()) usmb_py_end_child(r->exc);
	r->code = USMB_PYE_EXCEPTION;
}

usmb_pyret usmb_pyop_enter(void)
{
	usmb_pyret r = {0};
	PyGILState_STATE st;
	r.code = usmb_py_enter(&st);
	r.num = r.code ? 0 : st;
	return r;
}

void usmb_pyop_leave(int64_t state)
{
	usmb_py_leave((PyGILState_STATE)state);
}

usmb_pyret usmb_pyop_suspend(void)
{
	usmb_pyret r = {0};
	if (usmb_py_holds_gil()) r.val = PyEval_SaveThread();
	return r;
}

void usmb_pyop_resume(void *ts)
{
	if (ts) PyEval_RestoreThread(ts);
}
