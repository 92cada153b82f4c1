/* module.c: the module usmbridge: functions, initialisation, errors, and the
   reading of arguments. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usmb_cute.h"
#include "usmb_pymod.h"

struct usmb_names usmb_name;
char usmb_pymod_version[64] = "0";

/* ---- errors ------------------------------------------------------------------------------ */

PyObject *usmb_raise(PyObject *kind, const char *format, ...)
{
	char text[1400];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	/* A name cut in the middle must not turn into an error about UTF-8. */
	PyObject *s = usmb_py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	if (!s) return NULL;
	usmb_py.PyErr_SetObject(kind, s);
	Py_DECREF(s);
	return NULL;
}

PyObject *usmb_goerr_exception(const usmb_goerr *e)
{
	return e->kind == USMB_ERR_VALUE      ? usmb_py.PyExc_ValueError
	       : e->kind == USMB_ERR_TYPE     ? usmb_py.PyExc_TypeError
	       : e->kind == USMB_ERR_BUFFER   ? usmb_py.PyExc_BufferError
	       : e->kind == USMB_ERR_MEMORY   ? usmb_py.PyExc_MemoryError
	       : e->kind == USMB_ERR_OVERFLOW ? usmb_py.PyExc_OverflowError
	                                      : usmb_py.PyExc_RuntimeError;
}

int usmb_raise_go(const usmb_goerr *e)
{
	usmb_raise(usmb_goerr_exception(e), "%s", e->message);
	return -1;
}

int usmb_go_allowed(void)
{
	if (!usmb_py_in_child()) return 0;
	usmb_raise(usmb_py.PyExc_RuntimeError,
	           "usmbridge: this process is a fork of one that used usmbridge; exports and releases still work "
	           "here, the rest needs a fresh process (multiprocessing's \"spawn\")");
	return -1;
}

const char *usmb_type_name(PyObject *o, char *buf, size_t n)
{
	PyObject *name = usmb_py.PyType_GetName(Py_TYPE(o));
	const char *s = name ? usmb_py.PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	snprintf(buf, n, "%s", s ? s : "object");
	Py_XDECREF(name);
	if (!s) usmb_py.PyErr_Clear();
	return buf;
}

/* ---- arguments ------------------------------------------------------------------------------ */

static int find_name(PyObject *key, PyObject *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (names[i] == key) return i;
	for (int i = 0; i < count; i++)
		if (names[i] && usmb_py.PyUnicode_Compare(names[i], key) == 0) return i;
	return -1;
}

int usmb_args(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject *const *names,
              int count, int min, int maxpos, PyObject **slots)
{
	if (n > maxpos) {
		usmb_raise(usmb_py.PyExc_TypeError, "%s() takes %d positional arguments at most, %lld were given", func,
		           maxpos, (long long)n);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) slots[i] = args[i];
	Py_ssize_t extra = kwnames ? usmb_py.PyTuple_Size(kwnames) : 0;
	for (Py_ssize_t k = 0; k < extra; k++) {
		PyObject *key = usmb_py.PyTuple_GetItem(kwnames, k);
		int i = find_name(key, names, count);
		if (i < 0 || slots[i]) {
			const char *s = usmb_py.PyUnicode_AsUTF8AndSize(key, NULL);
			usmb_raise(usmb_py.PyExc_TypeError,
			           i < 0 ? "%s() has no keyword argument \"%s\"" : "%s() was given \"%s\" twice", func,
			           s ? s : "?");
			return -1;
		}
		slots[i] = args[n + k];
	}
	for (int i = 0; i < min; i++)
		if (!slots[i]) {
			const char *s = names[i] ? usmb_py.PyUnicode_AsUTF8AndSize(names[i], NULL) : "the first";
			usmb_raise(usmb_py.PyExc_TypeError, "%s() misses an argument: %s", func, s ? s : "?");
			return -1;
		}
	return 0;
}

/* ---- functions that Go answers ------------------------------------------------------------------ */

int usmb_open_sycl(void)
{
	usmb_goerr err;
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0) return -1;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int r = usmb_go_open(&err);
	usmb_py.PyEval_RestoreThread(saved);
	if (r < 0) usmb_raise_go(&err);
	return r == 1 ? 0 : -1;
}

