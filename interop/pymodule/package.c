/* package.c: the package usmbridge in an interpreter that a program of Go hosts: a
   built-in module that the carried importer turns into the package, with the C module
   as usmbridge._native in it. */
#include "usmb_handover.h"
#include "usmb_module.h"
#include "usmb_package.h"
#include "usmb_support.h"

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

/* All files but the importer, a dict from name to bytes. */
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

/* The importer's names, after its source has run. */
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

static PyModuleDef_Slot slots[] = {{Py_mod_exec, package_exec}, {0, NULL}};
static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "usmbridge", NULL, 0, NULL, slots, NULL, NULL, NULL,
};

PyObject *usmb_package_init(void)
{
	return PyModuleDef_Init(&definition);
}
