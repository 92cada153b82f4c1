#include "adopt.h"

extern int usmb_adopted_check(void);

static PyObject *run(PyObject *self, PyObject *unused)
{
	(void)self;
	(void)unused;
	if (usmb_py_in_child()) {
		PyErr_SetString(PyExc_RuntimeError, "forked");
		return NULL;
	}
	if (usmb_adopted_check()) return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"run", run, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef def = {PyModuleDef_HEAD_INIT, "usmb_adopted", NULL, 0, functions, NULL, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyObject *PyInit_usmb_adopted(void)
{
	if (usmb_py_adopt()) return NULL;
	return PyModule_Create2(&def, USMB_PYTHON_ABI_VERSION);
}
