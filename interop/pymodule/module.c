/* module.c: the module usmbridge: functions, initialisation, errors, and the
   reading of arguments. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usmb_asarray.h"
#include "usmb_create.h"
#include "usmb_cute.h"
#include "usmb_device.h"
#include "usmb_export.h"
#include "usmb_import.h"
#include "usmb_module.h"
#include "usmb_storage.h"
#include "usmb_suai.h"
#include "usmb_support.h"
#include "usmb_syclref.h"
#include "usmb_tensor.h"
#include "usmb_typeinfo.h"

char usmb_pymod_version[64] = "0";

/* ---- functions that Go answers ------------------------------------------------------------------ */

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
	if (usmb_support_register() < 0) return NULL;
	PyObject *m = usmb_py.PyModule_Create2(&definition, USMB_PYTHON_ABI_VERSION);
	if (!m) return NULL;
	if (usmb_array_register(m) < 0 || usmb_exchange_register() < 0 || usmb_device_register(m) < 0 ||
	    usmb_syclref_register(m) < 0 || usmb_suai_register() < 0 || usmb_tensor_register() < 0 ||
	    usmb_cute_register(m) < 0 || usmb_py.PyModule_AddStringConstant(m, "__version__", usmb_pymod_version) < 0) {
		Py_DECREF(m);
		return NULL;
	}
	usmb_py_at_exit(at_exit);
	tell_paths();
	module = Py_NewRef(m);
	return m;
}
