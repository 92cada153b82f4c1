//go:build linux && cgo

/* Built-in modules: what is registered before Python starts. */
#include <pthread.h>
#include <string.h>

#include "usmb_pymodules.h"
#include "usmb_pystate.h"

#define MAX_MODULES 8

static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	const char *name;
	PyObject *(*init)(void);
} modules[MAX_MODULES];
static int n_modules;
static int modules_closed;
static void (*first_import)(void);

/* The interpreter that usmb_py_main starts gets no chance to call back before a
   module of ours is imported; each init function therefore goes through one of
   these, which installs the hooks first. */
static PyObject *init_module(int i)
{
	if (usmb_py_install()) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ImportError,
			                "this interpreter is shutting down, or was shut down before in this process");
		return NULL;
	}
	if (first_import) first_import();
	return modules[i].init();
}
#define TRAMPOLINE(i) \
	static PyObject *init_##i(void) \
	{ \
		return init_module(i); \
	}
TRAMPOLINE(0)
TRAMPOLINE(1)
TRAMPOLINE(2)
TRAMPOLINE(3)
TRAMPOLINE(4)
TRAMPOLINE(5)
TRAMPOLINE(6)
TRAMPOLINE(7)
static PyObject *(*const trampolines[MAX_MODULES])(void) = {init_0, init_1, init_2, init_3,
                                                            init_4, init_5, init_6, init_7};

int usmb_py_add_module(const char *name, PyObject *(*init)(void))
{
	int rc = -1;
	pthread_mutex_lock(&modules_lock);
	int i;
	for (i = 0; i < n_modules && strcmp(modules[i].name, name) != 0; i++) {
	}
	if (i < n_modules) {
		rc = modules[i].init == init ? 0 : -1;
	} else if (!modules_closed && n_modules < MAX_MODULES) {
		modules[n_modules].name = name;
		modules[n_modules].init = init;
		n_modules++;
		rc = 0;
	}
	pthread_mutex_unlock(&modules_lock);
	return rc;
}

int usmb_py_append_modules(void (*on_import)(void))
{
	pthread_mutex_lock(&modules_lock);
	modules_closed = 1;
	first_import = on_import;
	int n = n_modules;
	pthread_mutex_unlock(&modules_lock);
	for (int i = 0; i < n; i++)
		if (PyImport_AppendInittab(modules[i].name, trampolines[i])) return -1;
	return 0;
}
