/*
 * usmb_pycall.h: calls with a Go context. Another thread can interrupt such a call, and
 * Go functions that it calls find its context.
 *
 * An interrupt raises usmbridge.Interrupted in the thread of the call, by
 * PyThreadState_SetAsyncExc. A thread has one pending exception at most.
 */
#ifndef USMB_PYCALL_H
#define USMB_PYCALL_H

#include "usmb_pyresult.h"

/*
 * One call. The caller allocates it, zeroed, and keeps it until no function is called with
 * it any more. Members are read and written with the GIL held.
 */
typedef struct usmb_call {
	uint64_t thread; /* Python's identifier of the thread that runs the call */
	int32_t state;   /* USMB_CALL_WAITS, USMB_CALL_RUNS or USMB_CALL_ENDED */
	int32_t asked;   /* the exception was set while the call ran */
	int32_t early;   /* an interrupt was requested before the call ran */
	int32_t owed;    /* the exception was set and, as far as known, is not raised yet */
	uint64_t chain;  /* while the call runs, the address of the frame list of its thread */
	int32_t memory;  /* cached by interop/pymodule: whether the context has an arena; 0: unknown */
	uint64_t number; /* Go's key of the context; 0: the struct is in a contextCall of Go */
} usmb_call;

enum { USMB_CALL_WAITS = 0, USMB_CALL_RUNS, USMB_CALL_ENDED };

/* Bits of num of the result: the outcome of an interrupt, 0 if there was none. */
enum {
	USMB_CALL_ASKED = 1,  /* the exception was set */
	USMB_CALL_UNSEEN = 2, /* the exception was removed at the end: no byte code could raise it */
	USMB_CALL_STOPPED = 4 /* the call ended by the exception, or by one raised while it was handled */
};

/* Calls f as usmb_pyop_call does. When it returns, its interrupt is not pending on the thread
   any more, but the interrupts of enclosing calls still are. */
usmb_pyret usmb_pyop_call_context(usmb_call *c, void *f, void **args, size_t npos, void *kwnames);

/* GIL: the same. nargs may include PY_VECTORCALL_ARGUMENTS_OFFSET. */
usmb_pyret usmb_py_call_with(usmb_call *c, void *f, void **args, size_t nargs, void *kwnames);

/* Any thread: interrupts a call, at most once, unless the call has ended when this thread has
   acquired the GIL. A call that has not begun is interrupted when it begins. */
void usmb_pyop_interrupt(usmb_call *c);

/* GIL: returns the class of the exception, borrowed, or NULL with an exception. */
#define USMB_PY_INTERRUPTED "usmbridge.Interrupted"
PyObject *usmb_py_interrupted(void);

/* Any thread, without the GIL: returns the innermost call on this thread, or NULL. */
usmb_call *usmb_py_call_current(void);

/*
 * GIL: called before and after a Go function that Python calls. If an interrupt of the call
 * was pending before or was set meanwhile, and the Go function discarded the exception, leave
 * sets it again, so that the code of the call receives it. outer: the result of enter.
 * failed: the function raises an exception.
 */
int usmb_py_call_go_enter(void);
void usmb_py_call_go_leave(int outer, int failed);

/* GIL: between hold and unhold, no interrupt is raised on this thread, unless it is set
   meanwhile. held: the result of hold. */
int usmb_py_call_hold(void);
void usmb_py_call_unhold(int held);

#endif /* USMB_PYCALL_H */
