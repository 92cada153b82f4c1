//go:build linux && cgo

/* The interpreter as this process has it: entering, drains, its end, fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "usmb_pystate.h"

_Atomic int usmb_py_state;
_Atomic int usmb_py_forked;
_Atomic int usmb_py_drain_wanted;

#define MAX_HOOKS 16

static usmb_py_drain_fn drains[MAX_HOOKS];
static _Atomic int n_drains;
static usmb_py_drain_fn exits[MAX_HOOKS];
static _Atomic int n_exits;
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;

/* Threads between usmb_py_enter and usmb_py_leave, and kicks in progress. */
static _Atomic long inside;
static __thread int depth;

/* ---- entering and leaving -------------------------------------------------------- */

/*
 * A thread's state in Python is made at its first entry and kept until the thread
 * ends. Making it anew each time, as PyGILState_Ensure and Release do by themselves,
 * costs ten microseconds where Python code runs (its stack is mapped and unmapped),
 * and would forget the thread's threading.local and context variables.
 */
static __thread int kept;

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));
extern void *__dso_handle;

static void forget_thread(void *unused)
{
	(void)unused;
	atomic_fetch_add(&inside, 1);
	if (usmb_py_alive() && !usmb_py_in_child()) {
		PyGILState_Ensure();
		PyGILState_Release(USMB_PYGILSTATE_LOCKED);   /* that one, the lock stays */
		PyGILState_Release(USMB_PYGILSTATE_UNLOCKED); /* the kept one: deletes the state */
	}
	atomic_fetch_sub(&inside, 1);
}

/* GIL held by an Ensure that found no state (had is 0): one more, never released. */
static void keep_thread(int had)
{
	kept = 1;
	if (had) return; /* Python's own thread, which ends it itself */
	PyGILState_Ensure();
	if (__cxa_thread_atexit_impl) __cxa_thread_atexit_impl(forget_thread, NULL, &__dso_handle);
}

int usmb_py_enter(PyGILState_STATE *st)
{
	if (depth == 0) atomic_fetch_add(&inside, 1);
	int code = USMB_PYE_OK;
	if (usmb_py_in_child())
		code = USMB_PYE_CHILD;
	else if (atomic_load(&usmb_py_state) != USMB_PY_ALIVE)
		code = atomic_load(&usmb_py_state) == USMB_PY_GONE ? USMB_PYE_GONE : USMB_PYE_NONE;
	if (code) {
		if (depth == 0) atomic_fetch_sub(&inside, 1);
		return code;
	}
	depth++;
	int had = kept || PyGILState_GetThisThreadState() != NULL;
	*st = PyGILState_Ensure();
	if (!kept) keep_thread(had);
	usmb_py_drain();
	return USMB_PYE_OK;
}

void usmb_py_leave(PyGILState_STATE st)
{
	/* Not inside of another: what an operation gave may point into an object that a
	   finalizer changes. */
	if (depth == 1) usmb_py_drain();
	PyGILState_Release(st);
	if (--depth == 0) atomic_fetch_sub(&inside, 1);
}

/*
 * PyGILState_Check will not do: it says yes on every thread once there has been a
 * subinterpreter. The thread's own state is a thread-local; the current one is that of
 * whoever holds the GIL up to 3.11, and later this thread's while it does.
 */
int usmb_py_holds_gil(void)
{
	PyThreadState *(*current)(void) = usmb_py.PyThreadState_GetUnchecked;
	if (!current) current = usmb_py._PyThreadState_UncheckedGet;
	if (!current || !usmb_py_alive()) return 0;
	PyThreadState *mine = PyGILState_GetThisThreadState();
	if (!mine || current() != mine) return 0;
	return PyInterpreterState_GetID(PyThreadState_GetInterpreter(mine)) == 0;
}

/* ---- drains ------------------------------------------------------------------------ */

static int add_hook(usmb_py_drain_fn *list, _Atomic int *n, usmb_py_drain_fn fn)
{
	int rc = -1;
	pthread_mutex_lock(&hooks_lock);
	int have = atomic_load(n), i;
	for (i = 0; i < have && list[i] != fn; i++) {
	}
	if (i < have) {
		rc = 0; /* registered already */
	} else if (have < MAX_HOOKS) {
		list[have] = fn;
		atomic_store_explicit(n, have + 1, memory_order_release);
		rc = 0;
	}
	pthread_mutex_unlock(&hooks_lock);
	return rc;
}

int usmb_py_add_drain(usmb_py_drain_fn fn)
{
	return add_hook(drains, &n_drains, fn);
}
int usmb_py_at_exit(usmb_py_drain_fn fn)
{
	return add_hook(exits, &n_exits, fn);
}

/* References to give up, a stack pushed by anyone and taken whole. */
struct later {
	struct later *next;
	PyObject *object;
};
static _Atomic(struct later *) laters;

static void drain_laters(void)
{
	struct later *l = atomic_exchange_explicit(&laters, NULL, memory_order_acquire);
	while (l) {
		struct later *next = l->next;
		Py_DECREF(l->object);
		free(l);
		l = next;
	}
}

