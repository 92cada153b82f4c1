/*
 * usmb_pyerror.h: exceptions: what Go asks of one, and those that Go raises.
 */
#ifndef USMB_PYERROR_H
#define USMB_PYERROR_H

#include "usmb_pyresult.h"

/* What usmb_pyop_error_part tells about an exception. */
enum { USMB_PYX_TYPE = 0, USMB_PYX_MESSAGE, USMB_PYX_TRACEBACK, USMB_PYX_LINEAGE };

usmb_pyret usmb_pyop_error_part(void *exc, int what); /* val: malloc'ed UTF-8, num: length */
/* Drops what exc and the exceptions behind it (causes, contexts, members of groups) keep of the
   failed call: the local variables of the frames in their tracebacks, and the "obj" of an
   AttributeError. Generators that caught such an exception keep theirs. Exceptions that Python code on this thread is handling are left alone. */
void usmb_pyop_detach_error(void *exc);
/* GIL held by the caller: sets the error indicator to exc (reference kept by caller). */
void usmb_pyop_raise(void *exc);
/* An exception object of the class named "ValueError" or "module.Class", with a
   message and, when not 0, the handle of the Go error behind it; cause may be NULL. */
usmb_pyret usmb_pyop_new_error(const char *cls, const char *msg, size_t n, uintptr_t handle, void *cause);
/* num: the handle, 0 when there is none */
usmb_pyret usmb_pyop_error_handle(void *exc);

#endif /* USMB_PYERROR_H */
