/* module.c: the module usmbridge._native, and the package usmbridge in an interpreter that a Go
   program hosts. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create.h"
#include "cute.h"
#include "dpnp.h"
#include "exchange.h"
#include "fork.h"
#include "handover.h"
#include "module.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

char usmb_pymod_version[64] = "0";

/* ---- functions that Go answers ------------------------------------------------------------------ */

static PyObject *py_stats(PyObject *m, PyObject *unused)
{
	(void)m;
	(void)unused;
	usmb_owner_drain();
	if (!usmb_py_in_child()) usmb_owner_settle(USMB_SETTLE_ENDED);
	return usmb_counters(usmb_go_stats);
}

/* The report of python -m usmbridge. Arguments: as JSON, and version, executable and prefix of
   Python. */
static PyObject *py_info(PyObject *m, PyObject *args)
{
	int as_json = 0;
	const char *version, *executable, *prefix;
	char *text = NULL;
	(void)m;
	if (!PyArg_ParseTuple(args, "psss:_info", &as_json, &version, &executable, &prefix)) return NULL;
	if (usmb_go_allowed() < 0) return NULL;
	USMB_GO(usmb_go_info(as_json, (char *)version, (char *)executable, (char *)prefix, &text, &err));
	if (r < 0) return NULL;
	PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	free(text);
	return out;
}

static PyObject *py_trim(PyObject *m, PyObject *unused)
{
	uint64_t bytes = 0;
	(void)m;
	(void)unused;
	usmb_owner_drain();
	if (usmb_go_allowed() < 0) return NULL;
	usmb_owner_settle(USMB_SETTLE_ALL);
	PyThreadState *saved = usmb_py_release_gil();
	usmb_go_trim(&bytes);
	usmb_py_acquire_gil(saved);
	return PyLong_FromUnsignedLongLong(bytes);
}

/* _bound_owners(): see USMB_SETTLE_BOUND. */
static PyObject *py_bound_owners(PyObject *m, PyObject *unused)
{
	(void)m;
	(void)unused;
	usmb_owner_settle(USMB_SETTLE_BOUND);
	Py_RETURN_NONE;
}

static PyObject *py_cuda_context(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
	usmb_cuda_current c;
	(void)m;
	if (n > 1) return usmb_raise(PyExc_TypeError, "_cuda_context takes at most one context");
	usmb_cuda_save(&c);
	if (!c.entered) Py_RETURN_NONE;
	if (n == 0) return PyLong_FromVoidPtr(c.before);
	c.before = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(args[0]);
	if (PyErr_Occurred()) return NULL;
	usmb_cuda_leave(&c);
	Py_RETURN_NONE;
}

