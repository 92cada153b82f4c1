/* dpnp.c: the work of dpnp on the memory of arrays.

   dpnp orders its work on a queue by events, which dpctl.utils.SequentialOrderManager keeps: each computation runs after
   those before it. So its work is followed by these events, without barriers, which dpnp does not survive
   (usmb_host_lock in usmb_sycl.h). The numbers of queues in cells are those of the table here. */
#include <stdlib.h>

#include "dpnp.h"
#include "support.h"
#include "sycl.h"
#include "usmb_owner.h"
#include "usmb_sycl.h"

/* ---- queues ------------------------------------------------------------------------- */

/* The queues on which functions of this module gave memory to dpnp; number n is at n - 1. GIL. */
static struct {
	PyObject *object; /* owned: a dpctl.SyclQueue */
	void *ref;        /* borrowed from it */
} queues[USMB_USED_LAST];
static uint32_t n_queues;

uint32_t usmb_dpnp_find(PyObject *queue)
{
	for (uint32_t i = 0; i < n_queues; i++)
		if (queues[i].object == queue) return i + 1;
	void *ref = usmb_queue_ref(queue);
	for (uint32_t i = 0; i < n_queues; i++)
		if (usmb_sycl_queue_equal(queues[i].ref, ref)) return i + 1;
	return USMB_USED_NO;
}

/* Whether all work of dpnp on the queue with a number has ended. Memory that still has the number then depends on nothing,
   so another queue can take it over. */
static int is_idle(uint32_t number)
{
	usmb_events work;
	if (usmb_dpnp_events(number, &work) < 0) {
		PyErr_Clear(); /* the answer is no */
		return 0;
	}
	size_t n = work.n;
	usmb_events_drop(&work);
	return n == 0;
}

/* Returns a number that no queue has, or USMB_USED_SEVERAL if all are of queues with work. */
static uint32_t free_number(void)
{
	static uint32_t last;
	if (n_queues < USMB_USED_LAST) return ++n_queues;
	for (int i = 0; i < USMB_USED_LAST; i++) {
		last = last % USMB_USED_LAST + 1;
		if (is_idle(last)) return last;
	}
	return USMB_USED_SEVERAL;
}

uint32_t usmb_dpnp_number(PyObject *queue)
{
	uint32_t number = usmb_dpnp_find(queue);
	if (number != USMB_USED_NO) return number;
	number = free_number();
	if (number == USMB_USED_SEVERAL) return number;
	PyObject *old = queues[number - 1].object;
	queues[number - 1].object = Py_NewRef(queue);
	queues[number - 1].ref = usmb_queue_ref(queue);
	Py_XDECREF(old);
	return number;
}

void usmb_dpnp_clear(void)
{
	while (n_queues > 0) {
		PyObject *object = queues[--n_queues].object;
		queues[n_queues].object = NULL;
		if (!usmb_py_in_child()) Py_DECREF(object); /* destroying a queue calls SYCL */
	}
}

/* ---- events ------------------------------------------------------------------------- */

int usmb_events_add(usmb_events *out, void *event)
{
	if (out->n == out->room) {
		size_t room = out->room ? 2 * out->room : 8;
		void **all = realloc(out->all, room * sizeof *all);
		if (!all) return -1;
		out->all = all;
		out->room = room;
	}
	out->all[out->n] = usmb_sycl_event_copy(event);
	return out->all[out->n] ? (int)(out->n++, 0) : -1;
}

/* Adds those of a list of dpctl.SyclEvents that have not completed. */
static int add_list(usmb_events *out, PyObject *manager, const char *name)
{
	PyObject *list = PyObject_GetAttrString(manager, name);
	int r = list && PyList_Check(list) ? 0 : -1;
	for (Py_ssize_t i = 0; r == 0 && i < PyList_Size(list); i++) {
		void *event = usmb_event_ref(PyList_GetItem(list, i));
		if (event && usmb_sycl_event_done(event)) continue;
		r = event ? usmb_events_add(out, event) : -1;
	}
	Py_XDECREF(list);
	if (r == 0 || PyErr_Occurred()) return r;
	usmb_raise(PyExc_RuntimeError,
	           "reading the events of dpnp's work failed; dpctl.utils.SequentialOrderManager has "
	           "another form than expected, or memory ran out");
	return -1;
}

