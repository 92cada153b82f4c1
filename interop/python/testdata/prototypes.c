/* Compiled, with warnings as errors, against Python.h: each function of the
   project's list must have the prototype that the list says. */
#include <Python.h>
#include "usmb_pyfuncs.h"

#if PY_VERSION_HEX >= 0x030d0000
/* From 3.13 on the names are const; the same to a caller. */
#undef PyArg_ParseTupleAndKeywords
#define PyArg_ParseTupleAndKeywords \
	(int (*)(PyObject *, PyObject *, const char *, char **, ...))(PyArg_ParseTupleAndKeywords)
#endif

#define X(ret, name, args) ret(*check_##name) args = name;
USMB_PY_REQUIRED(X)
#undef X
#define X(name) PyTypeObject *check_##name = &name;
USMB_PY_TYPES(X)
#undef X
#define X(name) PyObject **check_##name = &name;
USMB_PY_EXCEPTIONS(X)
#undef X
