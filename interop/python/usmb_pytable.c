//go:build linux && cgo

/* The table of CPython's functions, filled by dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "usmb_pytable.h"

struct usmb_py usmb_py;

static int fill(void *h, struct usmb_py *t, const char **missing)
{
	void *sym;
#define X(ret, name, args) \
	*(void **)(void *)&t->name = dlsym(h, #name); \
	if (!t->name) { \
		*missing = #name; \
		return -1; \
	}
	USMB_PY_REQUIRED(X)
#undef X
#define X(ret, name, args) *(void **)(void *)&t->name = dlsym(h, #name);
	USMB_PY_OPTIONAL(X)
#undef X
#define X(name) \
	t->name = (PyTypeObject *)dlsym(h, #name); \
	if (!t->name) { \
		*missing = #name; \
		return -1; \
	}
	USMB_PY_TYPES(X)
#undef X
#define X(name) \
	sym = dlsym(h, #name); \
	if (!sym) { \
		*missing = #name; \
		return -1; \
	} \
	t->name = *(PyObject **)sym;
	USMB_PY_EXCEPTIONS(X)
#undef X
#define X(member, symbol) \
	t->member = (PyObject *)dlsym(h, #symbol); \
	if (!t->member) { \
		*missing = #symbol; \
		return -1; \
	}
	X(Py_None, _Py_NoneStruct)
	X(Py_True, _Py_TrueStruct)
	X(Py_False, _Py_FalseStruct)
	X(Py_NotImplemented, _Py_NotImplementedStruct)
	X(Py_Ellipsis, _Py_EllipsisObject)
#undef X
	sym = dlsym(h, "Py_Version");
	if (!sym) {
		*missing = "Py_Version";
		return -1;
	}
	t->version = (uint32_t)*(const unsigned long *)sym;
	return 0;
}

int usmb_py_load(void *handle, const char **missing)
{
	static struct usmb_py fresh; /* guarded by startMu of Go, or by the GIL */
	void *h = handle ? handle : RTLD_DEFAULT;
	if (usmb_py.version) return 0;
	memset(&fresh, 0, sizeof fresh);
	/* Only free-threaded builds export this symbol, and the layout of their objects differs.
	   Check it first, so that it is the reported reason even if other symbols are missing. */
	if (dlsym(h, "_Py_MergeZeroLocalRefcount")) {
		*missing = USMB_PY_FREE_THREADED;
		return -1;
	}
	if (fill(h, &fresh, missing)) return -1;
	usmb_py = fresh;
	return 0;
}