void usmb_events_drop(usmb_events *events)
{
	usmb_sycl_events_delete(events->all, events->n);
	free(events->all);
	*events = (usmb_events){NULL, 0, 0};
}

int usmb_events_wait(usmb_events *events)
{
	int result = USMB_SYCL_OK;
	for (size_t i = 0; i < events->n; i++) {
		int code = usmb_sycl_wait_event(events->all[i]);
		if (result == USMB_SYCL_OK) result = code;
	}
	usmb_events_drop(events);
	return result;
}

int usmb_events_finish(usmb_events *events)
{
	if (events->n == 0) return usmb_events_wait(events);
	PyThreadState *saved = usmb_py_release_gil();
	int code = usmb_events_wait(events);
	usmb_py_acquire_gil(saved);
	return code;
}

/* The managers of dpnp's work by queue: a copy of the dictionary, which other threads may change. NULL without an
   exception if dpctl has none. */
static PyObject *managers(void)
{
	static PyObject *get; /* the method of the context variable that has the dictionary */
	if (!get) {
		PyObject *all = usmb_loaded_attribute("dpctl.utils", "SequentialOrderManager");
		if (!all) return NULL;
		PyObject *variable = PyObject_GetAttrString(all, "_map");
		get = variable ? PyObject_GetAttrString(variable, "get") : NULL;
		Py_XDECREF(variable);
		Py_DECREF(all);
		if (!get) return NULL;
	}
	PyObject *dict = PyObject_CallFunctionObjArgs(get, NULL), *copy = dict ? PyDict_Copy(dict) : NULL;
	Py_XDECREF(dict);
	return copy;
}

static int is_one_of(void *ref, void *const *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ref == all[i] || usmb_sycl_queue_equal(ref, all[i])) return 1;
	return 0;
}

/* Adds the events of work on n queues, or on all if all is NULL; tasks: those of the tasks on the host too. */
static int add_work(usmb_events *out, void *const *all, size_t n, int tasks)
{
	PyObject *by_queue = managers(), *queue, *manager;
	Py_ssize_t at = 0;
	int r = 0;
	if (!by_queue) return PyErr_Occurred() ? -1 : 0;
	while (r == 0 && PyDict_Next(by_queue, &at, &queue, &manager)) {
		void *ref = usmb_queue_ref(queue);
		if (!ref || (all && !is_one_of(ref, all, n))) continue;
		r = add_list(out, manager, "submitted_events");
		if (r == 0 && tasks) r = add_list(out, manager, "host_task_events");
	}
	Py_DECREF(by_queue);
	if (r < 0) usmb_events_drop(out);
	return r;
}

int usmb_dpnp_events(uint32_t used, usmb_events *out)
{
	*out = (usmb_events){NULL, 0, 0};
	if (used == USMB_USED_NO || usmb_py_in_child()) return 0;
	if (used > n_queues) return add_work(out, NULL, 0, 0);
	return add_work(out, &queues[used - 1].ref, 1, 0);
}

int usmb_dpnp_finish(void)
{
	usmb_events work = {NULL, 0, 0};
	if (usmb_py_in_child()) return 0;
	if (usmb_dpnp_all(&work) < 0) return -1;
	int any = work.n > 0;
	(void)usmb_events_finish(&work);
	return any;
}

int usmb_dpnp_all(usmb_events *out)
{
	*out = (usmb_events){NULL, 0, 0};
	return add_work(out, NULL, 0, 1);
}

/* ---- the lock of host tasks --------------------------------------------------------- */

static int active(void)
{
	return usmb_py_alive() && !usmb_py_in_child();
}

static void *release(void)
{
	return active() && usmb_py_holds_gil() ? usmb_py_release_gil() : NULL;
}

static void acquire(void *released)
{
	usmb_py_acquire_gil(released);
}

/* Collects events with the GIL, on any thread that does not hold it. Returns 0 if Python cannot be called. */
static int enter(PyGILState_STATE *state)
{
	return active() && usmb_py_enter(state) == USMB_PYE_OK;
}

/* Reports an exception that no caller can raise. */
static void forget_failure(int r)
{
	if (r < 0) PyErr_WriteUnraisable(NULL);
}

