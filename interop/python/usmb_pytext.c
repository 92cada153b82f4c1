//go:build linux && cgo

/* Texts of objects, copied for Go. */
#include <stdlib.h>
#include <string.h>

#include "usmb_pytext.h"

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
	if (!PyUnicode_Check(name)) { /* a metaclass's answer */
		Py_DECREF(name);
		PyErr_SetString(PyExc_TypeError, "the __qualname__ of a class is no str");
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

usmb_pyret usmb_pyop_text(void *o, int what)
{
	USMB_PY_BEGIN(r);
	PyObject *s = NULL;
	switch (what) {
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
	int ok = s && usmb_py_copy_text(s, what == USMB_PYT_VALUE, &r);
	Py_XDECREF(s);
	return usmb_py_end(r, st, ok);
}
