//go:build linux && cgo

/* Operations on objects: attributes, items, calls, code. */
#include <string.h>

#include "usmb_pyops_impl.h"

usmb_pyret usmb_pyop_enter(void)
{
	usmb_pyret r = {0};
	PyGILState_STATE st;
	r.code = usmb_py_enter(&st);
	r.num = r.code ? 0 : st;
	return r;
}

void usmb_pyop_leave(int64_t state)
{
	usmb_py_leave((PyGILState_STATE)state);
}

int usmb_pyop_held(void)
{
	return usmb_py_alive() && usmb_py.PyGILState_Check();
}

usmb_pyret usmb_pyop_suspend(void)
{
	usmb_pyret r = {0};
	if (usmb_pyop_held()) r.val = usmb_py.PyEval_SaveThread();
	return r;
}

void usmb_pyop_resume(void *ts)
{
	if (ts) usmb_py.PyEval_RestoreThread(ts);
}

usmb_pyret usmb_pyop_incref(void *o)
{
	BEGIN(r);
	Py_INCREF(o);
	return end(r, st, 1);
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
	return usmb_py.PyUnicode_FromStringAndSize(s, (Py_ssize_t)n);
}

usmb_pyret usmb_pyop_getattr(void *o, const char *name, size_t n)
{
	BEGIN(r);
	PyObject *key = text(name, n);
	if (key) r.val = usmb_py.PyObject_GetAttr(o, key);
	Py_XDECREF(key);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_setattr(void *o, const char *name, size_t n, void *v)
{
	BEGIN(r);
	PyObject *key = text(name, n);
	int ok = key && usmb_py.PyObject_SetAttr(o, key, v) == 0;
	Py_XDECREF(key);
	return end(r, st, ok);
}

usmb_pyret usmb_pyop_getitem(void *o, void *key)
{
	BEGIN(r);
	r.val = usmb_py.PyObject_GetItem(o, key);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_setitem(void *o, void *key, void *v)
{
	BEGIN(r);
	int rc = v ? usmb_py.PyObject_SetItem(o, key, v) : usmb_py.PyObject_DelItem(o, key);
	return end(r, st, rc == 0);
}

usmb_pyret usmb_pyop_len(void *o)
{
	BEGIN(r);
	r.num = usmb_py.PyObject_Size(o);
	return end(r, st, r.num >= 0);
}

usmb_pyret usmb_pyop_truth(void *o)
{
	BEGIN(r);
	r.num = usmb_py.PyObject_IsTrue(o);
	return end(r, st, r.num >= 0);
}

usmb_pyret usmb_pyop_isinstance(void *o, void *cls)
{
	BEGIN(r);
	r.num = usmb_py.PyObject_IsInstance(o, cls);
	return end(r, st, r.num >= 0);
}

usmb_pyret usmb_pyop_compare(void *a, void *b, int op)
{
	BEGIN(r);
	r.num = usmb_py.PyObject_RichCompareBool(a, b, op);
	return end(r, st, r.num >= 0);
}

usmb_pyret usmb_pyop_iter(void *o)
{
	BEGIN(r);
	r.val = usmb_py.PyObject_GetIter(o);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_next(void *it)
{
	BEGIN(r);
	r.val = usmb_py.PyIter_Next(it);
	return end(r, st, r.val || !usmb_py.PyErr_Occurred());
}

usmb_pyret usmb_pyop_call(void *f, void **args, size_t npos, void *kwnames)
{
	BEGIN(r);
	r.val = usmb_py.PyObject_Vectorcall(f, (PyObject *const *)args, npos, kwnames);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_method(const char *name, size_t n, void **args, size_t npos, void *kwnames)
{
	BEGIN(r);
	PyObject *key = text(name, n);
	if (key) r.val = usmb_py.PyObject_VectorcallMethod(key, (PyObject *const *)args, npos, kwnames);
	Py_XDECREF(key);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_import(const char *name)
{
	BEGIN(r);
	r.val = usmb_py.PyImport_ImportModule(name);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_builtins(void)
{
	BEGIN(r);
	/* With no Python frame below, the interpreter's own builtins. */
	r.val = usmb_py.PyEval_GetBuiltins();
	Py_XINCREF(r.val);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_run(const char *code, const char *filename, int start, void *globals)
{
	BEGIN(r);
	PyObject *c = usmb_py.Py_CompileString(code, filename, start);
	if (c) r.val = usmb_py.PyEval_EvalCode(c, globals, globals);
	Py_XDECREF(c);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_argv(void **items, size_t n)
{
	usmb_pyret l = usmb_pyop_from_list(items, n, 0);
	if (l.code) return l;
	BEGIN(r);
	int ok = usmb_py.PySys_SetObject("argv", l.val) == 0;
	Py_DECREF(l.val);
	return end(r, st, ok);
}

usmb_pyret usmb_pyop_capsule(void *p, const char *name)
{
	BEGIN(r);
	r.val = usmb_py.PyCapsule_New(p, name, NULL);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_capsule_pointer(void *o, const char *name)
{
	BEGIN(r);
	r.val = usmb_py.PyCapsule_GetPointer(o, name);
	return end(r, st, r.val != NULL);
}
