/*
 * usmb_pymodules.h: modules that are built in to the interpreter this process starts.
 */
#ifndef USMB_PYMODULES_H
#define USMB_PYMODULES_H

#include "usmb_pyapi.h"

/* Puts a built-in module in front of initialisation; name and init must live for
   ever. 0, or -1: too many, or Python is initialised already. */
int usmb_py_add_module(const char *name, PyObject *(*init)(void));

/* Before initialisation: appends the registered modules to the inittab. on_import,
   if any, runs before each module's init function, with the GIL held. */
int usmb_py_append_modules(void (*on_import)(void));

#endif /* USMB_PYMODULES_H */
