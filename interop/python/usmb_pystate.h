/*
 * usmb_pystate.h: the interpreter as this process has it: whether it can be called,
 * entering and leaving it, what waits to be drained, its end, forked children.
 */
#ifndef USMB_PYSTATE_H
#define USMB_PYSTATE_H

#include <stdatomic.h>

#include "usmb_pyapi.h"

/*
 * The state word.
 *   USMB_PY_NONE     no Python in the process, or not initialised yet
 *   USMB_PY_ALIVE    calls are possible
 *   USMB_PY_GONE     the atexit hook has run: nothing may call Python any more;
 *                    what would need it is leaked on purpose
 */
enum { USMB_PY_NONE = 0, USMB_PY_ALIVE = 1, USMB_PY_GONE = 2 };
extern _Atomic int usmb_py_state;
static inline int usmb_py_alive(void)
{
	return atomic_load_explicit(&usmb_py_state, memory_order_acquire) == USMB_PY_ALIVE;
}

/* 1 in a child made by fork() without exec since Python started here. Code that
   would enter Go checks this first and raises RuntimeError: the Go runtime of a
   forked child has no threads. C-only work stays allowed. One memory read. */
extern _Atomic int usmb_py_forked;
static inline int usmb_py_in_child(void)
{
	return atomic_load_explicit(&usmb_py_forked, memory_order_relaxed);
}

/*
 * Drains: functions that give up Python references which were dropped where the
 * GIL could not be taken. Each is called with the GIL held and must return soon;
 * it may run Python code (finalizers) and may be called again from inside that.
 * A drain must save nothing of the error indicator: usmb_py_drain does that.
 */
typedef void (*usmb_py_drain_fn)(void);
int usmb_py_add_drain(usmb_py_drain_fn fn); /* any thread; 0, or -1 when 16 are registered already */
void usmb_py_drain_now(void);               /* GIL: runs all drains */
/* Any thread, no GIL, no lock, async-safe for deleters: notes that there is
   something to drain, and asks the interpreter (Py_AddPendingCall) to do it at its
   next opportunity. Costs one atomic when a request is already pending. */
void usmb_py_kick(void);
extern _Atomic int usmb_py_drain_wanted;
/* GIL: what every entry calls, dealloc included; one memory read when idle. */
static inline void usmb_py_drain(void)
{
	if (atomic_load_explicit(&usmb_py_drain_wanted, memory_order_relaxed)) usmb_py_drain_now();
}

/* Any thread, no GIL: takes over one reference and gives it up at the next drain.
   Allocates a list node; where there is none to be had, or Python is not alive, the
   reference is leaked. */
void usmb_py_decref_later(PyObject *o);

/* Functions called once, with the GIL held, by the atexit hook, before the state
   becomes USMB_PY_GONE (stop reapers and the like); they must not wait for a thread
   that needs the GIL. 0, or -1 when 16 are there. */
int usmb_py_at_exit(usmb_py_drain_fn fn);

/* ---- entering ------------------------------------------------------------ */

/* Why an entry was refused. */
enum {
	USMB_PYE_OK = 0,
	USMB_PYE_EXCEPTION = 1, /* a Python exception; it is in the result */
	USMB_PYE_NONE = 2,      /* Python was not started */
	USMB_PYE_GONE = 3,      /* Python has ended */
	USMB_PYE_CHILD = 4      /* a forked child */
};

/* Takes the GIL, from any thread, nestable, and drains. On USMB_PYE_OK the thread
   must call usmb_py_leave with the same *st, in reverse order of nesting. */
int usmb_py_enter(PyGILState_STATE *st);
void usmb_py_leave(PyGILState_STATE st);

/* Whether this thread holds the GIL, as a thread of the main interpreter. Any thread;
   0 where it cannot be told. */
int usmb_py_holds_gil(void);

/* GIL: atexit hook, fork handler, state ALIVE. 0, or -1 with an exception, or -1
   without one when Python has ended in this process before. */
int usmb_py_install(void);

/*
 * For a shared library imported as an extension module (a c-shared build): called
 * first thing in PyInit_*, GIL held. Loads the table from the process, marks Python
 * as alive, installs the atexit hook and the fork handlers. 0, or -1 when the
 * process has no usable Python (no exception can be set then).
 */
int usmb_py_adopt(void);

#endif /* USMB_PYSTATE_H */
