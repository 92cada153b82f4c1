/*
 * usmb_pyerror.h: reading exceptions for Go, and raising exceptions for Go errors.
 */
#ifndef USMB_PYERROR_H
#define USMB_PYERROR_H

#include "usmb_pyresult.h"

/* Parts of an exception: the name of its class, its message, its traceback, and the names of
   its class and base classes, one per line. */
enum { USMB_PYX_TYPE = 0, USMB_PYX_MESSAGE, USMB_PYX_TRACEBACK, USMB_PYX_LINEAGE };

usmb_pyret usmb_pyop_error_part(void *exc, int part); /* val: UTF-8 to free; num: length */

/* Clears the local variables of the frames in the tracebacks of exc and of the exceptions
   behind it (causes, contexts, members of groups), and the obj of AttributeErrors among them.
   Generators that caught an exception keep their variables. Exceptions that Python code on
   this thread is handling are not cleared. */
void usmb_pyop_detach_error(void *exc);

/* GIL: sets the error indicator to exc, with a new reference. */
void usmb_pyop_raise(void *exc);

/* val: a new exception of the class "ValueError" or "module.Class". handle: that of its Go
   error, or 0. cause: an exception, or NULL. */
usmb_pyret usmb_pyop_new_error(const char *cls, const char *msg, size_t n, uintptr_t handle, void *cause);

/* num: the handle of the Go error, or 0 */
usmb_pyret usmb_pyop_error_handle(void *exc);

#endif /* USMB_PYERROR_H */
