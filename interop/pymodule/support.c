/* support.c: names, errors, calls into Go and the reading of arguments. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

struct usmb_names usmb_name;

int usmb_support_register(void)
{
#define X(n) \
	if (!(usmb_name.n = PyUnicode_InternFromString(#n))) return -1;
	USMB_NAMES(X)
#undef X
	return 0;
}

/* ---- docstrings -------------------------------------------------------------------------- */

enum { MAX_DOCS = 256 };
static struct {
	const char *name, *text;
} docs[MAX_DOCS];
static int n_docs, next_doc; /* next_doc is where the next search begins */

void usmb_docs_set(const char *texts)
{
	for (n_docs = 0; *texts && n_docs < MAX_DOCS; n_docs++) {
		docs[n_docs].name = texts;
		docs[n_docs].text = texts += strlen(texts) + 1;
		texts += strlen(texts) + 1;
	}
}

/* Whether key is "owner.name", or the one of the two that is not empty. */
static int is_key(const char *key, const char *owner, const char *name)
{
	size_t n = strlen(owner);
	if (strncmp(key, owner, n) != 0) return 0;
	key += n;
	if (n && *name && *key++ != '.') return 0;
	return strcmp(key, name) == 0;
}

const char *usmb_doc(const char *owner, const char *name)
{
	for (int i = 0; i < n_docs; i++) {
		int at = (next_doc + i) % n_docs;
		if (!is_key(docs[at].name, owner, name)) continue;
		next_doc = at + 1;
		return docs[at].text;
	}
	return NULL;
}

void usmb_document(const char *owner, PyMethodDef *functions)
{
	for (; functions->ml_name; functions++) {
		const char *doc = usmb_doc(owner, functions->ml_name);
		if (doc) functions->ml_doc = doc;
	}
}

PyTypeObject *usmb_new_type(PyType_Spec *spec)
{
	const char *owner = spec->name + strlen("usmbridge.");
	for (PyType_Slot *s = spec->slots; s->slot; s++) {
		if (s->slot == Py_tp_doc) s->pfunc = (void *)usmb_doc(owner, "");
		if (s->slot == Py_tp_methods) usmb_document(owner, s->pfunc);
		if (s->slot != Py_tp_getset) continue;
		for (PyGetSetDef *g = s->pfunc; g->name; g++) {
			const char *doc = usmb_doc(owner, g->name);
			if (doc) g->doc = doc;
		}
	}
	return (PyTypeObject *)PyType_FromSpec(spec);
}

/* ---- errors ------------------------------------------------------------------------------ */

PyObject *usmb_raise(PyObject *kind, const char *format, ...)
{
	char text[1400];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	/* A name that was cut in the middle must not raise UnicodeDecodeError. */
	PyObject *s = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	if (!s) return NULL;
	PyErr_SetObject(kind, s);
	Py_DECREF(s);
	return NULL;
}

PyObject *usmb_goerr_exception(const usmb_goerr *e)
{
	return e->kind == USMB_ERR_VALUE        ? PyExc_ValueError
	       : e->kind == USMB_ERR_TYPE       ? PyExc_TypeError
	       : e->kind == USMB_ERR_BUFFER     ? PyExc_BufferError
	       : e->kind == USMB_ERR_MEMORY     ? PyExc_MemoryError
	       : e->kind == USMB_ERR_OVERFLOW   ? PyExc_OverflowError
	       : e->kind == USMB_ERR_TIMEOUT    ? PyExc_TimeoutError
	       : e->kind == USMB_ERR_CONNECTION ? PyExc_ConnectionError
	       : e->kind == USMB_ERR_KEY        ? PyExc_KeyError
	       : e->kind == USMB_ERR_REFERENCE  ? PyExc_ReferenceError
	                                        : PyExc_RuntimeError;
}

int usmb_raise_go(const usmb_goerr *e)
{
	if (e->kind != USMB_ERR_RAISED) usmb_raise(usmb_goerr_exception(e), "%s", e->message);
	return -1;
}