static PyObject *py_stats(PyObject *m, PyObject *unused)
{
	usmb_stat *list = NULL;
	int64_t n = 0;
	usmb_goerr err;
	(void)m;
	(void)unused;
	usmb_owner_drain();
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0) return NULL;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int r = usmb_go_stats(&list, &n, &err);
	usmb_py.PyEval_RestoreThread(saved);
	if (r < 0) {
		usmb_raise_go(&err);
		return NULL;
	}
	PyObject *dict = usmb_py.PyDict_New();
	for (int64_t i = 0; i < n && dict; i++) {
		PyObject *v = usmb_py.PyLong_FromLongLong(list[i].value);
		if (!v || usmb_py.PyDict_SetItemString(dict, list[i].name, v) < 0) Py_CLEAR(dict);
		Py_XDECREF(v);
	}
	free(list);
	return dict;
}

static PyObject *plain_repr(usmb_array *a, PyObject *body)
{
	PyObject *shape = usmb_tuple_i64(usmb_shape(a), a->ndim);
	PyObject *dtype = usmb_py.PyObject_GetAttr((PyObject *)a, usmb_name.dtype);
	usmb_place *place = usmb_array_place(a);
	static const char *const kinds[] = {"", "device", "shared", "host"};
	PyObject *r = NULL;
	if (shape && dtype && place)
		r = usmb_py.PyUnicode_FromFormat(
		        body ? "Array(%V, dtype=%U, device=%s, usm_type=%s)"
			     : "<Array%V at memory of a fork, dtype=%U, device=%s, usm_type=%s>",
		        body, "", dtype, place->filter, kinds[place->kind & 3]);
	else if (shape && dtype)
		r = usmb_py.PyUnicode_FromFormat("Array(%V, dtype=%U, device=host)", body, "", dtype);
	Py_XDECREF(shape);
	Py_XDECREF(dtype);
	return r;
}

PyObject *usmb_array_repr(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	usmb_array *read = a;
	PyObject *host = NULL, *body = NULL;
	usmb_where w;
	usmb_goerr err;
	char *text = NULL;
	err.kind = USMB_ERR_NONE;
	usmb_owner_drain();
	if (usmb_py_in_child()) {
		body = usmb_py.PyUnicode_FromString("...");
	} else {
		memset(&w, 0, sizeof w);
		w.host = 1;
		if (!(a->flags & USMB_ARR_READ) || !usmb_array_aligned(a)) {
			host = usmb_copy_to(a, &w);
			if (!host) return NULL;
			read = (usmb_array *)host;
		}
		if (usmb_array_wait(read) < 0) goto done;
		usmb_dl_tensor t = {read->first,      {USMB_DL_CPU, 0},   read->ndim, read->dtype,
		                    usmb_shape(read), usmb_strides(read), 0};
		PyThreadState *saved = usmb_py.PyEval_SaveThread();
		int r = usmb_go_text(&t, (read->flags & USMB_ARR_PADDED) != 0, 6, &text, &err);
		usmb_py.PyEval_RestoreThread(saved);
		if (r < 0) {
			usmb_raise_go(&err);
			goto done;
		}
		body = usmb_py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
		free(text);
	}
done:
	Py_XDECREF(host);
	PyObject *out = body ? plain_repr(a, body) : NULL;
	Py_XDECREF(body);
	return out;
}

/* ---- the module ------------------------------------------------------------------------------------ */

