/*
 * usmb_pychild.h: children made by fork without exec. The Go runtime of such a child has no threads
 * but the one that forked. C and Python code can run. Go code cannot.
 */
#ifndef USMB_PYCHILD_H
#define USMB_PYCHILD_H

#include <stdatomic.h>

#include "usmb_pyapi.h"

/* 1 in a forked child. Code that calls Go checks this first and raises RuntimeError. */
extern _Atomic int usmb_py_forked;
static inline int usmb_py_in_child(void)
{
	return atomic_load_explicit(&usmb_py_forked, memory_order_relaxed);
}

/* Called by Go during the initialization of the package: records the signal handler of the Go runtime and
   reports whether there is one. In forked children, signals with this handler get the action that they had
   before Go started. */
int usmb_py_note_go_handler(void);

/* Ignores the signals again that were ignored when the library was loaded. */
void usmb_py_ignore_again(void);

/*
 * GIL, in a forked child: ends the process where it would return to Go, as Python ends at the end of a
 * program, but by _exit. Takes over exc, the exception that would reach Go, or NULL. The status is that of a
 * SystemExit, 1 for another exception, which is printed, and 0 for NULL. Flushes sys.stdout and
 * sys.stderr; if that fails, the status is 120.
 */
_Noreturn void usmb_py_end_child(PyObject *exc);

#endif /* USMB_PYCHILD_H */
