/*
 * usmb_pycall.h: calls that a Go context goes with: they can be interrupted from
 * another thread, and what runs inside of them finds them.
 */
#ifndef USMB_PYCALL_H
#define USMB_PYCALL_H

#include "usmb_pyresult.h"

/*
 * One call. The memory is the caller's, zeroed, and stays while either function may
 * still be called with it. Members are read and written with the GIL held.
 */
typedef struct usmb_call {
	uint64_t thread; /* Python's number of the thread that runs it */
	int32_t state;   /* USMB_CALL_* */
	int32_t asked;   /* it was interrupted, or was to be, while it ran */
	int32_t early;   /* it was to be before it ran */
	int32_t owed;    /* as far as is known, that has not been raised in its code yet */
	uint64_t chain;  /* address of its thread's list of calls, while it runs */
	int32_t memory;  /* what who allocates for the call's code has found in its context; 0 until then */
	uint64_t number; /* by which Go finds the call's context; 0: the struct is one of Go's contextCalls */
} usmb_call;

enum { USMB_CALL_WAITS = 0, USMB_CALL_RUNS, USMB_CALL_ENDED };

/* num of the result: what became of an interrupt, 0 for none. */
enum {
	USMB_CALL_ASKED = 1,  /* the exception was put to the thread */
	USMB_CALL_UNSEEN = 2, /* and taken back: no byte code ran that could raise it */
	USMB_CALL_STOPPED = 4 /* it, or one raised while it was handled, ended the call */
};

/* As usmb_pyop_call. When it has returned, nothing of its interrupt is left on the
   thread, and those of the calls around it are there still. */
usmb_pyret usmb_pyop_call_context(usmb_call *c, void *f, void **args, size_t npos, void *kwnames);

/* The same with the GIL held; nargs may have PY_VECTORCALL_ARGUMENTS_OFFSET. */
usmb_pyret usmb_py_call_with(usmb_call *c, void *f, void **args, size_t nargs, void *kwnames);

/* Any thread: raises usmbridge.Interrupted in the call's thread, once, if the call has not
   ended when this thread has the GIL. One that has still to begin is interrupted as it does. */
void usmb_pyop_interrupt(usmb_call *c);

/* GIL: the class of the exception, borrowed; NULL with an exception. */
#define USMB_PY_INTERRUPTED "usmbridge.Interrupted"
PyObject *usmb_py_interrupted(void);

/* Any thread, no GIL: the innermost call on this thread, NULL for none. */
usmb_call *usmb_py_call_current(void);

/*
 * GIL: around a function of Go's that Python calls. An interrupt of the call that was to
 * be raised before, or was put meanwhile, is put again if the function has swallowed it:
 * it is for the code of the call. failed: the function raises. leave is given what enter
 * returned.
 */
int usmb_py_call_go_enter(void);
void usmb_py_call_go_leave(int outer, int failed);

/* GIL: no interrupt is raised in what this thread runs in between, except one that is put
   meanwhile. unhold is given what hold returned. */
int usmb_py_call_hold(void);
void usmb_py_call_unhold(int held);

#endif /* USMB_PYCALL_H */
