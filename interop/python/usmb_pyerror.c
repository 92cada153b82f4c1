//go:build linux && cgo

/* Reading exceptions for Go, and raising exceptions for Go errors. */
#include <string.h>

#include "usmb_pycall.h"
#include "usmb_pyerror.h"
#include "usmb_pygo.h"
#include "usmb_pyvalues.h"

/* The attribute of an exception that holds the handle of its Go error. */
#define GO_ERROR "__go_error__"

/* Returns a new reference to str(exc), or to a placeholder if str fails. */
static PyObject *message_of(PyObject *exc)
{
	PyObject *s = PyObject_Str(exc);
	if (s) return s;
	PyErr_Clear();
	return PyUnicode_FromString("<str() of the exception failed>");
}

/* Returns a new reference to the formatted exception, or to "" if formatting fails. */
static PyObject *traceback_of(PyObject *exc)
{
	PyObject *mod = PyImport_ImportModule("traceback");
	PyObject *lines = mod ? PyObject_CallMethod(mod, "format_exception", "O", exc) : NULL;
	PyObject *empty = PyUnicode_FromString("");
	PyObject *s = lines && empty ? PyUnicode_Join(empty, lines) : NULL;
	Py_XDECREF(lines);
	Py_XDECREF(mod);
	if (s) {
		Py_DECREF(empty);
		return s;
	}
	PyErr_Clear();
	return empty;
}

/* Returns a new reference to the names of the class and its bases, one per line. */
static PyObject *lineage_of(PyObject *exc)
{
	PyObject *mro = PyObject_GetAttrString((PyObject *)Py_TYPE(exc), "__mro__");
	if (!mro) return NULL;
	if (!PyTuple_Check(mro)) { /* A metaclass may return any object. */
		Py_DECREF(mro);
		return usmb_py_class_name(Py_TYPE(exc));
	}
	Py_ssize_t n = PyTuple_Size(mro);
	PyObject *names = PyList_New(0), *sep = PyUnicode_FromString("\n"), *s = NULL;
	int ok = names && sep;
	for (Py_ssize_t i = 0; ok && i < n; i++) {
		PyObject *name = usmb_py_class_name((PyTypeObject *)PyTuple_GetItem(mro, i));
		ok = name && PyList_Append(names, name) == 0;
		Py_XDECREF(name);
	}
	if (ok) s = PyUnicode_Join(sep, names);
	Py_XDECREF(sep);
	Py_XDECREF(names);
	Py_DECREF(mro);
	return s;
}

usmb_pyret usmb_pyop_error_part(void *exc, int part)
{
	USMB_PY_BEGIN(r);
	PyObject *s;
	int held = usmb_py_call_hold(); /* Reading an exception runs Python code. */
	switch (part) {
	case USMB_PYX_TYPE: s = usmb_py_class_name(Py_TYPE(exc)); break;
	case USMB_PYX_MESSAGE: s = message_of(exc); break;
	case USMB_PYX_TRACEBACK: s = traceback_of(exc); break;
	default: s = lineage_of(exc);
	}
	int ok = s && usmb_py_copy_text(s, 0, &r);
	Py_XDECREF(s);
	usmb_py_call_unhold(held);
	return usmb_py_end(r, st, ok);
}

/*
 * Adds an exception to the list found, unless seen (identities to exceptions) has it. Other
 * objects and NULL are ignored. Returns -1 with an exception set on failure.
 */
static int reach(PyObject *found, PyObject *seen, PyObject *exc)
{
	if (!exc || !usmb_py_type_check(exc, (PyTypeObject *)PyExc_BaseException)) return 0;
	PyObject *id = PyLong_FromVoidPtr(exc);
	int failed = !id;
	if (id && !PyDict_GetItemWithError(seen, id))
		failed = PyErr_Occurred() || PyDict_SetItem(seen, id, exc) || PyList_Append(found, exc);
	Py_XDECREF(id);
	return failed ? -1 : 0;
}

