//go:build linux && cgo

/* Operations on objects: attributes, items, calls, code. */
#include <string.h>

#include "usmb_pyobject.h"

usmb_pyret usmb_pyop_incref(void *o)
{
	USMB_PY_BEGIN(r);
	Py_INCREF(o);
	return usmb_py_end(r, st, 1);
}

void usmb_pyop_decref(void *o)
{
	PyGILState_STATE st;
	if (usmb_py_enter(&st)) return;
	Py_DECREF(o);
	usmb_py_leave(st);
}

static PyObject *text(const char *s, size_t n)
{
	return PyUnicode_FromStringAndSize(s, (Py_ssize_t)n);
}

usmb_pyret usmb_pyop_getattr(void *o, const char *name, size_t n)
{
	USMB_PY_BEGIN(r);
	PyObject *key = text(name, n);
	if (key) r.val = PyObject_GetAttr(o, key);
	Py_XDECREF(key);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_setattr(void *o, const char *name, size_t n, void *v)
{
	USMB_PY_BEGIN(r);
	PyObject *key = text(name, n);
	int ok = key && PyObject_SetAttr(o, key, v) == 0;
	Py_XDECREF(key);
	return usmb_py_end(r, st, ok);
}

usmb_pyret usmb_pyop_getitem(void *o, void *key)
{
	USMB_PY_BEGIN(r);
	r.val = PyObject_GetItem(o, key);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_setitem(void *o, void *key, void *v)
{
	USMB_PY_BEGIN(r);
	int rc = v ? PyObject_SetItem(o, key, v) : PyObject_DelItem(o, key);
	return usmb_py_end(r, st, rc == 0);
}

usmb_pyret usmb_pyop_len(void *o)
{
	USMB_PY_BEGIN(r);
	r.num = PyObject_Size(o);
	return usmb_py_end(r, st, r.num >= 0);
}

usmb_pyret usmb_pyop_iter(void *o)
{
	USMB_PY_BEGIN(r);
	r.val = PyObject_GetIter(o);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_next(void *it)
{
	USMB_PY_BEGIN(r);
	r.val = PyIter_Next(it);
	return usmb_py_end(r, st, r.val || !PyErr_Occurred());
}

usmb_pyret usmb_pyop_call(void *f, void **args, size_t npos, void *kwnames)
{
	USMB_PY_BEGIN(r);
	r.val = PyObject_Vectorcall(f, (PyObject *const *)args, npos, kwnames);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_method(const char *name, size_t n, void **args, size_t npos, void *kwnames)
{
	USMB_PY_BEGIN(r);
	PyObject *key = text(name, n);
	if (key) r.val = PyObject_VectorcallMethod(key, (PyObject *const *)args, npos, kwnames);
	Py_XDECREF(key);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_import(const char *name)
{
	USMB_PY_BEGIN(r);
	r.val = PyImport_ImportModule(name);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_builtins(void)
{
	USMB_PY_BEGIN(r);
	/* Without a Python frame on the stack, these are the builtins of the interpreter. */
	r.val = PyEval_GetBuiltins();
	Py_XINCREF(r.val);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_run(const char *code, size_t n, const char *filename, int start, void *globals)
{
	USMB_PY_BEGIN(r);
	if (strlen(code) != n) {
		PyErr_SetString(PyExc_ValueError, "source code string cannot contain null bytes");
		return usmb_py_end(r, st, 0);
	}
	PyObject *c = Py_CompileString(code, filename, start);
	if (c) r.val = PyEval_EvalCode(c, globals, globals);
	Py_XDECREF(c);
	return usmb_py_end(r, st, r.val != NULL);
}
