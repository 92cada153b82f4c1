/* Compiled, with warnings as errors, against Python.h: each function of the
   project's list must have the prototype that the list says. */
#include <Python.h>
#include "usmb_pyfuncs.h"

#define X(ret, name, args) ret(*check_##name) args = name;
USMB_PY_REQUIRED(X)
#undef X
#define X(name) PyTypeObject *check_##name = &name;
USMB_PY_TYPES(X)
#undef X
#define X(name) PyObject **check_##name = &name;
USMB_PY_EXCEPTIONS(X)
#undef X