void usmb_py_decref_later(PyObject *o)
{
	struct later *l = usmb_py_alive() ? malloc(sizeof *l) : NULL;
	if (!l) return;
	l->object = o;
	l->next = atomic_load_explicit(&laters, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&laters, &l->next, l, memory_order_release,
	                                              memory_order_relaxed)) {
	}
	usmb_py_kick();
}

static int draining; /* under the GIL */

void usmb_py_drain_now(void)
{
	PyObject *type, *value, *tb;
	if (draining || !usmb_py_alive()) return;
	draining = 1;
	PyErr_Fetch(&type, &value, &tb);
	while (atomic_exchange(&usmb_py_drain_wanted, 0)) {
		drain_laters();
		int n = atomic_load_explicit(&n_drains, memory_order_acquire);
		for (int i = 0; i < n; i++) {
			drains[i]();
			if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
		}
	}
	PyErr_Restore(type, value, tb);
	draining = 0;
}

static int pending(void *unused)
{
	(void)unused;
	usmb_py_drain_now();
	return 0;
}

void usmb_py_kick(void)
{
	if (atomic_exchange(&usmb_py_drain_wanted, 1) || usmb_py_in_child()) return;
	/* Counted as inside, so that the exit hook waits for a call that is under way. */
	if (depth == 0) atomic_fetch_add(&inside, 1);
	if (usmb_py_alive()) Py_AddPendingCall(pending, NULL);
	if (depth == 0) atomic_fetch_sub(&inside, 1);
}

/* ---- the end of Python --------------------------------------------------------------- */

/* How long the exit hook lets other threads finish what they do in Python. Those
   that have not left by then are ended by the interpreter as daemon threads are. */
#define EXIT_WAIT_MS 2000

static PyObject *exit_hook(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	if (!usmb_py_alive()) Py_RETURN_NONE;
	int n = atomic_load(&n_exits);
	while (n-- > 0) {
		exits[n]();
		if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
	}
	atomic_store(&usmb_py_drain_wanted, 1);
	usmb_py_drain_now();
	atomic_store(&usmb_py_state, USMB_PY_GONE);
	if (usmb_py_in_child()) Py_RETURN_NONE;
	/* A thread that asks for the GIL of a finalized interpreter is killed or hangs:
     let those that were admitted come and go first. */
	PyThreadState *ts = PyEval_SaveThread();
	long self_inside = depth > 0;
	for (int ms = 0; ms < EXIT_WAIT_MS && atomic_load(&inside) > self_inside; ms++) {
		struct timespec t = {0, 1000000};
		nanosleep(&t, NULL);
	}
	PyEval_RestoreThread(ts);
	Py_RETURN_NONE;
}

static void in_child(void)
{
	draining = 0; /* by a thread that this process does not have */
	atomic_store(&usmb_py_forked, 1);
	atomic_store(&inside, depth > 0);
}

/* At load time: a process may fork before Python has imported anything of ours, and Go, if it
   runs by then, does not run in that child either. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static int install_exit_hook(void)
{
	static PyMethodDef def = {"usmbridge_exit", exit_hook, METH_NOARGS, NULL};
	int rc = -1;
	PyObject *mod = PyImport_ImportModule("atexit");
	PyObject *fn = PyCFunction_NewEx(&def, NULL, NULL);
	PyObject *res = NULL;
	if (mod && fn) res = PyObject_CallMethod(mod, "register", "O", fn);
	if (res) rc = 0;
	Py_XDECREF(res);
	Py_XDECREF(fn);
	Py_XDECREF(mod);
	return rc;
}

int usmb_py_install(void)
{
	/* Types, caches and the exit hook are the main interpreter's. */
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
		PyErr_SetString(PyExc_ImportError,
		                "usmbridge works in the main interpreter alone, and this is a subinterpreter: "
		                "import it in the main one, or use a process of its own");
		return -1;
	}
	if (usmb_py_alive()) return 0;
	if (atomic_load(&usmb_py_state) == USMB_PY_GONE) return -1;
	if (install_exit_hook()) return -1;
	atomic_store(&usmb_py_state, USMB_PY_ALIVE);
	return 0;
}

/* ---- being adopted -------------------------------------------------------------------- */

static unsigned char ignored[NSIG];

/* The lowest priority that is not the system's own: before Go's start, which has none. */
__attribute__((constructor(101))) static void note_ignored(void)
{
	struct sigaction now;
	for (int sig = 1; sig < NSIG; sig++)
		ignored[sig] = sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void ignore_again(void)
{
	struct sigaction now;
	for (int sig = 1; sig < NSIG; sig++)
		if (ignored[sig] && sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN) signal(sig, SIG_IGN);
}

int usmb_py_adopt(void)
{
	const char *missing = NULL;
	if (usmb_py_load(NULL, &missing)) return -1;
	if (!Py_IsInitialized()) return -1;
	if (!usmb_py_alive()) ignore_again(); /* once: what is changed later is the program's wish */
	return usmb_py_install();
}