int usmb_go_allowed(void)
{
	if (!usmb_py_in_child()) return 0;
	usmb_raise(
	        PyExc_RuntimeError,
	        "usmbridge: this process is a fork of one that used usmbridge; SYCL devices and USM do not work here. "
	        "numpy.asarray(a) views memory that the host can read, and arrays with device=\"host\" can be made; "
	        "for all else start a new process (multiprocessing's \"spawn\")");
	return -1;
}

int usmb_object_allowed_in_child(PyObject *o)
{
	PyObject *const names[1] = {usmb_name.__sycl_usm_array_interface__};
	int has = usmb_type_has(o, names, 1);
	return has > 0 ? usmb_go_allowed() : has;
}

PyObject *usmb_optional_attr(PyObject *o, PyObject *name)
{
	PyObject *v = PyObject_GetAttr(o, name);
	if (!v && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
	return v;
}

int usmb_type_has(PyObject *o, PyObject *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		PyObject *v = PyObject_GetAttr((PyObject *)Py_TYPE(o), names[i]);
		Py_XDECREF(v);
		if (v) return 1;
		if (usmb_ignore_exception() < 0) return -1;
	}
	return 0;
}

int usmb_clear_exception(void)
{
	if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
	PyErr_Clear();
	return 0;
}

int usmb_ignore_exception(void)
{
	if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
	return usmb_clear_exception();
}

void usmb_decref_aside(PyObject *o)
{
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	Py_DECREF(o);
	PyErr_Restore(type, value, trace);
}

const char *usmb_type_name(PyObject *o, char *buf, size_t n)
{
	PyObject *name = PyType_GetName(Py_TYPE(o));
	const char *s = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	snprintf(buf, n, "%s", s ? s : "object");
	Py_XDECREF(name);
	if (!s) PyErr_Clear();
	return buf;
}

/* ---- arguments ------------------------------------------------------------------------------ */

static int find_name(PyObject *key, PyObject *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (names[i] == key) return i;
	for (int i = 0; i < count; i++)
		if (names[i] && PyUnicode_Compare(names[i], key) == 0) return i;
	return -1;
}

int usmb_args(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject *const *names,
              int count, int min, int maxpos, PyObject **slots)
{
	if (n > maxpos) {
		usmb_raise(PyExc_TypeError, "%s() takes %d positional arguments at most, %lld were given", func, maxpos,
		           (long long)n);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) slots[i] = args[i];
	Py_ssize_t extra = kwnames ? PyTuple_Size(kwnames) : 0;
	for (Py_ssize_t k = 0; k < extra; k++) {
		PyObject *key = PyTuple_GetItem(kwnames, k);
		int i = find_name(key, names, count);
		if (i < 0 || slots[i]) {
			const char *s = PyUnicode_AsUTF8AndSize(key, NULL);
			usmb_raise(PyExc_TypeError,
			           i < 0 ? "%s() has no keyword argument \"%s\"" : "%s() was given \"%s\" twice", func,
			           s ? s : "?");
			return -1;
		}
		slots[i] = args[n + k];
	}
	for (int i = 0; i < min; i++)
		if (!slots[i]) {
			const char *s = names[i] ? PyUnicode_AsUTF8AndSize(names[i], NULL) : "the first";
			usmb_raise(PyExc_TypeError, "%s() lacks an argument: %s", func, s ? s : "?");
			return -1;
		}
	return 0;
}

int usmb_parse_choice(PyObject *o, const char *const *names, int n, const char *rule, int *out)
{
	char type[64];
	if (!PyUnicode_Check(o)) {
		usmb_raise(PyExc_TypeError, "%s, not %s", rule, usmb_type_name(o, type, sizeof type));
		return -1;
	}
	for (int i = 0; i < n; i++)
		if (PyUnicode_CompareWithASCIIString(o, names[i]) == 0) {
			*out = i;
			return 0;
		}
	const char *s = PyUnicode_AsUTF8AndSize(o, NULL);
	if (s) usmb_raise(PyExc_ValueError, "%s, not \"%s\"", rule, s);
	return -1;
}

/* ---- shapes ------------------------------------------------------------------------------------ */

