/*
 * usmb_pyresult.h: the beginning and the end of an operation that Go calls
 * (usmb_pyop_*). Each operation acquires the GIL, does its work and returns an exception
 * as part of its result. It is therefore one cgo call and may run on any thread.
 * Operations nest.
 */
#ifndef USMB_PYRESULT_H
#define USMB_PYRESULT_H

#include "usmb_pystate.h"

typedef struct usmb_pyret {
	void *val;   /* a new reference, unless the operation documents otherwise */
	int64_t num; /* an integer result */
	double re, im;
	void *exc;    /* for USMB_PYE_EXCEPTION: the exception, owned by the caller */
	int32_t code; /* USMB_PYE_* */
	int32_t kind; /* for usmb_pyop_view: USMB_PYK_* */
} usmb_pyret;

/* Declares r and st and acquires the GIL. If Python cannot be entered, it returns r. */
#define USMB_PY_BEGIN(r) \
	usmb_pyret r = {0}; \
	PyGILState_STATE st; \
	if ((r.code = usmb_py_enter(&st))) return r

/* GIL: moves the current exception to r, normalized and with its traceback. In a forked child it ends the
   process. */
void usmb_py_take_exception(usmb_pyret *r);

/* Releases the GIL. Returns r, or the current exception if ok is 0. */
static inline usmb_pyret usmb_py_end(usmb_pyret r, PyGILState_STATE st, int ok)
{
	if (!ok) usmb_py_take_exception(&r);
	usmb_py_leave(st);
	return r;
}

/* Acquire and release the GIL, for Interpreter.With. num: the argument of leave */
usmb_pyret usmb_pyop_enter(void);
void usmb_pyop_leave(int64_t state);

/* Release the GIL if it is held, and acquire it again, for Interpreter.WithoutGIL.
   val: the argument of resume, NULL if the GIL was not held */
usmb_pyret usmb_pyop_suspend(void);
void usmb_pyop_resume(void *ts);

#endif /* USMB_PYRESULT_H */
