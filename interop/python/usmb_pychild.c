//go:build linux && cgo

/* Forked children: their flag, their signals, their end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "usmb_pychild.h"

_Atomic int usmb_py_forked;

/* ---- signals --------------------------------------------------------------------------- */

/* The actions of the signals when the library was loaded: the default, ignored (nohup), or, if a Python process
   loaded it, handlers of that process. */
static struct sigaction first[NSIG];

/* The handler of the Go runtime for all signals (a sa_sigaction, in the same union); NULL: not known yet. */
static void (*go_handler)(int);

/* The constructor has the first priority that programs may use, so it runs before the
   start of the Go runtime. */
__attribute__((constructor(101))) static void note_first(void)
{
	for (int sig = 1; sig < NSIG; sig++)
		if (sigaction(sig, NULL, &first[sig])) first[sig].sa_handler = SIG_DFL;
}

int usmb_py_note_go_handler(void)
{
	struct sigaction now;
	/* Go installs the same handler for all signals, and always one for SIGURG, which preempts goroutines. */
	if (sigaction(SIGURG, NULL, &now) == 0 && now.sa_handler != SIG_IGN) go_handler = now.sa_handler;
	return go_handler != NULL;
}

/* The Go runtime handles SIGPIPE, which Python ignores. A program that Python starts without restore_signals
   inherits ignored signals, but not handlers. Go needs only the error of the write. */