int usmb_parse_dim(PyObject *o, int64_t *out, const char *what)
{
	char type[64];
	if (!PyIndex_Check(o)) {
		usmb_raise(PyExc_TypeError, "%s takes integers, not %s", what, usmb_type_name(o, type, sizeof type));
		return -1;
	}
	PyObject *n = PyLong_CheckExact(o) ? Py_NewRef(o) : PyNumber_Index(o);
	if (!n) return -1;
	*out = PyLong_AsLongLong(n);
	Py_DECREF(n);
	return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int too_many(Py_ssize_t n, const char *what)
{
	usmb_raise(PyExc_ValueError, "%s: %lld dimensions, at most %d are possible", what, (long long)n,
	           USMB_DL_MAX_NDIM);
	return -1;
}

int usmb_parse_dims(PyObject *o, int64_t *out, const char *what)
{
	char type[64];
	if (PyIndex_Check(o)) {
		if (usmb_parse_dim(o, out, what) == 0) return 1;
		/* Every array has __index__. It raises for arrays that are not 0-d and integer;
		   these are read as a sequence. */
		if (!PySequence_Check(o) ||
		    !(PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError)))
			return -1;
		PyErr_Clear();
	}
	if (!PySequence_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o)) {
		usmb_raise(PyExc_TypeError, "%s takes an integer or a sequence of integers, not %s", what,
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	PyObject *t = PySequence_Tuple(o);
	if (!t) return -1;
	Py_ssize_t n = PyTuple_Size(t);
	int bad = n > USMB_DL_MAX_NDIM && too_many(n, what) < 0;
	for (Py_ssize_t i = 0; i < n && !bad; i++) bad = usmb_parse_dim(PyTuple_GetItem(t, i), &out[i], what) < 0;
	Py_DECREF(t);
	return bad ? -1 : (int)n;
}

int usmb_parse_dim_args(PyObject *const *args, Py_ssize_t n, int64_t *out, const char *what)
{
	if (n == 1) return usmb_parse_dims(args[0], out, what);
	if (n > USMB_DL_MAX_NDIM) return too_many(n, what);
	for (Py_ssize_t i = 0; i < n; i++)
		if (usmb_parse_dim(args[i], &out[i], what) < 0) return -1;
	return (int)n;
}

PyObject *usmb_tuple_i64(const int64_t *v, Py_ssize_t n)
{
	PyObject *t = PyTuple_New(n);
	if (!t) return NULL;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *x = PyLong_FromLongLong(v[i]);
		if (!x) {
			Py_DECREF(t);
			return NULL;
		}
		PyTuple_SetItem(t, i, x);
	}
	return t;
}

/* ---- calls of Go and Python ------------------------------------------------------------------ */

int usmb_open_sycl(void)
{
	if (usmb_go_allowed() < 0) return -1;
	USMB_GO(usmb_go_open(&err));
	return r == 1 ? 0 : -1;
}

PyObject *usmb_counters(usmb_go_counters *f)
{
	usmb_stat *list = NULL;
	int64_t n = 0;
	if (usmb_go_allowed() < 0) return NULL;
	USMB_GO(f(&list, &n, &err));
	PyObject *dict = r < 0 ? NULL : PyDict_New();
	for (int64_t i = 0; i < n && dict; i++) {
		PyObject *v = PyLong_FromLongLong(list[i].value);
		if (!v || PyDict_SetItemString(dict, list[i].name, v) < 0) Py_CLEAR(dict);
		Py_XDECREF(v);
	}
	free(list);
	return dict;
}

PyObject *usmb_call_python(PyObject **f, const char *name, const char *function, PyObject *const *args, Py_ssize_t n)
{
	if (!*f) {
		PyObject *module = PyImport_ImportModule(name);
		PyObject *found = module ? PyObject_GetAttrString(module, function) : NULL;
		Py_XDECREF(module);
		if (!found) return NULL;
		PyObject *old = *f; /* the import can run other threads, which can have set it */
		*f = found;
		Py_XDECREF(old);
	}
	return PyObject_Vectorcall(*f, args, (size_t)n, NULL);
}
