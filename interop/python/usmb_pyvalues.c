//go:build linux && cgo

/* Conversion of values and texts between Go and Python. */
#include <stdlib.h>
#include <string.h>

#include "usmb_pyvalues.h"

usmb_pyret usmb_pyop_from_int(int64_t v)
{
	USMB_PY_BEGIN(r);
	r.val = PyLong_FromLongLong(v);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_hex(const char *text)
{
	USMB_PY_BEGIN(r);
	r.val = PyLong_FromString(text, NULL, 16);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_float(double v)
{
	USMB_PY_BEGIN(r);
	r.val = PyFloat_FromDouble(v);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_text(const char *s, size_t n)
{
	USMB_PY_BEGIN(r);
	r.val = PyUnicode_FromStringAndSize(s, (Py_ssize_t)n);
	return usmb_py_end(r, st, r.val != NULL);
}

usmb_pyret usmb_pyop_from_bytes(const void *p, size_t n)
{
	USMB_PY_BEGIN(r);
	r.val = PyBytes_FromStringAndSize(n ? p : "", (Py_ssize_t)n);
	return usmb_py_end(r, st, r.val != NULL);
}

static void drop_all(void **items, size_t n)
{
	for (size_t i = 0; i < n; i++) Py_XDECREF(items[i]);
}

usmb_pyret usmb_pyop_from_names(void **items, size_t n)
{
	USMB_PY_BEGIN(r);
	r.val = PyTuple_New((Py_ssize_t)n);
	if (!r.val) {
		drop_all(items, n);
		return usmb_py_end(r, st, 0);
	}
	for (size_t i = 0; i < n; i++) PyTuple_SetItem(r.val, (Py_ssize_t)i, items[i]);
	return usmb_py_end(r, st, 1);
}

static double double_of(uint64_t word)
{
	double d;
	memcpy(&d, &word, sizeof d);
	return d;
}

static PyObject *read_sequence(usmb_words *w, Py_ssize_t n, int tuple)
{
	PyObject *list = tuple ? PyTuple_New(n) : PyList_New(n);
	for (Py_ssize_t i = 0; list && i < n; i++) {
		PyObject *v = usmb_py_read_value(w);
		if (!v) {
			Py_CLEAR(list);
		} else if (tuple) {
			PyTuple_SetItem(list, i, v);
		} else {
			PyList_SetItem(list, i, v);
		}
	}
	return list;
}

static PyObject *read_dict(usmb_words *w, Py_ssize_t n)
{
	PyObject *d = PyDict_New();
	for (Py_ssize_t i = 0; d && i < n; i++) {
		PyObject *key = usmb_py_read_value(w);
		PyObject *v = key ? usmb_py_read_value(w) : NULL;
		if (!v || PyDict_SetItem(d, key, v) < 0) Py_CLEAR(d);
		Py_XDECREF(key);
		Py_XDECREF(v);
	}
	return d;
}

PyObject *usmb_py_read_value(usmb_words *w)
{
	uint64_t word = w->words[w->at], n = usmb_value_n(word);
	uint32_t kind = usmb_value_kind(word);
	if (kind == USMB_VALUE_ARRAY && w->array) return w->array(w);
	const uint64_t *in = w->words + w->at + 1;
	w->at += usmb_value_size(word);
	switch (kind) {
	case USMB_VALUE_NONE: return Py_NewRef(Py_None);
	case USMB_VALUE_BOOL: return Py_NewRef(n ? Py_True : Py_False);
	case USMB_VALUE_INT: return PyLong_FromLongLong((int64_t)*in);
	case USMB_VALUE_UINT: return PyLong_FromUnsignedLongLong(*in);
	case USMB_VALUE_FLOAT: return PyFloat_FromDouble(double_of(*in));
	case USMB_VALUE_COMPLEX: return PyComplex_FromDoubles(double_of(in[0]), double_of(in[1]));
	case USMB_VALUE_BIG: return PyLong_FromString((const char *)in, NULL, 16);
	case USMB_VALUE_TEXT: return PyUnicode_FromStringAndSize((const char *)in, (Py_ssize_t)n);
	case USMB_VALUE_BYTES: return PyBytes_FromStringAndSize((const char *)in, (Py_ssize_t)n);
	case USMB_VALUE_OBJECT: return Py_NewRef((PyObject *)(uintptr_t)*in);
	case USMB_VALUE_LIST:
	case USMB_VALUE_TUPLE: return read_sequence(w, (Py_ssize_t)n, kind == USMB_VALUE_TUPLE);
	case USMB_VALUE_DICT: return read_dict(w, (Py_ssize_t)n);
	}
	PyErr_SetString(PyExc_SystemError, "a value from Go has an unknown kind");
	return NULL;
}

usmb_pyret usmb_pyop_from_words(const uint64_t *words)
{
	USMB_PY_BEGIN(r);
	usmb_words w = {.words = words};
	r.val = usmb_py_read_value(&w);
	return usmb_py_end(r, st, r.val != NULL);
}

/* Stores an int in r if it fits int64. Returns 1, or 0 with an exception. */
static int view_int(PyObject *o, usmb_pyret *r)
{
	int overflow = 0;
	r->num = PyLong_AsLongLongAndOverflow(o, &overflow);
	r->kind = overflow ? USMB_PYK_BIGINT : USMB_PYK_INT;
	return r->num != -1 || !PyErr_Occurred();
}

usmb_pyret usmb_pyop_view(void *obj)
{
	USMB_PY_BEGIN(r);
	PyObject *o = obj;
	char *p = NULL;
	Py_ssize_t n = 0;
	int ok = 1;
	if (o == Py_None) {
		r.kind = USMB_PYK_NONE;
	} else if (PyBool_Check(o)) {
		r.kind = USMB_PYK_BOOL;
		r.num = o == Py_True;
	} else if (PyLong_Check(o)) {
		ok = view_int(o, &r);
	} else if (PyFloat_Check(o)) {
		r.kind = USMB_PYK_FLOAT;
		r.re = PyFloat_AsDouble(o);
	} else if (PyUnicode_Check(o)) {
		r.kind = USMB_PYK_STR;
	} else if (PyBytes_Check(o)) {
		r.kind = USMB_PYK_BYTES;
		ok = PyBytes_AsStringAndSize(o, &p, &n) == 0;
		r.val = p;
		r.num = n;
	} else if (PyList_Check(o)) {
		r.kind = USMB_PYK_LIST;
		r.num = PyList_Size(o);
	} else if (PyTuple_Check(o)) {
		r.kind = USMB_PYK_TUPLE;
		r.num = PyTuple_Size(o);
	} else if (PyDict_Check(o)) {
		r.kind = USMB_PYK_DICT;
		r.num = PyDict_Size(o);
	} else if (PyComplex_Check(o)) {
		r.kind = USMB_PYK_COMPLEX;
		r.re = PyComplex_RealAsDouble(o);
		r.im = PyComplex_ImagAsDouble(o);
	} else if (usmb_py_type_check(o, &PyByteArray_Type)) {
		r.kind = USMB_PYK_BYTEARRAY;
		r.val = PyByteArray_AsString(o);
		r.num = PyByteArray_Size(o);
	}
	return usmb_py_end(r, st, ok);
}

usmb_pyret usmb_pyop_items(void *o, void **out, size_t n)
{
	USMB_PY_BEGIN(r);
	int tuple = PyTuple_Check(o);
	Py_ssize_t have = tuple ? PyTuple_Size(o) : PyList_Size(o);
	if (have != (Py_ssize_t)n) {
		PyErr_SetString(PyExc_RuntimeError, "the list changed its size while Go was reading it");
		return usmb_py_end(r, st, 0);
	}
	for (size_t i = 0; i < n; i++)
		out[i] = Py_NewRef(tuple ? PyTuple_GetItem(o, (Py_ssize_t)i) : PyList_GetItem(o, (Py_ssize_t)i));
	return usmb_py_end(r, st, 1);
}

usmb_pyret usmb_pyop_dict_items(void *o, void **out, size_t n)
{
	USMB_PY_BEGIN(r);
	Py_ssize_t pos = 0;
	PyObject *k, *v;
	size_t i = 0;
	if (PyDict_Size(o) == (Py_ssize_t)n) {
		for (; i < n && PyDict_Next(o, &pos, &k, &v); i++) {
			out[2 * i] = Py_NewRef(k);
			out[2 * i + 1] = Py_NewRef(v);
		}
		if (i == n) return usmb_py_end(r, st, 1);
		drop_all(out, 2 * i);
	}
	PyErr_SetString(PyExc_RuntimeError, "the dict changed its size while Go was reading it");
	return usmb_py_end(r, st, 0);
}

usmb_pyret usmb_pyop_index(void *o)
{
	USMB_PY_BEGIN(r);
	PyObject *i = PyNumber_Index(o);
	int ok = i && view_int(i, &r);
	if (ok && r.kind == USMB_PYK_BIGINT) {
		PyErr_SetString(PyExc_OverflowError, "the int does not fit 64 bits");
		ok = 0;
	}
	Py_XDECREF(i);
	return usmb_py_end(r, st, ok);
}

usmb_pyret usmb_pyop_float(void *o)
{
	USMB_PY_BEGIN(r);
	r.re = PyFloat_AsDouble(o);
	return usmb_py_end(r, st, r.re != -1.0 || !PyErr_Occurred());
}

int usmb_py_copy_text(PyObject *s, int strict, usmb_pyret *r)
{
	PyObject *b = PyUnicode_AsEncodedString(s, "utf-8", strict ? "strict" : "backslashreplace");
	char *p;
	Py_ssize_t n;
	if (!b) return 0;
	if (PyBytes_AsStringAndSize(b, &p, &n) == 0) {
		r->val = malloc((size_t)n + 1);
		if (r->val) {
			memcpy(r->val, p, (size_t)n + 1);
			r->num = n;
		} else {
			PyErr_NoMemory();
		}
	}
	Py_DECREF(b);
	return r->val != NULL;
}

PyObject *usmb_py_class_name(PyTypeObject *t)
{
	PyObject *name = PyObject_GetAttrString((PyObject *)t, "__qualname__");
	if (!name) return NULL;
	if (!PyUnicode_Check(name)) { /* A metaclass may return any object. */
		Py_DECREF(name);
		PyErr_SetString(PyExc_TypeError, "the __qualname__ of a class is not a str");
		return NULL;
	}
	PyObject *mod = PyObject_GetAttrString((PyObject *)t, "__module__");
	if (!mod || !PyUnicode_Check(mod)) {
		PyErr_Clear();
		Py_XDECREF(mod);
		return name;
	}
	if (PyUnicode_CompareWithASCIIString(mod, "builtins") != 0) {
		PyObject *full = PyUnicode_FromFormat("%U.%U", mod, name);
		Py_DECREF(name);
		name = full;
	}
	Py_DECREF(mod);
	return name;
}

usmb_pyret usmb_pyop_text(void *o, int kind)
{
	USMB_PY_BEGIN(r);
	PyObject *s = NULL;
	switch (kind) {
	case USMB_PYT_STR: s = PyObject_Str(o); break;
	case USMB_PYT_REPR: s = PyObject_Repr(o); break;
	case USMB_PYT_HEX: s = PyNumber_ToBase(o, 16); break;
	case USMB_PYT_TYPE: s = usmb_py_class_name(Py_TYPE(o)); break;
	default:
		if (PyUnicode_Check(o))
			s = Py_NewRef(o);
		else
			PyErr_SetString(PyExc_TypeError, "not a str");
	}
	int ok = s && usmb_py_copy_text(s, kind == USMB_PYT_VALUE, &r);
	Py_XDECREF(s);
	return usmb_py_end(r, st, ok);
}
