/*
 * usmb_pyobject.h: operations on objects: attributes, items, calls, code,
 * capsules.
 */
#ifndef USMB_PYOBJECT_H
#define USMB_PYOBJECT_H

#include "usmb_pyresult.h"

usmb_pyret usmb_pyop_incref(void *o);
void usmb_pyop_decref(void *o); /* leaks when Python is gone */

usmb_pyret usmb_pyop_getattr(void *o, const char *name, size_t n);
usmb_pyret usmb_pyop_setattr(void *o, const char *name, size_t n, void *v);
usmb_pyret usmb_pyop_getitem(void *o, void *key);
usmb_pyret usmb_pyop_setitem(void *o, void *key, void *v); /* v NULL: delete */
usmb_pyret usmb_pyop_len(void *o);
usmb_pyret usmb_pyop_iter(void *o);
usmb_pyret usmb_pyop_next(void *it); /* val NULL without error: the end */
/* args: positional ones, then the values of kwnames (a tuple, or NULL) */
usmb_pyret usmb_pyop_call(void *f, void **args, size_t npos, void *kwnames);
/* args[0] is the object, npos counts it */
usmb_pyret usmb_pyop_method(const char *name, size_t n, void **args, size_t npos, void *kwnames);

usmb_pyret usmb_pyop_import(const char *name);
usmb_pyret usmb_pyop_builtins(void); /* val: new reference */
/* code is terminated, and n bytes long: a NUL in them is an error. */
usmb_pyret usmb_pyop_run(const char *code, size_t n, const char *filename, int start, void *globals);
usmb_pyret usmb_pyop_sys_set(const char *name, void *v); /* an attribute of sys */

usmb_pyret usmb_pyop_capsule(void *p, const char *name); /* name must live for ever */
usmb_pyret usmb_pyop_capsule_pointer(void *o, const char *name);

#endif /* USMB_PYOBJECT_H */
