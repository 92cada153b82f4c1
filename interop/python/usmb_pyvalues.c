//go:build linux && cgo

/* Values between Go and Python. */
#include <stdlib.h>
#include <string.h>

#include "usmb_pyops_impl.h"

usmb_pyret usmb_pyop_from_int(int64_t v)
{
	BEGIN(r);
	r.val = usmb_py.PyLong_FromLongLong(v);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_uint(uint64_t v)
{
	BEGIN(r);
	r.val = usmb_py.PyLong_FromUnsignedLongLong(v);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_digits(const char *text)
{
	BEGIN(r);
	r.val = usmb_py.PyLong_FromString(text, NULL, 10);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_float(double v)
{
	BEGIN(r);
	r.val = usmb_py.PyFloat_FromDouble(v);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_complex(double re, double im)
{
	BEGIN(r);
	r.val = usmb_py.PyComplex_FromDoubles(re, im);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_text(const char *s, size_t n)
{
	BEGIN(r);
	r.val = usmb_py.PyUnicode_FromStringAndSize(s, (Py_ssize_t)n);
	return end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_bytes(const void *p, size_t n)
{
	BEGIN(r);
	r.val = usmb_py.PyBytes_FromStringAndSize(n ? p : "", (Py_ssize_t)n);
	return end(r, st, r.val != NULL);
}

static void drop_all(void **items, size_t n)
{
	for (size_t i = 0; i < n; i++) Py_XDECREF(items[i]);
}

usmb_pyret usmb_pyop_from_list(void **items, size_t n, int tuple)
{
	BEGIN(r);
	r.val = tuple ? usmb_py.PyTuple_New((Py_ssize_t)n) : usmb_py.PyList_New((Py_ssize_t)n);
	if (!r.val) {
		drop_all(items, n);
		return end(r, st, 0);
	}
	for (size_t i = 0; i < n; i++) {
		if (tuple)
			usmb_py.PyTuple_SetItem(r.val, (Py_ssize_t)i, items[i]);
		else
			usmb_py.PyList_SetItem(r.val, (Py_ssize_t)i, items[i]);
	}
	return end(r, st, 1);
}

usmb_pyret usmb_pyop_from_dict(void **kv, size_t n)
{
	BEGIN(r);
	PyObject *d = usmb_py.PyDict_New();
	int ok = d != NULL;
	for (size_t i = 0; ok && i < n; i++) ok = usmb_py.PyDict_SetItem(d, kv[2 * i], kv[2 * i + 1]) == 0;
	drop_all(kv, 2 * n);
	if (!ok) Py_CLEAR(d);
	r.val = d;
	return end(r, st, ok);
}

/* A malloc'ed copy of a str, lone surrogates written as escapes unless strict. */
static int copy_text(PyObject *s, int strict, usmb_pyret *r)
{
	PyObject *b = usmb_py.PyUnicode_AsEncodedString(s, "utf-8", strict ? "strict" : "backslashreplace");
	char *p;
	Py_ssize_t n;
	if (!b) return 0;
	if (usmb_py.PyBytes_AsStringAndSize(b, &p, &n) == 0) {
		r->val = malloc((size_t)n + 1);
		if (r->val) {
			memcpy(r->val, p, (size_t)n + 1);
			r->num = n;
		} else {
			usmb_py.PyErr_NoMemory();
		}
	}
	Py_DECREF(b);
	return r->val != NULL;
}

/* "Class" for built-in ones, else "module.Class". New reference. */
static PyObject *class_name(PyTypeObject *t)
{
	PyObject *name = usmb_py.PyObject_GetAttrString((PyObject *)t, "__qualname__");
	if (!name) return NULL;
	PyObject *mod = usmb_py.PyObject_GetAttrString((PyObject *)t, "__module__");
	if (!mod || !PyUnicode_Check(mod)) {
		usmb_py.PyErr_Clear();
		Py_XDECREF(mod);
		return name;
	}
	if (usmb_py.PyUnicode_CompareWithASCIIString(mod, "builtins") != 0) {
		PyObject *full = usmb_py.PyUnicode_FromFormat("%U.%U", mod, name);
		Py_DECREF(name);
		name = full;
	}
	Py_DECREF(mod);
	return name;
}

usmb_pyret usmb_pyop_text(void *o, int what)
{
	BEGIN(r);
	PyObject *s = NULL;
	switch (what) {
	case USMB_PYT_STR: s = usmb_py.PyObject_Str(o); break;
	case USMB_PYT_REPR: s = usmb_py.PyObject_Repr(o); break;
	case USMB_PYT_TYPE: s = class_name(Py_TYPE(o)); break;
	default:
		if (PyUnicode_Check(o))
			s = Py_NewRef(o);
		else
			usmb_py.PyErr_SetString(usmb_py.PyExc_TypeError, "not a str");
	}
	int ok = s && copy_text(s, what == USMB_PYT_VALUE, &r);
	Py_XDECREF(s);
	return end(r, st, ok);
}

/* An int: its value when that fits int64. */
static int view_int(PyObject *o, usmb_pyret *r)
{
	int overflow = 0;
	r->num = usmb_py.PyLong_AsLongLongAndOverflow(o, &overflow);
	r->kind = overflow ? USMB_PYK_BIGINT : USMB_PYK_INT;
	return r->num != -1 || !usmb_py.PyErr_Occurred();
}

usmb_pyret usmb_pyop_view(void *obj)
{
	BEGIN(r);
	PyObject *o = obj;
	char *p = NULL;
	Py_ssize_t n = 0;
	int ok = 1;
	if (o == usmb_py.Py_None) {
		r.kind = USMB_PYK_NONE;
	} else if (PyBool_Check(o)) {
		r.kind = USMB_PYK_BOOL;
		r.num = o == usmb_py.Py_True;
	} else if (PyLong_Check(o)) {
		ok = view_int(o, &r);
	} else if (PyFloat_Check(o)) {
		r.kind = USMB_PYK_FLOAT;
		r.re = usmb_py.PyFloat_AsDouble(o);
	} else if (PyUnicode_Check(o)) {
		r.kind = USMB_PYK_STR;
	} else if (PyBytes_Check(o)) {
		r.kind = USMB_PYK_BYTES;
		ok = usmb_py.PyBytes_AsStringAndSize(o, &p, &n) == 0;
		r.val = p;
		r.num = n;
	} else if (PyList_Check(o)) {
		r.kind = USMB_PYK_LIST;
		r.num = usmb_py.PyList_Size(o);
	} else if (PyTuple_Check(o)) {
		r.kind = USMB_PYK_TUPLE;
		r.num = usmb_py.PyTuple_Size(o);
	} else if (PyDict_Check(o)) {
		r.kind = USMB_PYK_DICT;
		r.num = usmb_py.PyDict_Size(o);
	} else if (PyComplex_Check(o)) {
		r.kind = USMB_PYK_COMPLEX;
		r.re = usmb_py.PyComplex_RealAsDouble(o);
		r.im = usmb_py.PyComplex_ImagAsDouble(o);
	} else if (usmb_py_type_check(o, usmb_py.PyByteArray_Type)) {
		r.kind = USMB_PYK_BYTEARRAY;
		r.val = usmb_py.PyByteArray_AsString(o);
		r.num = usmb_py.PyByteArray_Size(o);
	}
	return end(r, st, ok);
}

usmb_pyret usmb_pyop_items(void *o, void **out, size_t n)
{
	BEGIN(r);
	int tuple = PyTuple_Check(o);
	Py_ssize_t have = tuple ? usmb_py.PyTuple_Size(o) : usmb_py.PyList_Size(o);
	if (have != (Py_ssize_t)n) {
		usmb_py.PyErr_SetString(usmb_py.PyExc_RuntimeError,
		                        "the list changed its size while Go was reading it");
		return end(r, st, 0);
	}
	for (size_t i = 0; i < n; i++)
		out[i] = Py_NewRef(tuple ? usmb_py.PyTuple_GetItem(o, (Py_ssize_t)i)
		                         : usmb_py.PyList_GetItem(o, (Py_ssize_t)i));
	return end(r, st, 1);
}

usmb_pyret usmb_pyop_dict_items(void *o, void **out, size_t n)
{
	BEGIN(r);
	Py_ssize_t pos = 0;
	PyObject *k, *v;
	size_t i = 0;
	if (usmb_py.PyDict_Size(o) == (Py_ssize_t)n) {
		for (; i < n && usmb_py.PyDict_Next(o, &pos, &k, &v); i++) {
			out[2 * i] = Py_NewRef(k);
			out[2 * i + 1] = Py_NewRef(v);
		}
		if (i == n) return end(r, st, 1);
		drop_all(out, 2 * i);
	}
	usmb_py.PyErr_SetString(usmb_py.PyExc_RuntimeError, "the dict changed its size while Go was reading it");
	return end(r, st, 0);
}

usmb_pyret usmb_pyop_index(void *o)
{
	BEGIN(r);
	PyObject *i = usmb_py.PyNumber_Index(o);
	int ok = i && view_int(i, &r);
	if (ok && r.kind == USMB_PYK_BIGINT) {
		usmb_py.PyErr_SetString(usmb_py.PyExc_OverflowError, "the int does not fit 64 bits");
		ok = 0;
	}
	Py_XDECREF(i);
	return end(r, st, ok);
}

usmb_pyret usmb_pyop_float(void *o)
{
	BEGIN(r);
	r.re = usmb_py.PyFloat_AsDouble(o);
	return end(r, st, r.re != -1.0 || !usmb_py.PyErr_Occurred());
}

/* ---- exceptions ------------------------------------------------------------------ */

PyObject *usmb_py_take_exception(void)
{
	if (usmb_py.PyErr_GetRaisedException) {
		PyObject *exc = usmb_py.PyErr_GetRaisedException();
		if (exc) return exc;
	} else {
		PyObject *type, *value, *tb;
		usmb_py.PyErr_Fetch(&type, &value, &tb);
		if (type) {
			usmb_py.PyErr_NormalizeException(&type, &value, &tb);
			if (tb && value) usmb_py.PyException_SetTraceback(value, tb);
			Py_XDECREF(type);
			Py_XDECREF(tb);
			if (value) return value;
		}
	}
	return usmb_py.PyObject_CallFunction(usmb_py.PyExc_SystemError, "s", "a call failed without an exception");
}

/* str(exc), or a note that it failed. New reference. */
static PyObject *message_of(PyObject *exc)
{
	PyObject *s = usmb_py.PyObject_Str(exc);
	if (s) return s;
	usmb_py.PyErr_Clear();
	return usmb_py.PyUnicode_FromString("<str() of the exception failed>");
}

static PyObject *traceback_of(PyObject *exc)
{
	PyObject *mod = usmb_py.PyImport_ImportModule("traceback");
	PyObject *lines = mod ? usmb_py.PyObject_CallMethod(mod, "format_exception", "O", exc) : NULL;
	PyObject *empty = usmb_py.PyUnicode_FromString("");
	PyObject *s = lines && empty ? usmb_py.PyUnicode_Join(empty, lines) : NULL;
	Py_XDECREF(lines);
	Py_XDECREF(mod);
	if (s) {
		Py_DECREF(empty);
		return s;
	}
	usmb_py.PyErr_Clear();
	return empty;
}

/* The names of the class and its bases, one a line. */
static PyObject *lineage_of(PyObject *exc)
{
	PyObject *mro = usmb_py.PyObject_GetAttrString((PyObject *)Py_TYPE(exc), "__mro__");
	if (!mro) return NULL;
	Py_ssize_t n = usmb_py.PyTuple_Size(mro);
	PyObject *names = usmb_py.PyList_New(0), *sep = usmb_py.PyUnicode_FromString("\n"), *s = NULL;
	int ok = names && sep;
	for (Py_ssize_t i = 0; ok && i < n; i++) {
		PyObject *name = class_name((PyTypeObject *)usmb_py.PyTuple_GetItem(mro, i));
		ok = name && usmb_py.PyList_Append(names, name) == 0;
		Py_XDECREF(name);
	}
	if (ok) s = usmb_py.PyUnicode_Join(sep, names);
	Py_XDECREF(sep);
	Py_XDECREF(names);
	Py_DECREF(mro);
	return s;
}

usmb_pyret usmb_pyop_error_part(void *exc, int what)
{
	BEGIN(r);
	PyObject *s;
	switch (what) {
	case USMB_PYX_TYPE: s = class_name(Py_TYPE(exc)); break;
	case USMB_PYX_MESSAGE: s = message_of(exc); break;
	case USMB_PYX_TRACEBACK: s = traceback_of(exc); break;
	default: s = lineage_of(exc);
	}
	int ok = s && copy_text(s, 0, &r);
	Py_XDECREF(s);
	return end(r, st, ok);
}

void usmb_pyop_clear_frames(void *exc)
{
	PyGILState_STATE st;
	if (usmb_py_enter(&st)) return;
	PyObject *tb = usmb_py.PyException_GetTraceback(exc);
	PyObject *mod = tb ? usmb_py.PyImport_ImportModule("traceback") : NULL;
	PyObject *res = mod ? usmb_py.PyObject_CallMethod(mod, "clear_frames", "O", tb) : NULL;
	if (!res) usmb_py.PyErr_Clear();
	Py_XDECREF(res);
	Py_XDECREF(mod);
	Py_XDECREF(tb);
	usmb_py_leave(st);
}

void usmb_pyop_raise(void *exc)
{
	if (usmb_py.PyErr_SetRaisedException) {
		usmb_py.PyErr_SetRaisedException(Py_NewRef(exc));
		return;
	}
	usmb_py.PyErr_Restore(Py_NewRef(Py_TYPE(exc)), Py_NewRef(exc), usmb_py.PyException_GetTraceback(exc));
}

/* "ValueError" or "package.module.Class": new reference to an exception class. */
static PyObject *find_class(const char *name)
{
	const char *dot = strrchr(name, '.');
	PyObject *mod, *cls = NULL;
	if (dot) {
		PyObject *mod_name = usmb_py.PyUnicode_FromStringAndSize(name, dot - name);
		mod = mod_name ? usmb_py.PyImport_Import(mod_name) : NULL;
		Py_XDECREF(mod_name);
	} else {
		mod = usmb_py.PyImport_ImportModule("builtins");
	}
	if (mod) cls = usmb_py.PyObject_GetAttrString(mod, dot ? dot + 1 : name);
	Py_XDECREF(mod);
	if (cls && (!PyType_Check(cls) ||
	            !usmb_py.PyType_IsSubtype((PyTypeObject *)cls, (PyTypeObject *)usmb_py.PyExc_BaseException)))
		Py_CLEAR(cls);
	if (cls) return cls;
	usmb_py.PyErr_Clear();
	return Py_NewRef(usmb_py.PyExc_RuntimeError);
}

usmb_pyret usmb_pyop_new_error(const char *cls, const char *msg, size_t n, uintptr_t handle, void *cause)
{
	BEGIN(r);
	PyObject *c = find_class(cls);
	PyObject *m = usmb_py.PyUnicode_DecodeUTF8(msg, (Py_ssize_t)n, "replace");
	PyObject *exc = c && m ? usmb_py.PyObject_CallFunctionObjArgs(c, m, NULL) : NULL;
	if (!exc && m) {
		/* A class that takes other arguments than one message. */
		usmb_py.PyErr_Clear();
		exc = usmb_py.PyObject_CallFunctionObjArgs(usmb_py.PyExc_RuntimeError, m, NULL);
	}
	Py_XDECREF(c);
	Py_XDECREF(m);
	if (exc && handle) {
		PyObject *h = usmb_py_handle_new(handle);
		if (!h || usmb_py.PyObject_SetAttrString(exc, USMB_PY_GO_ERROR, h)) usmb_py.PyErr_Clear();
		Py_XDECREF(h);
	} else if (handle) {
		usmb_py_go_free(handle);
	}
	if (exc && cause) usmb_py.PyException_SetCause(exc, Py_NewRef(cause));
	r.val = exc;
	return end(r, st, exc != NULL);
}

usmb_pyret usmb_pyop_error_handle(void *exc)
{
	BEGIN(r);
	PyObject *h = usmb_py.PyObject_GetAttrString(exc, USMB_PY_GO_ERROR);
	if (h) r.num = (int64_t)usmb_py_handle_of(h);
	if (!h || !r.num) usmb_py.PyErr_Clear();
	Py_XDECREF(h);
	return end(r, st, 1);
}