/* Sets the limit of the process's pools, for usmbridge.dask. */
static PyObject *py_set_limit(PyObject *m, PyObject *bytes)
{
	(void)m;
	usmb_owner_drain();
	unsigned long long n = PyLong_AsUnsignedLongLong(bytes);
	if (n == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
	if (usmb_go_allowed() < 0) return NULL;
	USMB_GO(usmb_go_set_limit(n, &err));
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* Whether this process is a fork of one that used the module. */
static PyObject *py_in_child(PyObject *m, PyObject *unused)
{
	(void)m;
	(void)unused;
	return PyBool_FromLong(usmb_py_in_child());
}

/* _set_paths(lines): passes sys.path to Go, which sets the variable of the OpenCL drivers. Returns its value if
   it was not set before, else None. Warns if that is too late, because SYCL will find no device and does not
   report why. */
static PyObject *py_set_paths(PyObject *m, PyObject *lines)
{
	static const char drivers[] = "OCL_ICD_FILENAMES";
	static int done;
	usmb_goerr err;
	char *s;
	Py_ssize_t n;
	(void)m;
	if (PyBytes_AsStringAndSize(lines, &s, &n) < 0) return NULL;
	if (done || usmb_py_in_child()) Py_RETURN_NONE;
	done = 1;
	int before = getenv(drivers) != NULL;
	int r = usmb_go_paths(s, (uint64_t)n, &err);
	if (r < 0 && PyErr_WarnEx(PyExc_RuntimeWarning, err.message, 1) < 0) return NULL;
	const char *set = before ? NULL : getenv(drivers);
	if (!set) Py_RETURN_NONE;
	return PyUnicode_DecodeFSDefault(set);
}

/* ---- the module ------------------------------------------------------------------------------------ */

static PyMethodDef functions[] = {
        {"devices", USMB_PY_CFUNC(usmb_py_devices), METH_NOARGS, NULL},
        {"empty", USMB_PY_CFUNC(usmb_py_empty), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"zeros", USMB_PY_CFUNC(usmb_py_zeros), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"asarray", USMB_PY_CFUNC(usmb_py_asarray), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"from_dlpack", USMB_PY_CFUNC(usmb_from_dlpack), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"from_usm_array_interface", USMB_PY_CFUNC(usmb_from_suai), METH_O, NULL},
        {"_wait_at", USMB_PY_CFUNC(usmb_py_wait_at), METH_FASTCALL, NULL},
        {"_described", USMB_PY_CFUNC(usmb_py_described), METH_FASTCALL, NULL},
        {"_unpickle", USMB_PY_CFUNC(usmb_py_unpickle), METH_FASTCALL, NULL},
        {"_dtype_of", USMB_PY_CFUNC(usmb_py_dtype_of), METH_O, NULL},
        {"_bytes_of", USMB_PY_CFUNC(usmb_py_bytes_of), METH_O, NULL},
        {"_of_buffer", USMB_PY_CFUNC(usmb_py_of_buffer), METH_O, NULL},
        {"_of_swapped", USMB_PY_CFUNC(usmb_py_of_swapped), METH_O, NULL},
        {"_of_bytes", USMB_PY_CFUNC(usmb_py_of_bytes), METH_VARARGS, NULL},
        {"_in_child", USMB_PY_CFUNC(py_in_child), METH_NOARGS, NULL},
        {"stats", USMB_PY_CFUNC(py_stats), METH_NOARGS, NULL},
        {"trim", USMB_PY_CFUNC(py_trim), METH_NOARGS, NULL},
        {"_cuda_context", USMB_PY_CFUNC(py_cuda_context), METH_FASTCALL, NULL},
        {"_bound_owners", USMB_PY_CFUNC(py_bound_owners), METH_NOARGS, NULL},
        {"_share_export", USMB_PY_CFUNC(usmb_py_share_export), METH_VARARGS, NULL},
        {"_share_revoke", USMB_PY_CFUNC(usmb_py_share_revoke), METH_O, NULL},
        {"_share_open", USMB_PY_CFUNC(usmb_py_share_open), METH_VARARGS, NULL},
        {"_share_attach", USMB_PY_CFUNC(usmb_py_share_attach), METH_VARARGS, NULL},
        {"_share_names", USMB_PY_CFUNC(usmb_py_share_names), METH_VARARGS, NULL},
        {"_share_listen", USMB_PY_CFUNC(usmb_py_share_listen), METH_VARARGS, NULL},
        {"_share_publish", USMB_PY_CFUNC(usmb_py_share_publish), METH_VARARGS, NULL},
        {"_share_withdraw", USMB_PY_CFUNC(usmb_py_share_withdraw), METH_VARARGS, NULL},
        {"_share_close", USMB_PY_CFUNC(usmb_py_share_close), METH_VARARGS, NULL},
        {"_share_end_with", USMB_PY_CFUNC(usmb_py_share_end_with), METH_VARARGS, NULL},
        {"_share_stats", USMB_PY_CFUNC(usmb_py_share_stats), METH_NOARGS, NULL},
        {"_defaults_from", USMB_PY_CFUNC(usmb_py_defaults_from), METH_O, NULL},
        {"_computes_under", USMB_PY_CFUNC(usmb_py_computes_under), METH_O, NULL},
        {"_fork_limit", USMB_PY_CFUNC(usmb_py_fork_limit), METH_O, NULL},
        {"_set_limit", USMB_PY_CFUNC(py_set_limit), METH_O, NULL},
        {"_set_make_room", USMB_PY_CFUNC(usmb_py_set_make_room), METH_O, NULL},
        {"_set_paths", USMB_PY_CFUNC(py_set_paths), METH_O, NULL},
        {"_info", USMB_PY_CFUNC(py_info), METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

/* The functions have usmbridge as their module, where users find them; the module itself is
   usmbridge._native. Size 0: a second import, also in another interpreter, calls the init function
   again. */
static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        "usmbridge",
        "C part of the package usmbridge, which has its documentation.",
        0,
        functions,
        NULL,
        NULL,
        NULL,
        NULL,
};

/* Runs before Python ends: frees the caches, then stops Go's drainer of Python's list, with the GIL
   dropped so that it can finish. */
static void at_exit(void)
{
	usmb_owner_drain();
	usmb_suai_clear();
	usmb_syclref_clear();
	usmb_dpnp_clear();
	usmb_typeinfo_clear();
	usmb_dlpack_clear();
	usmb_defaults_clear();
	if (usmb_py_in_child()) return;
	usmb_kept_clear();
	PyThreadState *saved = PyEval_SaveThread();
	usmb_go_stop();
	PyEval_RestoreThread(saved);
	usmb_owner_drain();
	usmb_owner_clear();
}

static PyObject *module; /* one for each process, as its types are */

PyObject *usmb_pymod_init(void)
{
	if (module) return Py_NewRef(module);
	usmb_storage_register();
	usmb_dpnp_register();
	if (usmb_support_register() < 0) return NULL;
	usmb_document("", functions);
	PyObject *m = PyModule_Create2(&definition, USMB_PYTHON_ABI_VERSION);
	if (!m) return NULL;
	if (usmb_array_register(m) < 0 || usmb_dlpack_register() < 0 || usmb_device_register(m) < 0 ||
	    usmb_syclref_register(m) < 0 || usmb_cute_register(m) < 0 || usmb_numba_register(m) < 0 ||
	    usmb_fork_register() < 0 || PyModule_AddStringConstant(m, "__version__", usmb_pymod_version) < 0) {
		Py_DECREF(m);
		return NULL;
	}
	PyObject *name = PyUnicode_FromString("usmbridge._native");
	int named = name && PyObject_SetAttrString(m, "__name__", name) == 0;
	Py_XDECREF(name);
	if (named && !usmb_py_hosted) {
		PyObject *hook = usmb_py_exit_hook();
		named = hook && PyObject_SetAttrString(m, "_exit_hook", hook) == 0;
		Py_XDECREF(hook);
	}
	if (!named) {
		Py_DECREF(m);
		return NULL;
	}
	usmb_py_at_exit(at_exit);
	module = Py_NewRef(m);
	return m;
}

/* ==== The package ============================================================================= */

/* The package usmbridge as a built-in module. The carried importer turns it into the package, with
   the C module as usmbridge._native. */

#define MAX_FILES 64

static struct {
	const char *name;
	const char *data;
	Py_ssize_t size;
} files[MAX_FILES];
static int n_files;

int usmb_package_add(const char *name, const char *data, size_t size)
{
	if (n_files == MAX_FILES) return -1;
	files[n_files].name = name;
	files[n_files].data = data;
	files[n_files].size = (Py_ssize_t)size;
	n_files++;
	return 0;
}

/* A dict from name to bytes of all files but the importer. */
static PyObject *carried(void)
{
	PyObject *dict = PyDict_New();
	for (int i = 1; i < n_files && dict; i++) {
		PyObject *data = PyBytes_FromStringAndSize(files[i].data, files[i].size);
		if (!data || PyDict_SetItemString(dict, files[i].name, data) < 0) Py_CLEAR(dict);
		Py_XDECREF(data);
	}
	return dict;
}

/* Runs the importer's source and returns its names. */
static PyObject *run_importer(void)
{
	enum { FILE_INPUT = 257 };
	if (!n_files) return usmb_raise(PyExc_ImportError, "usmbridge: this program carries no Python sources");
	PyObject *code = Py_CompileString(files[0].data, "<usmbridge>/importer.py", FILE_INPUT);
	PyObject *names = code ? PyDict_New() : NULL;
	PyObject *name = PyUnicode_FromString("usmbridge._importer");
	PyObject *done = NULL;
	if (names && name && PyDict_SetItemString(names, "__name__", name) == 0 &&
	    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) == 0)
		done = PyEval_EvalCode(code, names, names);
	if (!done) Py_CLEAR(names);
	Py_XDECREF(done);
	Py_XDECREF(name);
	Py_XDECREF(code);
	return names;
}

static int package_exec(PyObject *package)
{
	PyObject *native = usmb_pymod_init();
	PyObject *sources = native ? carried() : NULL;
	PyObject *names = sources ? run_importer() : NULL;
	PyObject *install = names ? PyDict_GetItemString(names, "install") : NULL; /* borrowed */
	PyObject *r = NULL;
	if (install)
		r = PyObject_CallFunctionObjArgs(install, package, native, sources, NULL);
	else if (names)
		usmb_raise(PyExc_ImportError, "usmbridge: the carried importer has no install()");
	int failed = !r;
	Py_XDECREF(r);
	Py_XDECREF(names);
	Py_XDECREF(sources);
	Py_XDECREF(native);
	if (failed) return -1;
	usmb_handover_ready = 1;
	return 0;
}

static PyModuleDef_Slot package_slots[] = {{Py_mod_exec, package_exec}, {0, NULL}};
static PyModuleDef package_definition = {
        PyModuleDef_HEAD_INIT, "usmbridge", NULL, 0, NULL, package_slots, NULL, NULL, NULL,
};

PyObject *usmb_package_init(void)
{
	return PyModuleDef_Init(&package_definition);
}
