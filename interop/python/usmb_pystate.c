//go:build linux && cgo

/* The state of the interpreter in this process: entering, drains, shutdown, fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "usmb_pystate.h"

_Atomic int usmb_py_state;
_Atomic int usmb_py_drain_wanted;

#define MAX_HOOKS 16

static usmb_py_drain_fn drains[MAX_HOOKS];
static _Atomic int n_drains;
static usmb_py_drain_fn exits[MAX_HOOKS];
static _Atomic int n_exits;
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;

/* The number of threads in usmb_py_kick or between usmb_py_enter and usmb_py_leave. */
static _Atomic long inside;
/* Nested calls of usmb_py_enter on this thread. */
static __thread int depth;

/* ---- entering and leaving -------------------------------------------------------- */

/*
 * Set if this thread keeps its Python thread state until it ends. PyGILState_Ensure and
 * Release alone create and delete the state at each entry. That costs ten microseconds if
 * Python code runs (its stack is mapped and unmapped) and loses the thread's
 * threading.local and context variables.
 */
static __thread int kept;

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));
extern void *__dso_handle;

/* Deletes the kept thread state when the thread ends. */
static void forget_thread(void *unused)
{
	(void)unused;
	atomic_fetch_add(&inside, 1);
	if (usmb_py_alive() && !usmb_py_in_child()) {
		PyGILState_Ensure();
		PyGILState_Release(USMB_PYGILSTATE_LOCKED);   /* of this Ensure; the GIL stays held */
		PyGILState_Release(USMB_PYGILSTATE_UNLOCKED); /* of keep_thread: deletes the state */
	}
	atomic_fetch_sub(&inside, 1);
}

/* GIL: keeps the thread state that PyGILState_Ensure created, by a second Ensure. had: the
   thread had a state before, which Python deletes. */
static void keep_thread(int had)
{
	kept = 1;
	if (had) return;
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
	if (usmb_py_in_child()) usmb_py_end_child(NULL); /* a finalizer forked */
	return USMB_PYE_OK;
}

void usmb_py_leave(PyGILState_STATE st)
{
	/* Not in a nested call: a finalizer may change an object to whose memory the result of an
	   earlier operation points. */
	if (depth == 1) usmb_py_drain();
	/* The process forked since usmb_py_enter, which fails in a child. */
	if (usmb_py_in_child()) usmb_py_end_child(NULL);
	PyGILState_Release(st);
	if (--depth == 0) atomic_fetch_sub(&inside, 1);
}

/*
 * PyGILState_Check returns 1 on every thread once a subinterpreter was created. Compare this
 * thread's state with the current one instead. Up to 3.11, the current state is that of the
 * thread that holds the GIL. Later it is this thread's state while it holds the GIL.
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

/* A lock-free stack of references to release. Any thread pushes; a drain takes all. */
struct dropped {
	struct dropped *next;
	PyObject *object;
};
static _Atomic(struct dropped *) dropped;

static void release_dropped(void)
{
	struct dropped *d = atomic_exchange_explicit(&dropped, NULL, memory_order_acquire);
	while (d) {
		struct dropped *next = d->next;
		Py_DECREF(d->object);
		free(d);
		d = next;
	}
}

void usmb_py_decref_later(PyObject *o)
{
	struct dropped *d = usmb_py_alive() ? malloc(sizeof *d) : NULL;
	if (!d) return;
	d->object = o;
	d->next = atomic_load_explicit(&dropped, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&dropped, &d->next, d, memory_order_release,
	                                              memory_order_relaxed)) {
	}
	usmb_py_kick();
}

static int draining; /* guarded by the GIL */

void usmb_py_drain_now(void)
{
	PyObject *type, *value, *tb;
	if (draining || !usmb_py_alive()) return;
	draining = 1;
	PyErr_Fetch(&type, &value, &tb);
	while (atomic_exchange(&usmb_py_drain_wanted, 0)) {
		release_dropped();
		int n = atomic_load_explicit(&n_drains, memory_order_acquire);
		for (int i = 0; i < n; i++) {
			drains[i]();
			if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
		}
	}
	PyErr_Restore(type, value, tb);
	draining = 0;
}