static PyMethodDef functions[] = {
        {"devices", USMB_PY_CFUNC(usmb_py_devices), METH_NOARGS,
	 "devices()\n--\n\nThe SYCL root devices in the order of their DLPack ids, then the host backend."},
        {"empty", USMB_PY_CFUNC(usmb_py_empty), METH_FASTCALL | METH_KEYWORDS,
	 "empty(shape, dtype=\"float32\", *, usm_type=\"device\", sycl_queue=None, device=None, order=\"C\")\n--\n\n"
	 "A new array without values. device=\"host\" is the host backend, where usm_type means nothing."},
        {"zeros", USMB_PY_CFUNC(usmb_py_zeros), METH_FASTCALL | METH_KEYWORDS,
	 "zeros(shape, dtype=\"float32\", *, usm_type=\"device\", sycl_queue=None, device=None, order=\"C\")\n--\n\n"
	 "A new array of zeros; see empty."},
        {"asarray", USMB_PY_CFUNC(usmb_py_asarray), METH_FASTCALL | METH_KEYWORDS,
	 "asarray(obj, /, *, dtype=None, usm_type=None, device=None, copy=None)\n--\n\n"
	 "The array of obj: by its __sycl_usm_array_interface__, else DLPack, else its buffer,\n"
	 "else as a nested sequence of numbers. Copies only where it must, or with copy=True."},
        {"from_dlpack", USMB_PY_CFUNC(usmb_from_dlpack), METH_FASTCALL | METH_KEYWORDS,
	 "from_dlpack(x, /, *, device=None, copy=None)\n--\n\n"
	 "The array of an object with __dlpack__ (or of a DLPack capsule), on the same memory\n"
	 "unless device or copy ask for something else."},
        {"from_usm_array_interface", USMB_PY_CFUNC(usmb_from_suai), METH_O,
	 "from_usm_array_interface(obj, /)\n--\n\nThe array of obj's __sycl_usm_array_interface__, never a copy."},
        {"stats", USMB_PY_CFUNC(py_stats), METH_NOARGS, "stats()\n--\n\nThe memory manager's counters, a dict."},
        {NULL, NULL, 0, NULL},
};

static const char module_doc[] =
        "SYCL unified shared memory shared without copies, by __sycl_usm_array_interface__ and DLPack.";

/* Size 0: whoever imports it again, another interpreter too, comes through the
   init function. */
static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "usmbridge", module_doc, 0, functions, NULL, NULL, NULL, NULL,
};

static int intern_names(void)
{
#define X(n) \
	if (!(usmb_name.n = usmb_py.PyUnicode_InternFromString(#n))) return -1;
	USMB_NAMES(X)
#undef X
	return 0;
}

/* Before Python goes: what is cached goes first, then Go's drainer of Python's
   list is stopped, with the lock dropped so that it can finish. */
static void at_exit(void)
{
	usmb_owner_drain();
	usmb_suai_clear();
	usmb_typeinfo_clear();
	usmb_export_clear();
	if (usmb_py_in_child()) return;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	usmb_go_stop();
	usmb_py.PyEval_RestoreThread(saved);
	usmb_owner_drain();
	usmb_owner_clear();
}

/* Tells Go sys.path. What is odd in it is passed over. */
static void tell_paths(void)
{
	PyObject *path = usmb_py.PySys_GetObject("path"); /* borrowed */
	PyObject *newline = usmb_py.PyUnicode_FromString("\n"), *text = NULL;
	PyObject *clean = usmb_py.PyList_New(0);
	Py_ssize_t length, n = path && PyList_Check(path) ? usmb_py.PyList_Size(path) : 0;
	for (Py_ssize_t i = 0; clean && i < n; i++) {
		PyObject *entry = usmb_py.PyList_GetItem(path, i);
		if (PyUnicode_Check(entry)) usmb_py.PyList_Append(clean, entry);
	}
	if (clean && newline) text = usmb_py.PyUnicode_Join(newline, clean);
	const char *s = text ? usmb_py.PyUnicode_AsUTF8AndSize(text, &length) : NULL;
	if (s && !usmb_py_in_child()) usmb_go_paths((char *)s, (uint64_t)length);
	Py_XDECREF(text);
	Py_XDECREF(clean);
	Py_XDECREF(newline);
	usmb_py.PyErr_Clear();
}

static PyObject *module; /* one per process: its types are */

PyObject *usmb_pymod_init(void)
{
	if (module) return Py_NewRef(module);
	if (intern_names() < 0) return NULL;
	PyObject *m = usmb_py.PyModule_Create2(&definition, USMB_PYTHON_ABI_VERSION);
	if (!m) return NULL;
	if (usmb_array_register(m) < 0 || usmb_exchange_register() < 0 || usmb_device_register(m) < 0 ||
	    usmb_syclref_register(m) < 0 || usmb_suai_register() < 0 || usmb_import_register() < 0 ||
	    usmb_cute_register(m) < 0 || usmb_py.PyModule_AddStringConstant(m, "__version__", usmb_pymod_version) < 0) {
		Py_DECREF(m);
		return NULL;
	}
	usmb_py_at_exit(at_exit);
	tell_paths();
	module = Py_NewRef(m);
	return m;
}
