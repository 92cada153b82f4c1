//go:build linux && cgo

/* Go values and Go functions held by Python objects. */
#include <stdlib.h>
#include <string.h>

#include "usmb_pycall.h"
#include "usmb_pygo.h"

#define HANDLE_NAME "usmbridge.go_handle"
#define FUNCTION_NAME "usmbridge.go_function"

/* The memory of a function object, owned by its capsule. */
struct go_function {
	PyMethodDef def;
	uintptr_t handle;
	char text[]; /* name, NUL, doc, NUL */
};

void usmb_py_handle_free(uintptr_t h)
{
	if (!usmb_py_in_child()) usmb_py_go_free(h);
}

static void handle_destructor(PyObject *capsule)
{
	usmb_py_handle_free((uintptr_t)PyCapsule_GetPointer(capsule, HANDLE_NAME));
}

PyObject *usmb_py_handle_new(uintptr_t handle)
{
	PyObject *c = PyCapsule_New((void *)handle, HANDLE_NAME, handle_destructor);
	if (!c) usmb_py_handle_free(handle);
	return c;
}

uintptr_t usmb_py_handle_of(PyObject *capsule)
{
	return (uintptr_t)PyCapsule_GetPointer(capsule, HANDLE_NAME);
}

static PyObject *call_go(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct go_function *f = PyCapsule_GetPointer(self, FUNCTION_NAME);
	if (!f) return NULL;
	usmb_py_drain();
	if (usmb_py_in_child()) {
		PyErr_SetString(PyExc_RuntimeError,
		                "a function of the Go host was called in a forked child, where Go cannot run; "
		                "use the 'spawn' start method (multiprocessing.set_start_method)");
		return NULL;
	}
	int outer = usmb_py_call_go_enter();
	PyObject *r = usmb_py_go_call(f->handle, args, kwargs);
	usmb_py_call_go_leave(outer, !r);
	return r;
}

static void function_destructor(PyObject *capsule)
{
	struct go_function *f = PyCapsule_GetPointer(capsule, FUNCTION_NAME);
	if (!f) return;
	usmb_py_handle_free(f->handle);
	free(f);
}

usmb_pyret usmb_pyop_function(uintptr_t handle, const char *name, const char *doc)
{
	USMB_PY_BEGIN(r);
	size_t n = strlen(name) + 1, d = strlen(doc) + 1;
	struct go_function *f = calloc(1, sizeof *f + n + d);
	if (!f) {
		usmb_py_handle_free(handle);
		PyErr_NoMemory();
		return usmb_py_end(r, st, 0);
	}
	memcpy(f->text, name, n);
	memcpy(f->text + n, doc, d);
	f->handle = handle;
	f->def.ml_name = f->text;
	f->def.ml_doc = f->text + n;
	f->def.ml_meth = USMB_PY_CFUNC(call_go);
	f->def.ml_flags = METH_VARARGS | METH_KEYWORDS;
	PyObject *c = PyCapsule_New(f, FUNCTION_NAME, function_destructor);
	if (!c) {
		usmb_py_handle_free(handle);
		free(f);
		return usmb_py_end(r, st, 0);
	}
	/* The function object holds the capsule as its self, which keeps its definition alive. */
	r.val = PyCFunction_NewEx(&f->def, c, NULL);
	Py_DECREF(c);
	return usmb_py_end(r, st, r.val != NULL);
}