void usmb_py_ignore_again(void)
{
	struct sigaction now;
	for (int sig = 1; sig < NSIG; sig++)
		if (first[sig].sa_handler == SIG_IGN && sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			signal(sig, SIG_IGN);
}

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

/* In a child: the handlers of Python code for signals of crashes. */
static struct sigaction crash[NSIG];

static int is_go(int sig, struct sigaction *now)
{
	return go_handler && sigaction(sig, NULL, now) == 0 && now->sa_handler == go_handler;
}

/* Calls a handler of Python code, once. That of faulthandler then restores the handler that it replaced and raises the
   signal again, which stays blocked until this function returns. If the replaced one is that of Go, the signal gets its
   first action: Go would print the stacks of the parent's goroutines, and wait for locks of threads that do not exist. */
static void on_crash(int sig, siginfo_t *info, void *context)
{
	struct sigaction now;
	sigaction(sig, &crash[sig], NULL);
	if (crash[sig].sa_flags & SA_SIGINFO)
		crash[sig].sa_sigaction(sig, info, context);
	else
		crash[sig].sa_handler(sig);
	if (is_go(sig, &now)) sigaction(sig, &first[sig], NULL);
}

/* The handler of Go discards signals in a child, because the goroutine that processes them does not run. SIGPIPE is
   ignored, as Python does, so that a write returns an error. */
static void reset_signals(void)
{
	struct sigaction now;
	for (int sig = 1; sig < NSIG; sig++) {
		if (!is_go(sig, &now)) continue;
		if (sig == SIGPIPE)
			signal(sig, SIG_IGN);
		else
			sigaction(sig, &first[sig], NULL);
	}
	for (int i = 0; i < N_FAULTS && go_handler; i++) {
		if (sigaction(faults[i], NULL, &now) || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
			continue;
		if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_crash) continue; /* a child of a child */
		crash[faults[i]] = now;
		now.sa_sigaction = on_crash;
		now.sa_flags = (int)(((unsigned)now.sa_flags | SA_SIGINFO) & ~(SA_NODEFER | (unsigned)SA_RESETHAND));
		sigaction(faults[i], &now, NULL);
	}
}

/* ---- fork ------------------------------------------------------------------------------ */

/* The signal mask of the thread that forks. */
static __thread sigset_t mask;

/* Blocks signals, so that the child receives none before it has reset the handlers. Otherwise a SIGTERM that the parent
   sends immediately after the fork can be lost. */
static void before_fork(void)
{
	sigset_t block;
	sigfillset(&block);
	for (int i = 0; i < N_FAULTS; i++) sigdelset(&block, faults[i]);
	pthread_sigmask(SIG_BLOCK, &block, &mask);
}

static void in_parent(void)
{
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void in_child(void)
{
	atomic_store(&usmb_py_forked, 1);
	reset_signals();
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* Runs when the library is loaded, because a process may fork before Python imports a module
   of this project, and Go does not run in that child either. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- the end --------------------------------------------------------------------------- */

/* Returns a new reference to an attribute of sys, or NULL without an exception if it is missing or None. */
static PyObject *sys_attribute(const char *name)
{
	PyObject *sys = PyImport_ImportModule("sys");
	PyObject *value = sys ? PyObject_GetAttrString(sys, name) : NULL;
	Py_XDECREF(sys);
	if (!value) PyErr_Clear();
	if (value == Py_None) Py_CLEAR(value);
	return value;
}

/* Returns the exit status of a SystemExit. As Python does, it prints a code that is not an int. */
static int status_of_exit(PyObject *exc)
{
	PyObject *code = PyObject_GetAttrString(exc, "code");
	if (!code) PyErr_Clear();
	if (!code) code = Py_NewRef(exc);
	int status = 1;
	if (code == Py_None) {
		status = 0;
	} else if (PyLong_Check(code)) {
		int overflow;
		long long n = PyLong_AsLongLongAndOverflow(code, &overflow);
		status = overflow ? -1 : (int)n;
	} else {
		PyObject *text = PyObject_Str(code), *out = text ? sys_attribute("stderr") : NULL;
		PyObject *line = out ? PyUnicode_FromFormat("%U\n", text) : NULL;
		PyObject *res = line ? PyObject_CallMethod(out, "write", "O", line) : NULL;
		if (!res) PyErr_Clear();
		Py_XDECREF(res);
		Py_XDECREF(line);
		Py_XDECREF(out);
		Py_XDECREF(text);
	}
	Py_DECREF(code);
	return status;
}

/* Returns the current exception, normalized, and clears it. */
static PyObject *raised(void)
{
	PyObject *type, *value, *tb;
	PyErr_Fetch(&type, &value, &tb);
	PyErr_NormalizeException(&type, &value, &tb);
	Py_XDECREF(type);
	Py_XDECREF(tb);
	return value;
}

static int is_exit(PyObject *exc)
{
	return PyType_IsSubtype(Py_TYPE(exc), (PyTypeObject *)PyExc_SystemExit);
}

/* Prints an exception by sys.excepthook and returns the exit status. The hook may raise SystemExit. */
static int print(PyObject *exc)
{
	static const char *const hooks[] = {"excepthook", "__excepthook__"};
	PyObject *tb = PyException_GetTraceback(exc), *res = NULL;
	int status = 1;
	for (size_t i = 0; !res && i < sizeof hooks / sizeof hooks[0]; i++) {
		PyObject *hook = sys_attribute(hooks[i]);
		if (!hook) continue;
		res = PyObject_CallFunctionObjArgs(hook, Py_TYPE(exc), exc, tb ? tb : Py_None, NULL);
		Py_DECREF(hook);
		if (res) continue;
		PyObject *other = raised();
		if (other && is_exit(other)) {
			status = status_of_exit(other);
			res = Py_NewRef(Py_None);
		}
		Py_XDECREF(other);
	}
	Py_XDECREF(res);
	Py_XDECREF(tb);
	return status;
}

/* Flushes a stream that is open. Returns 0 if that fails. */
static int flush(const char *name)
{
	PyObject *stream = sys_attribute(name);
	PyObject *closed = stream ? PyObject_GetAttrString(stream, "closed") : NULL;
	if (stream && !closed) PyErr_Clear(); /* an object of the program: not closed */
	int open = stream && !(closed && PyObject_IsTrue(closed) == 1);
	PyObject *res = open ? PyObject_CallMethod(stream, "flush", NULL) : NULL;
	if (open && !res) PyErr_WriteUnraisable(stream);
	Py_XDECREF(res);
	Py_XDECREF(closed);
	Py_XDECREF(stream);
	return !open || res;
}

void usmb_py_end_child(PyObject *exc)
{
	int status = 0;
	if (exc) status = is_exit(exc) ? status_of_exit(exc) : print(exc);
	Py_XDECREF(exc); /* Frames of its traceback may hold files that are closed now. */
	int flushed = flush("stdout");
	_exit(flush("stderr") && flushed ? status : 120);
}
