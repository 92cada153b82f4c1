/* A test compiles this file with Python.h and with warnings as errors. It checks that each
   function in usmb_pyfuncs.h has the prototype of that list. */
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
