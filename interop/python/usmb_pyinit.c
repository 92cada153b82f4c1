//go:build linux && cgo

/* Opening libpython, built-in modules, starting the interpreter and the python3 command line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "usmb_pyinit.h"

/* ---- built-in modules ------------------------------------------------------------------- */

#define MAX_MODULES 8

static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	const char *name;
	PyObject *(*init)(void);
} modules[MAX_MODULES];
static int n_modules;
static int modules_closed;
static void (*first_import)(void);

/* Initialises a registered module. usmb_py_main cannot run code between the start of the
   interpreter and the first import, so this function installs the hooks. */
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
/* The inittab takes functions without a parameter. */
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

int usmb_py_add_module(const char *name, void *function)
{
	PyObject *(*init)(void);
	int rc = -1;
	memcpy(&init, &function, sizeof init);
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

/* Before initialisation: appends the registered modules to the inittab. on_import, if not
   NULL, is called before each module's init function, with the GIL held. */
static int append_modules(void (*on_import)(void))
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

/* ---- starting --------------------------------------------------------------------------- */

void *usmb_py_open(const char *path, char *err, size_t n)
{
	/* RTLD_GLOBAL, because extension modules are not linked to libpython. */
	void *h = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!h) {
		const char *e = dlerror();
		snprintf(err, n, "%s", e ? e : "unknown error of dlopen");
	}
	return h;
}

int usmb_py_in_process(void)
{
	return dlsym(RTLD_DEFAULT, "Py_IsInitialized") != NULL;
}

/* Initialises Python by PEP 741, whose options have names. The initial configuration is
   an isolated one. These options make it that of python3, except for the command line and
   the signal handlers. */
static int initialize_by_name(const char *program, char *err, size_t n)
{
	static const struct {
		const char *name;
		int64_t value;
	} ints[] = {
	        {"isolated", 0},   {"use_environment", 1},         {"user_site_directory", 1}, {"safe_path", 1},
	        {"parse_argv", 0}, {"install_signal_handlers", 0}, {"configure_locale", 1},
	};
	void *c = usmb_py.PyInitConfig_Create();
	if (!c) {
		snprintf(err, n, "out of memory");
		return -1;
	}
	int rc = 0;
	for (size_t i = 0; !rc && i < sizeof ints / sizeof ints[0]; i++)
		rc = usmb_py.PyInitConfig_SetInt(c, ints[i].name, ints[i].value);
	if (!rc) rc = usmb_py.PyInitConfig_SetStr(c, "program_name", program);
	if (!rc) rc = usmb_py.Py_InitializeFromInitConfig(c);
	if (rc) {
		const char *why = NULL;
		usmb_py.PyInitConfig_GetError(c, &why);
		snprintf(err, n, "%s", why ? why : "unknown error of Py_InitializeFromInitConfig");
	}
	usmb_py.PyInitConfig_Free(c);
	return rc;
}

/* Sets the locale and UTF-8 mode as python3 does. Otherwise a process without a locale (a
   container, a service) uses ASCII for file names and output. PyPreConfig has about ten
   ints and only Python accesses them, so the buffer is large enough. */
static int preinitialize(char *err, size_t n)
{
	union {
		long long align;
		char room[2048];
	} config;
	if (!usmb_py.PyPreConfig_InitPythonConfig || !usmb_py.Py_PreInitialize) return 0;
	memset(&config, 0, sizeof config);
	usmb_py.PyPreConfig_InitPythonConfig(&config);
	PyStatus s = usmb_py.Py_PreInitialize(&config);
	if (s.kind == 0) return 0;
	snprintf(err, n, "Py_PreInitialize: %s", s.err_msg ? s.err_msg : "no reason given");
	return -1;
}

/* Writes the text of the current exception to err and clears the exception. */
static void take_error(char *err, size_t n)
{
	PyObject *type, *value, *tb;
	PyErr_Fetch(&type, &value, &tb);
	PyObject *text = value ? PyObject_Str(value) : NULL;
	const char *s = text ? PyUnicode_AsUTF8(text) : NULL;
	snprintf(err, n, "%s", s ? s : "no reason given");
	PyErr_Clear();
	Py_XDECREF(text);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(tb);
}

