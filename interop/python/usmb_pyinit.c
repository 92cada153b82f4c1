//go:build linux && cgo

/* Opening libpython, starting the interpreter, being `python3`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "usmb_pyinit.h"
#include "usmb_pymodules.h"

void *usmb_py_open(const char *path, char *err, size_t n)
{
	/* Global, or extension modules (which name no libpython) find no symbols. */
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

/* PEP 741: options by name. The configuration begins as an isolated one; what is
   set here makes it the one of `python3` less the command line and the signals. */
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

/* Settles the locale and UTF-8 mode as `python3` does: without this, a process that
   has no locale (a container, a service) gets ASCII for file names and output.
   PyPreConfig is a struct of some ten ints that only Python itself looks into; the
   room here is plenty. */
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

/* The text of the current exception, which is cleared. */
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
	if (usmb_py_append_modules(NULL)) {
		snprintf(err, n, "out of memory for the built-in modules");
		return -1;
	}
	if (preinitialize(err, n)) return -1;
	if (usmb_py.PyInitConfig_Create && usmb_py.Py_InitializeFromInitConfig) {
		if (initialize_by_name(program, err, n)) return -1;
	} else if (usmb_py.Py_SetProgramName) {
		/* From the program's name the interpreter derives its prefix and, by the
       pyvenv.cfg beside it, the environment's packages. */
		usmb_py.Py_SetProgramName(wide_program);
		Py_InitializeEx(0);
	} else {
		snprintf(err, n, "it has neither Py_InitializeFromInitConfig nor Py_SetProgramName");
		return -1;
	}
	int rc = 0;
	if (usmb_py_install()) {
		take_error(err, n);
		rc = -1;
	}
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

/* multiprocessing's spawn and forkserver start sys.executable, the environment's
   plain python, in which our built-in modules do not exist. A program that has
   imported one needs them in its children too. */
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
	/* What is odd here is told by children that find no such module. */
	if (!res) PyErr_Clear();
	Py_XDECREF(res);
	Py_XDECREF(exe);
	Py_XDECREF(names);
	Py_XDECREF(code);
	PyErr_Restore(type, value, tb);
}

/*
 * The Go runtime has a handler on nearly every signal. Python takes a signal with a
 * handler it does not know for someone else's: no KeyboardInterrupt, and
 * signal.getsignal() says None, which multiprocessing's forkserver cannot restore.
 * Those that the runtime can do without go back to their default, as a fresh process
 * has them; ignored ones (nohup) stay ignored. Go keeps SIGURG, by which it preempts
 * goroutines, SIGPROF, and those of crashes.
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
		case 32:
		case 33: /* 32, 33: the C library's */ continue;
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
	if (usmb_py_append_modules(children_need_host)) {
		fprintf(stderr, "usmpython: out of memory for the built-in modules\n");
		exit(1);
	}
	default_signals();
	int rc = Py_BytesMain(argc, argv);
	/* As python3 does; and a forked child cannot return into Go. */
	exit(rc);
}

int usmb_pyx_initialized(void)
{
	return usmb_py.version && Py_IsInitialized();
}

int usmb_pyx_add_module(const char *name, void *init)
{
	PyObject *(*fn)(void);
	memcpy(&fn, &init, sizeof fn);
	return usmb_py_add_module(name, fn);
}

int usmb_pyx_thread_id(void)
{
	return (int)syscall(SYS_gettid);
}
