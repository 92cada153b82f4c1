/*
 * usmb_pyobject.h: operations on objects: attributes, items, calls and code.
 */
#ifndef USMB_PYOBJECT_H
#define USMB_PYOBJECT_H

#include "usmb_pyresult.h"

usmb_pyret usmb_pyop_incref(void *o);
void usmb_pyop_decref(void *o); /* leaks the reference after the end of Python */

usmb_pyret usmb_pyop_getattr(void *o, const char *name, size_t n);
usmb_pyret usmb_pyop_setattr(void *o, const char *name, size_t n, void *v);
usmb_pyret usmb_pyop_getitem(void *o, void *key);
usmb_pyret usmb_pyop_setitem(void *o, void *key, void *v); /* v NULL: delete */
usmb_pyret usmb_pyop_len(void *o);
usmb_pyret usmb_pyop_iter(void *o);
usmb_pyret usmb_pyop_next(void *it); /* val: NULL without an exception at the end */
/* args: npos positional arguments, then the values of kwnames (a tuple, or NULL) */
usmb_pyret usmb_pyop_call(void *f, void **args, size_t npos, void *kwnames);
/* args[0]: the object; npos includes it */
usmb_pyret usmb_pyop_method(const char *name, size_t n, void **args, size_t npos, void *kwnames);

usmb_pyret usmb_pyop_import(const char *name);
usmb_pyret usmb_pyop_builtins(void);
/* code: n bytes and a NUL. A NUL among the n bytes is a ValueError. */
usmb_pyret usmb_pyop_run(const char *code, size_t n, const char *filename, int start, void *globals);

#endif /* USMB_PYOBJECT_H */
