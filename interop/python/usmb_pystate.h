/*
 * usmb_pystate.h: what the C files of this package share beyond usmb_pyapi.h.
 */
#ifndef USMB_PYSTATE_H
#define USMB_PYSTATE_H

#include "usmb_pyapi.h"

/* Why an entry was refused. */
enum {
	USMB_PYE_OK = 0,
	USMB_PYE_EXCEPTION = 1, /* a Python exception; it is in the result */
	USMB_PYE_NONE = 2,      /* Python was not started */
	USMB_PYE_GONE = 3,      /* Python has ended */
	USMB_PYE_CHILD = 4      /* a forked child */
};

/* The answer of usmb_py_load in *missing for a free-threaded build. */
#define USMB_PY_FREE_THREADED "free-threaded"

/* Takes the GIL, from any thread, nestable, and drains. On USMB_PYE_OK the thread
   must call usmb_py_leave with the same *st, in reverse order of nesting. */
int usmb_py_enter(PyGILState_STATE *st);
void usmb_py_leave(PyGILState_STATE st);

/* GIL: atexit hook, fork handler, state ALIVE. 0, or -1 with an exception, or -1
   without one when Python has ended in this process before. */
int usmb_py_install(void);

/* Before initialisation: appends the registered modules to the inittab. on_import,
   if any, runs before each module's init function, with the GIL held. */
int usmb_py_append_modules(void (*on_import)(void));

#endif /* USMB_PYSTATE_H */
