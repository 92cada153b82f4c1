/*
 * usmb_pystate.h: the state of the interpreter in this process: acquiring the GIL,
 * draining dropped references, shutdown.
 */
#ifndef USMB_PYSTATE_H
#define USMB_PYSTATE_H

#include <stdatomic.h>

#include "usmb_pychild.h"

/*
 * The state of the interpreter.
 *   USMB_PY_NONE     not initialised
 *   USMB_PY_ALIVE    Python can be called
 *   USMB_PY_GONE     the atexit hook has run; Python must not be called any more, and
 *                    references that are still held are leaked
 */
enum { USMB_PY_NONE = 0, USMB_PY_ALIVE = 1, USMB_PY_GONE = 2 };
extern _Atomic int usmb_py_state;
static inline int usmb_py_alive(void)
{
	return atomic_load_explicit(&usmb_py_state, memory_order_acquire) == USMB_PY_ALIVE;
}

/*
 * A drain releases Python references that were dropped without the GIL. It is called with
 * the GIL held and must not block. It may run Python code (finalizers). It need not save the
 * error indicator: usmb_py_drain_now does.
 */
typedef void (*usmb_py_drain_fn)(void);
/* Any thread: registers a drain. Returns 0, or -1 if 16 are registered already. */
int usmb_py_add_drain(usmb_py_drain_fn fn);
/* GIL: runs all drains. */
void usmb_py_drain_now(void);
/* Any thread, without the GIL and without locks, also in deleters: requests a drain, by
   usmb_py_drain and by a pending call of the interpreter. If a drain is requested already,
   it costs one atomic operation. */
void usmb_py_kick(void);
extern _Atomic int usmb_py_drain_wanted;
/* GIL: runs all drains if one was requested. Every entry calls it, tp_dealloc included. It
   costs one memory read otherwise. */
static inline void usmb_py_drain(void)
{
	if (atomic_load_explicit(&usmb_py_drain_wanted, memory_order_relaxed)) usmb_py_drain_now();
}

/* Any thread, without the GIL: takes over one reference and releases it at the next drain.
   If Python is not alive or memory runs out, the reference is leaked. */
void usmb_py_decref_later(PyObject *o);

/* Registers a function that the atexit hook calls once, with the GIL held, before the state
   becomes USMB_PY_GONE. It must not wait for a thread that needs the GIL. Returns 0, or -1
   if 16 are registered already. */
int usmb_py_at_exit(usmb_py_drain_fn fn);

/* ---- entering ------------------------------------------------------------ */

/* Codes of usmb_py_enter and of operations. */
enum {
	USMB_PYE_OK = 0,
	USMB_PYE_EXCEPTION = 1, /* an operation raised the exception in its result */
	USMB_PYE_NONE = 2,      /* Python was not started */
	USMB_PYE_GONE = 3,      /* Python has ended */
	USMB_PYE_CHILD = 4      /* this is a forked child */
};

/* Any thread: acquires the GIL and runs requested drains. Calls nest. If it returns
   USMB_PYE_OK, the thread must call usmb_py_leave with *st, in reverse order of nesting. In a child that
   was forked meanwhile, usmb_py_leave ends the process: see usmb_py_end_child. */
int usmb_py_enter(PyGILState_STATE *st);
void usmb_py_leave(PyGILState_STATE st);

/* Any thread: reports whether this thread holds the GIL of the main interpreter. Returns 0
   if this Python has no function to read it. */
int usmb_py_holds_gil(void);

/* Set if a Go program started the interpreter. The process then goes on after the atexit hook. */
extern _Atomic int usmb_py_hosted;

/*
 * GIL: releases it for work that may call the SYCL library or take long. Calls do not nest. If the process
 * ends with the interpreter, exit waits until all threads have called usmb_py_acquire_gil.
 */
PyThreadState *usmb_py_release_gil(void);
void usmb_py_acquire_gil(PyThreadState *ts);

/* GIL: installs the atexit hook and sets the state to USMB_PY_ALIVE. Returns 0, or -1. It
   sets an exception unless Python has ended in this process before. */
int usmb_py_install(void);

/* GIL: returns a function that equals the atexit hook. */
PyObject *usmb_py_exit_hook(void);

/*
 * GIL: called first in PyInit_* of a shared library that is an extension module. It loads
 * the table from the process and calls usmb_py_install. Returns 0, or -1. It sets no
 * exception if the process has no usable Python.
 */
int usmb_py_adopt(void);

#endif /* USMB_PYSTATE_H */