/* The lock under which usmbridge.array_api calls dpnp; NULL before it is imported. GIL. */
static PyObject *compute_lock;

PyObject *usmb_py_computes_under(PyObject *m, PyObject *lock)
{
	(void)m;
	PyObject *old = compute_lock;
	compute_lock = Py_NewRef(lock);
	Py_XDECREF(old);
	Py_RETURN_NONE;
}

PyObject *usmb_dpnp_lock(double seconds)
{
	if (!compute_lock) return NULL;
	PyObject *lock = Py_NewRef(compute_lock);
	PyObject *got = PyObject_CallMethod(lock, "acquire", "Od", Py_True, seconds);
	int held = got && PyObject_IsTrue(got) > 0;
	if (!got) PyErr_WriteUnraisable(lock);
	Py_XDECREF(got);
	if (!held) Py_CLEAR(lock);
	return lock;
}

/* The time for which a thread waits for computations if one of them may wait for the thread. */
#define PATIENCE 0.01

/* Acquires the lock of computations: dpnp submits tasks before it records their events, and can lose the GIL in
   between. *busy: another thread had it all the time. */
static PyObject *hold_computations(int patient, int *busy)
{
	PyGILState_STATE state;
	*busy = 0;
	if (!enter(&state)) return NULL;
	PyObject *held = usmb_dpnp_lock(patient ? -1 : PATIENCE);
	*busy = !patient && compute_lock && !held;
	usmb_py_leave(state);
	return held;
}

void usmb_dpnp_unlock(PyObject *held)
{
	PyObject *r = held ? PyObject_CallMethod(held, "release", NULL) : NULL;
	if (held && !r) PyErr_WriteUnraisable(held);
	Py_XDECREF(r);
	Py_XDECREF(held);
}

void usmb_dpnp_renew_lock(void)
{
	PyObject *r = compute_lock ? PyObject_CallMethod(compute_lock, "_at_fork_reinit", NULL) : NULL;
	if (compute_lock && !r) PyErr_WriteUnraisable(compute_lock);
	Py_XDECREF(r);
}

static void let_computations(PyObject *held)
{
	PyGILState_STATE state;
	if (!held || !enter(&state)) return;
	usmb_dpnp_unlock(held);
	usmb_py_leave(state);
}

/* Threads that call dpnp all the time, without that lock, leave no moment without tasks. */
enum { QUIET_TRIES = 50 };

static int submit_quietly(void *const *all, size_t n, int (*submit)(void *), void *arg)
{
	int result = USMB_SYCL_OK, code;
	for (int i = 0; i < QUIET_TRIES; i++) {
		usmb_events tasks = {NULL, 0, 0};
		PyGILState_STATE state;
		if (!enter(&state)) break;
		forget_failure(add_work(&tasks, all, n, 1));
		if (tasks.n == 0) {
			/* With the GIL: dpnp submits nothing meanwhile. */
			code = submit(arg);
			usmb_py_leave(state);
			return result == USMB_SYCL_OK ? code : result;
		}
		usmb_py_leave(state);
		code = usmb_events_wait(&tasks);
		if (result == USMB_SYCL_OK) result = code;
	}
	code = submit(arg);
	return result == USMB_SYCL_OK ? code : result;
}

static int quiet(void *const *all, size_t n, int (*submit)(void *), void *arg, int patient)
{
	int busy;
	PyObject *held = hold_computations(patient, &busy);
	if (busy) return USMB_SYCL_BUSY;
	int code = submit_quietly(all, n, submit, arg);
	let_computations(held);
	return code;
}

static int await_used(uint32_t used)
{
	usmb_events events = {NULL, 0, 0};
	PyGILState_STATE state;
	if (!enter(&state)) return USMB_SYCL_OK;
	int r = usmb_dpnp_events(used, &events);
	forget_failure(r);
	usmb_py_leave(state);
	return r < 0 ? USMB_SYCL_EFAILED : usmb_events_wait(&events);
}

void usmb_dpnp_register(void)
{
	static const usmb_host_lock lock = {active, release, acquire, quiet, await_used};
	usmb_sycl_set_host_lock(&lock);
}