/* Adds the cause, the context and the group members of exc. */
static int reach_behind(PyObject *found, PyObject *seen, PyObject *exc)
{
	PyObject *cause = PyException_GetCause(exc), *context = PyException_GetContext(exc);
	int failed = reach(found, seen, cause) || reach(found, seen, context);
	Py_XDECREF(cause);
	Py_XDECREF(context);
	if (failed || !usmb_py_type_check(exc, (PyTypeObject *)PyExc_BaseExceptionGroup)) return failed;
	PyObject *members = PyObject_GetAttrString(exc, "exceptions");
	Py_ssize_t n = members && PyTuple_Check(members) ? PyTuple_Size(members) : 0;
	failed = !members;
	for (Py_ssize_t i = 0; !failed && i < n; i++) failed = reach(found, seen, PyTuple_GetItem(members, i));
	Py_XDECREF(members);
	return failed;
}

/*
 * Returns a new list of exc and the exceptions behind it, each once, without those in seen, and
 * adds them to seen. If memory runs out, the list is short or NULL. No exception is set.
 */
static PyObject *chain_of(PyObject *exc, PyObject *seen)
{
	PyObject *found = PyList_New(0);
	if (!found || reach(found, seen, exc)) PyErr_Clear();
	/* The list grows while it is read. */
	for (Py_ssize_t i = 0; found && i < PyList_Size(found); i++)
		if (reach_behind(found, seen, PyList_GetItem(found, i))) PyErr_Clear();
	return found;
}

/* Returns a new reference to an attribute. If o is NULL or reading fails, it returns NULL
   without an exception. */
static PyObject *attribute(PyObject *o, const char *name)
{
	PyObject *value = o ? PyObject_GetAttrString(o, name) : NULL;
	if (!value) PyErr_Clear();
	return value;
}

/* Reports whether a frame belongs to a generator, a coroutine or an asynchronous generator. */
static int is_resumable(PyObject *frame)
{
	enum { GENERATOR = 0x20, COROUTINE = 0x80, ASYNC_GENERATOR = 0x200 }; /* as inspect.CO_* */
	PyObject *code = attribute(frame, "f_code"), *flags = attribute(code, "co_flags");
	long long bits = flags ? PyLong_AsLongLong(flags) : 0;
	Py_XDECREF(flags);
	Py_XDECREF(code);
	return (bits & (GENERATOR | COROUTINE | ASYNC_GENERATOR)) != 0;
}

/*
 * Clears the frames of one exception's traceback, and the object of an AttributeError. behind: it
 * is not the raised exception. A generator may have caught it and be suspended, and before Python
 * 3.13 clearing its frame would close it.
 */
static void clear_one(PyObject *exc, int behind)
{
	PyObject *tb = PyException_GetTraceback(exc), *next, *res;
	for (; tb; tb = next) {
		PyObject *frame = attribute(tb, "tb_frame");
		res = frame && !(behind && is_resumable(frame)) ? PyObject_CallMethod(frame, "clear", NULL) : NULL;
		if (!res) PyErr_Clear(); /* RuntimeError: the frame is executing */
		Py_XDECREF(res);
		Py_XDECREF(frame);
		next = attribute(tb, "tb_next");
		Py_DECREF(tb);
		if (next == Py_None) {
			Py_DECREF(next);
			break;
		}
	}
	if (!usmb_py_type_check(exc, (PyTypeObject *)PyExc_AttributeError)) return;
	/* AttributeError's own descriptor, because a derived class may hide the attribute. */
	PyObject *obj = PyObject_GetAttrString(PyExc_AttributeError, "obj");
	res = obj ? PyObject_CallMethod(obj, "__set__", "OO", exc, Py_None) : NULL;
	if (!res) PyErr_Clear();
	Py_XDECREF(res);
	Py_XDECREF(obj);
}

