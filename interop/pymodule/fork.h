/*
 * fork.h: what happens at a fork by Python.
 */
#ifndef USMB_PYMODULE_FORK_H
#define USMB_PYMODULE_FORK_H

#include "support.h"

/* Registers the functions of this file by os.register_at_fork. */
int usmb_fork_register(void);
/* _fork_limit(seconds): sets the time limit, for tests. Returns the earlier one. */
PyObject *usmb_py_fork_limit(PyObject *m, PyObject *seconds);

#endif