int usmb_py_initialize(const char *program, const wchar_t *wide_program, char *err, size_t n)
{
	if (append_modules(NULL)) {
		snprintf(err, n, "out of memory for the built-in modules");
		return -1;
	}
	if (preinitialize(err, n)) return -1;
	if (usmb_py.PyInitConfig_Create && usmb_py.Py_InitializeFromInitConfig) {
		if (initialize_by_name(program, err, n)) return -1;
	} else if (usmb_py.Py_SetProgramName) {
		/* The interpreter derives its prefix from the program's name, and the
		   environment's packages from the pyvenv.cfg beside it. */
		usmb_py.Py_SetProgramName(wide_program);
		Py_InitializeEx(0);
	} else {
		snprintf(err, n, "it has neither Py_InitializeFromInitConfig nor Py_SetProgramName");
		return -1;
	}
	int rc = 0;
	usmb_py_hosted = 1;
	if (usmb_py_install()) {
		take_error(err, n);
		rc = -1;
	}
	if (usmb_py_in_child()) usmb_py_end_child(NULL); /* sitecustomize forked */
	PyEval_SaveThread();
	return rc;
}

int usmb_py_adopt_running(char *err, size_t n)
{
	PyGILState_STATE st = PyGILState_Ensure();
	int rc = usmb_py_install();
	if (rc) {
		if (PyErr_Occurred())
			take_error(err, n);
		else
			snprintf(err, n, "Python has ended in this process");
	}
	PyGILState_Release(st);
	return rc;
}

static const char *host_program, *host_children;

/* Runs children.py, once. multiprocessing starts sys.executable, the environment's own
   python, which lacks the registered modules. A program that imported one of them needs
   them in its children too. */
static void children_need_host(void)
{
	enum { FILE_INPUT = 257 };
	static int done;
	if (done || !host_program) return;
	done = 1;
	PyObject *type, *value, *tb;
	PyErr_Fetch(&type, &value, &tb);
	PyObject *code = Py_CompileString(host_children, "<children.py>", FILE_INPUT);
	PyObject *names = code ? PyDict_New() : NULL;
	PyObject *exe = names ? PyUnicode_DecodeFSDefault(host_program) : NULL;
	PyObject *res = NULL;
	if (exe && PyDict_SetItemString(names, "program", exe) == 0 &&
	    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) == 0)
		res = PyEval_EvalCode(code, names, names);
	/* If this fails, children report that they cannot import the module. */
	if (!res) PyErr_Clear();
	Py_XDECREF(res);
	Py_XDECREF(exe);
	Py_XDECREF(names);
	Py_XDECREF(code);
	PyErr_Restore(type, value, tb);
}

/*
 * Restores the default action of the signals that the Go runtime does not need. The
 * runtime has a handler for nearly every signal, and Python leaves signals with a foreign
 * handler alone: there would be no KeyboardInterrupt, and signal.getsignal() would return
 * None, which multiprocessing's forkserver cannot restore. Ignored signals (nohup) stay
 * ignored. Go keeps SIGURG, which preempts goroutines, SIGPROF and the signals of crashes.
 */
static void default_signals(void)
{
	struct sigaction act;
	for (int sig = 1; sig < NSIG; sig++) {
		switch (sig) {
		case SIGURG:
		case SIGPROF:
		case SIGSEGV:
		case SIGBUS:
		case SIGFPE:
		case SIGILL:
		case SIGTRAP:
		case SIGABRT:
		case SIGKILL:
		case SIGSTOP:
		case 32: /* 32 and 33 belong to the C library. */
		case 33: continue;
		}
		if (sigaction(sig, NULL, &act) || act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) continue;
		memset(&act, 0, sizeof act);
		act.sa_handler = SIG_DFL;
		sigaction(sig, &act, NULL);
	}
}

void usmb_py_main(int argc, char **argv, const char *host, const char *children)
{
	host_program = host;
	host_children = children;
	if (append_modules(children_need_host)) {
		fprintf(stderr, "usmpython: out of memory for the built-in modules\n");
		exit(1);
	}
	default_signals();
	int rc = Py_BytesMain(argc, argv);
	/* python3 exits too, and a forked child cannot return to Go. */
	exit(rc);
}

int usmb_py_initialized(void)
{
	return usmb_py.version && Py_IsInitialized();
}

int usmb_py_thread_id(void)
{
	return (int)syscall(SYS_gettid);
}
