/*
 * usmb_pyresult.h: how an operation that Go asks of Python begins and ends. Each
 * (usmb_pyop_*) takes the GIL, nestable, does its work and turns an exception into a
 * result, so that it is one cgo call and may come from any goroutine.
 */
#ifndef USMB_PYRESULT_H
#define USMB_PYRESULT_H

#include "usmb_pystate.h"

typedef struct usmb_pyret {
	void *val;   /* a new reference, or memory to free, as the operation says */
	int64_t num; /* an integer result */
	double re, im;
	void *exc;    /* code USMB_PYE_EXCEPTION: the exception, owned by the caller */
	int32_t code; /* USMB_PYE_* */
	int32_t kind; /* of usmb_pyop_view: USMB_PYK_* */
} usmb_pyret;

/* Declares r and st and takes the GIL; returns r at once when that is refused. */
#define USMB_PY_BEGIN(r) \
	usmb_pyret r = {0}; \
	PyGILState_STATE st; \
	if ((r.code = usmb_py_enter(&st))) return r

/* GIL: makes r the current exception, normalized and with its traceback; cleared. */
void usmb_py_take_exception(usmb_pyret *r);

/* Gives the GIL up and returns r, or the current exception unless ok. */
static inline usmb_pyret usmb_py_end(usmb_pyret r, PyGILState_STATE st, int ok)
{
	if (!ok) usmb_py_take_exception(&r);
	usmb_py_leave(st);
	return r;
}

/* The GIL over several operations, for Interpreter.With, and given up inside that. */
usmb_pyret usmb_pyop_enter(void); /* num: the state for leave */
void usmb_pyop_leave(int64_t state);
usmb_pyret usmb_pyop_suspend(void); /* val: thread state, NULL when the GIL was not held */
void usmb_pyop_resume(void *ts);

#endif /* USMB_PYRESULT_H */