/* The pending call of usmb_py_kick. */
static int drain_pending(void *unused)
{
	(void)unused;
	usmb_py_drain_now();
	return 0;
}

void usmb_py_kick(void)
{
	if (atomic_exchange(&usmb_py_drain_wanted, 1) || usmb_py_in_child()) return;
	/* Count this thread as inside, so that the exit hook waits for it. */
	if (depth == 0) atomic_fetch_add(&inside, 1);
	if (usmb_py_alive()) Py_AddPendingCall(drain_pending, NULL);
	if (depth == 0) atomic_fetch_sub(&inside, 1);
}

/* ---- shutdown and fork --------------------------------------------------------------- */

/* The longest time that the exit hook waits for other threads to leave Python. After it,
   the interpreter ends them like daemon threads. */
#define EXIT_WAIT_MS 2000

/* The same for threads that work without the GIL. Opening the devices takes seconds on a loaded machine. */
#define WORK_WAIT_MS 10000

/* The threads between usmb_py_release_gil and usmb_py_acquire_gil: those that began before the exit hook, and later. */
static _Atomic long working[2];
static _Atomic int late;
/* The counter that counts this thread. */
static __thread int counted;
_Atomic int usmb_py_hosted;

PyThreadState *usmb_py_release_gil(void)
{
	counted = atomic_load(&late);
	atomic_fetch_add(&working[counted], 1);
	return PyEval_SaveThread();
}

void usmb_py_acquire_gil(PyThreadState *ts)
{
	/* First, because Python ends a daemon thread that asks for the GIL of a finalized interpreter. */
	atomic_fetch_sub(&working[counted], 1);
	PyEval_RestoreThread(ts);
}

/* Waits until n is at most least, for up to ms milliseconds. */
static void wait_until(_Atomic long *n, long least, int ms)
{
	for (struct timespec t = {0, 1000000}; ms > 0 && atomic_load(n) > least; ms--) nanosleep(&t, NULL);
}

/* Runs in exit, before the destructors of the SYCL library, which were registered earlier. Until Python finalized the
   interpreter, after the exit hook, daemon threads could begin work. They may not be stopped there, because they can hold
   locks that later functions of atexit take, such as those of logging. */
static void at_process_exit(void)
{
	wait_until(&working[0], 0, WORK_WAIT_MS);
	wait_until(&working[1], 0, WORK_WAIT_MS);
}

/* The function registered with atexit. */
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
	/* A thread that acquires the GIL of a finalized interpreter is killed or hangs. Wait for
	   the threads that have entered already. If the process ends next, exit runs the
	   destructors of the SYCL library: wait also for threads that may be inside it. */
	PyThreadState *ts = PyEval_SaveThread();
	wait_until(&inside, depth > 0, EXIT_WAIT_MS);
	if (!usmb_py_hosted) {
		/* Those that open the devices first: they register the destructors. */
		atomic_store(&late, 1);
		wait_until(&working[0], 0, WORK_WAIT_MS);
		atexit(at_process_exit);
	}
	PyEval_RestoreThread(ts);
	Py_RETURN_NONE;
}

static void in_child(void)
{
	draining = 0; /* The thread that was draining may not exist in the child. */
	atomic_store(&inside, depth > 0);
	atomic_store(&working[0], 0);
	atomic_store(&working[1], 0);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

PyObject *usmb_py_exit_hook(void)
{
	static PyMethodDef def = {"usmbridge_exit", exit_hook, METH_NOARGS, NULL};
	return PyCFunction_NewEx(&def, NULL, NULL);
}

static int install_exit_hook(void)
{
	int rc = -1;
	PyObject *mod = PyImport_ImportModule("atexit");
	PyObject *fn = usmb_py_exit_hook();
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
	/* Types, caches and the exit hook belong to the main interpreter. */
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

/* ---- extension modules ---------------------------------------------------------------- */

int usmb_py_adopt(void)
{
	const char *missing = NULL;
	if (usmb_py_load(NULL, &missing)) return -1;
	if (!Py_IsInitialized()) return -1;
	if (!usmb_py_alive()) usmb_py_ignore_again(); /* once, because the program may change signals later */
	return usmb_py_install();
}