void usmb_pyop_detach_error(void *exc)
{
	PyGILState_STATE st;
	if (usmb_py_enter(&st)) return;
	int held = usmb_py_call_hold();
	PyObject *seen = PyDict_New();
	if (!seen) PyErr_Clear();
	if (seen) {
		/* Python code around this call may be handling an exception. It still needs that one,
		   which is also the context of exceptions raised meanwhile. */
		PyObject *handled = PyErr_GetHandledException();
		PyObject *others = chain_of(handled, seen), *found = chain_of(exc, seen);
		for (Py_ssize_t i = 0; found && i < PyList_Size(found); i++) clear_one(PyList_GetItem(found, i), i > 0);
		Py_XDECREF(found);
		Py_XDECREF(others);
		Py_XDECREF(handled);
	}
	Py_XDECREF(seen);
	usmb_py_call_unhold(held);
	usmb_py_leave(st);
}

void usmb_pyop_raise(void *exc)
{
	if (usmb_py.PyErr_SetRaisedException) {
		usmb_py.PyErr_SetRaisedException(Py_NewRef(exc));
		return;
	}
	PyErr_Restore(Py_NewRef(Py_TYPE(exc)), Py_NewRef(exc), PyException_GetTraceback(exc));
}

/* Returns a new reference to the exception class "ValueError" or "package.module.Class". If
   it does not exist, it returns RuntimeError. */
static PyObject *find_class(const char *name)
{
	if (!strcmp(name, USMB_PY_INTERRUPTED)) {
		PyObject *interrupted = usmb_py_interrupted(); /* It is not in a module. */
		if (interrupted) return Py_NewRef(interrupted);
		PyErr_Clear();
	}
	const char *dot = strrchr(name, '.');
	PyObject *mod, *cls = NULL;
	if (dot) {
		PyObject *mod_name = PyUnicode_FromStringAndSize(name, dot - name);
		mod = mod_name ? PyImport_Import(mod_name) : NULL;
		Py_XDECREF(mod_name);
	} else {
		mod = PyImport_ImportModule("builtins");
	}
	if (mod) cls = PyObject_GetAttrString(mod, dot ? dot + 1 : name);
	Py_XDECREF(mod);
	if (cls && (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, (PyTypeObject *)PyExc_BaseException)))
		Py_CLEAR(cls);
	if (cls) return cls;
	PyErr_Clear();
	return Py_NewRef(PyExc_RuntimeError);
}

usmb_pyret usmb_pyop_new_error(const char *cls, const char *msg, size_t n, uintptr_t handle, void *cause)
{
	USMB_PY_BEGIN(r);
	PyObject *c = find_class(cls);
	PyObject *m = PyUnicode_DecodeUTF8(msg, (Py_ssize_t)n, "replace");
	PyObject *exc = c && m ? PyObject_CallFunctionObjArgs(c, m, NULL) : NULL;
	/* The __new__ of a class may return any object. */
	if (exc && !usmb_py_type_check(exc, (PyTypeObject *)PyExc_BaseException)) Py_CLEAR(exc);
	if (!exc && m) {
		/* The class does not accept one argument. */
		PyErr_Clear();
		exc = PyObject_CallFunctionObjArgs(PyExc_RuntimeError, m, NULL);
	}
	Py_XDECREF(c);
	Py_XDECREF(m);
	if (exc && handle) {
		PyObject *h = usmb_py_handle_new(handle);
		if (!h || PyObject_SetAttrString(exc, GO_ERROR, h)) PyErr_Clear();
		Py_XDECREF(h);
	} else if (handle) {
		usmb_py_handle_free(handle);
	}
	if (exc && cause) PyException_SetCause(exc, Py_NewRef(cause));
	r.val = exc;
	return usmb_py_end(r, st, exc != NULL);
}

usmb_pyret usmb_pyop_error_handle(void *exc)
{
	USMB_PY_BEGIN(r);
	PyObject *h = PyObject_GetAttrString(exc, GO_ERROR);
	if (h) r.num = (int64_t)usmb_py_handle_of(h);
	if (!h || !r.num) PyErr_Clear();
	Py_XDECREF(h);
	return usmb_py_end(r, st, 1);
}
