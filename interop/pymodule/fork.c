/* fork.c: forks by Python (os.fork, multiprocessing).

   A forked child has the memory as it was at the fork, but not the threads of SYCL. Therefore, before a fork, the forking
   thread takes the lock of computations and waits for the work on all memory that has an owner: our own events, dpnp's
   events, and barriers on the queues of memory that was shown (order.c). Nothing waits longer than the limit: events are
   polled, because SYCL's waits have none. Memory whose work had not ended then is torn in the child, where reading it is
   an error.

   The barriers follow the rule of usmb_host_lock: they are submitted with the GIL held while dpnp has no tasks on the
   host, and are awaited without the GIL. If the limit runs out, one can stay pending. It waits for no such task. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpnp.h"
#include "fork.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"
#include "usmb_owner.h"
#include "usmb_sycl.h"

static double limit = USMB_FORK_LIMIT;

PyObject *usmb_py_fork_limit(PyObject *m, PyObject *seconds)
{
	double given = PyFloat_AsDouble(seconds), before = limit;
	(void)m;
	if (given == -1 && PyErr_Occurred()) return NULL;
	limit = given;
	return PyFloat_FromDouble(before);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- work ---------------------------------------------------------------------------- */

/* Work that a fork waits for. */
typedef struct {
	void *queue; /* owned, for a barrier; else NULL */
	usmb_events events;
	int submitted; /* the barrier is among the events */
	int ended;     /* known before the fork, because the child must not ask SYCL */
} work;

/* Memory that depends on it. Cells are not retained: they can end meanwhile. */
typedef struct {
	usmb_cell *cell;
	uint32_t generation;
	size_t at; /* index of the work */
} memory;

typedef struct {
	work *works;
	memory *memories;
	size_t nworks, nmemories, room_works, room_memories;
	usmb_cell *cell; /* that add_cell lists */
	/* The index of dpnp's work by the number of the queue; 0: not listed. */
	int64_t computed[USMB_USED_SEVERAL + 1];
} wait_list;

static int grow(void **all, size_t n, size_t *room, size_t size)
{
	if (n < *room) return 0;
	size_t more = *room ? 2 * *room : 32;
	void *bigger = realloc(*all, more * size);
	if (!bigger) {
		PyErr_NoMemory();
		return -1;
	}
	*all = bigger;
	*room = more;
	return 0;
}

/* Adds work. Returns its index, or -1. */
static int64_t add_work(wait_list *l)
{
	void *all = l->works;
	if (grow(&all, l->nworks, &l->room_works, sizeof *l->works) < 0) return -1;
	l->works = all;
	memset(&l->works[l->nworks], 0, sizeof *l->works);
	return (int64_t)l->nworks++;
}

static int depends(wait_list *l, int64_t at)
{
	void *all = l->memories;
	if (at < 0 || grow(&all, l->nmemories, &l->room_memories, sizeof *l->memories) < 0) return -1;
	l->memories = all;
	l->memories[l->nmemories++] = (memory){l->cell, usmb_cell_generation(l->cell), (size_t)at};
	return 0;
}

/* Adds a queue, once. */
static int add_queue(void *queue, void *arg)
{
	wait_list *l = arg;
	for (size_t i = 0; i < l->nworks; i++) {
		void *known = l->works[i].queue;
		if (known && (known == queue || usmb_sycl_queue_equal(known, queue))) return depends(l, (int64_t)i);
	}
	void *copy = usmb_sycl_queue_copy(queue);
	int64_t at = copy ? add_work(l) : -1;
	if (at < 0) {
		usmb_sycl_queue_delete(copy);
		return -1;
	}
	l->works[at].queue = copy;
	return depends(l, at);
}

/* Adds dpnp's work on memory with that number of a queue. */
static int add_computed(wait_list *l, uint32_t used)
{
	int64_t at = l->computed[used];
	if (at > 0) return depends(l, at);
	at = add_work(l);
	if (at < 0 || usmb_dpnp_events(used, &l->works[at].events) < 0) return -1;
	l->computed[used] = at;
	return depends(l, at);
}

/* Adds the work on the memory of a cell, which the caller retains. */
static int add_cell(wait_list *l, usmb_cell *cell)
{
	uint32_t used = usmb_cell_used(cell);
	l->cell = cell;
	if (used != USMB_USED_NO && add_computed(l, used) < 0) return -1;
	void *event = usmb_pending_copy(cell);
	if (event) {
		int64_t at = add_work(l);
		int r = at < 0 ? -1 : usmb_events_add(&l->works[at].events, event);
		usmb_sycl_event_delete(event);
		if (r < 0 || depends(l, at) < 0) return -1;
	}
	return usmb_cell_each_queue(cell, add_queue, l);
}

/* Lists the work on all memory with an owner. GIL. */
static int list_work(wait_list *l)
{
	if (add_work(l) < 0) return -1; /* index 0 is none */
	usmb_control *control = usmb_owner_control;
	uint32_t n = control ? atomic_load(&control->bump) : 0;
	for (uint32_t i = 1; i < n; i++) {
		usmb_cell *cell = usmb_cell_at(i);
		uint32_t flags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
		int busy = flags & (USMB_CELL_SEEN | USMB_CELL_USED) || atomic_load(&cell->pending) != NULL;
		if (!busy || flags & USMB_CELL_ALIAS || !usmb_cell_try_retain(cell, usmb_cell_generation(cell)))
			continue;
		int r = cell->place ? add_cell(l, cell) : 0;
		usmb_cell_drop_gil(cell);
		if (r < 0) return -1;
	}
	return 0;
}

static int is_done(const usmb_events *events)
{
	for (size_t i = 0; i < events->n; i++)
		if (usmb_sycl_event_state(events->all[i]) == USMB_SYCL_EVENT_PENDING) return 0;
	return 1;
}

/* Waits, with the GIL dropped, until all events have completed; 0 if the time is up before. */
static int await_events(const usmb_events *events, double end)
{
	enum { YIELDS = 20, STEP = 10000, MOST = 1000000 }; /* nanoseconds */
	struct timespec pause = {0, 0};
	int done = is_done(events);
	if (done) return 1;
	PyThreadState *saved = usmb_py_release_gil();
	for (int turn = 0; !(done = is_done(events)) && now() < end; turn++) {
		if (turn >= YIELDS && pause.tv_nsec < MOST) pause.tv_nsec += STEP;
		nanosleep(&pause, NULL);
	}
	usmb_py_acquire_gil(saved);
	return done;
}

/* Waits until dpnp has no tasks on the host and submits the barriers, with the GIL held from one to the other. The tasks
   need the GIL, so a barrier that waits for one must not be pending while Python goes on. */
static int submit_barriers(wait_list *l, double end)
{
	for (;;) {
		usmb_events tasks;
		if (usmb_dpnp_all(&tasks) < 0) return -1;
		int quiet = tasks.n == 0, left = quiet || await_events(&tasks, end);
		usmb_events_drop(&tasks);
		if (!left) return 0;
		if (quiet) break;
	}
	for (size_t i = 0; i < l->nworks; i++) {
		work *w = &l->works[i];
		void *event = NULL;
		if (!w->queue || usmb_sycl_barrier(w->queue, NULL, 0, &event) != USMB_SYCL_OK) continue;
		w->submitted = usmb_events_add(&w->events, event) == 0;
		usmb_sycl_event_delete(event);
	}
	return 0;
}

static void forget(wait_list *l)
{
	for (size_t i = 0; i < l->nworks; i++) {
		usmb_events_drop(&l->works[i].events);
		usmb_sycl_queue_delete(l->works[i].queue);
	}
	free(l->works);
	free(l->memories);
	memset(l, 0, sizeof *l);
}

/* ---- hooks ---------------------------------------------------------------------------- */

/* The fork of this thread, from the hook before it to the hook after it. */
static __thread struct {
	PyObject *lock; /* held, or NULL */
	wait_list list; /* of work that had not ended */
} forking;

/* Waits for all work. Leaves in the list the work that has not ended. */
static int settle(wait_list *l, double end)
{
	if (list_work(l) < 0) return -1;
	int in_time = 1;
	for (size_t i = 0; i < l->nworks && in_time; i++) in_time = await_events(&l->works[i].events, end);
	/* If the lock took all the time, queues without work must still be found to be so. */
	double least = now() + 0.05;
	if (least > end) end = least;
	if (in_time && submit_barriers(l, end) < 0) return -1;
	int all = 1;
	for (size_t i = 0; i < l->nworks; i++) {
		work *w = &l->works[i];
		w->ended = await_events(&w->events, end) && (!w->queue || w->submitted);
		all &= w->ended;
	}
	if (all) forget(l);
	return 0;
}

static PyObject *before(PyObject *self, PyObject *unused)
{
	(void)self;
	(void)unused;
	double end = now() + limit;
	if (usmb_py_in_child()) Py_RETURN_NONE;
	if (!usmb_sycl_loaded()) {
		PyObject *dpctl = PyImport_GetModule(usmb_name.dpctl);
		if (dpctl) usmb_sycl_end_children(); /* it has loaded SYCL */
		Py_XDECREF(dpctl);
		PyErr_Clear();
		Py_RETURN_NONE;
	}
	forget(&forking.list); /* of a fork that another hook ended */
	if (!forking.lock) forking.lock = usmb_dpnp_lock(limit);
	if (settle(&forking.list, end) < 0) PyErr_WriteUnraisable(NULL);
	Py_RETURN_NONE;
}

static PyObject *after_in_parent(PyObject *self, PyObject *unused)
{
	PyObject *lock = forking.lock;
	(void)self;
	(void)unused;
	forking.lock = NULL;
	usmb_dpnp_unlock(lock);
	forget(&forking.list);
	Py_RETURN_NONE;
}

/* Marks the memory with work that had not ended. The list is leaked, because freeing it calls SYCL. */
static void mark_torn(const wait_list *l)
{
	for (size_t i = 0; i < l->nmemories; i++) {
		const memory *m = &l->memories[i];
		if (usmb_cell_generation(m->cell) == m->generation && !l->works[m->at].ended)
			atomic_fetch_or_explicit(&m->cell->flags, USMB_CELL_TORN, memory_order_relaxed);
	}
}

/* dpctl waits for events in a function of Python's atexit. In the child they never complete. */
static int detach_finalizer(void)
{
	PyObject *f = usmb_loaded_attribute("dpctl.utils._order_manager", "f");
	PyObject *r = f ? PyObject_CallMethod(f, "detach", NULL) : NULL;
	int bad = f && !r;
	Py_XDECREF(f);
	Py_XDECREF(r);
	return bad || PyErr_Occurred() ? -1 : 0;
}

static PyObject *after_in_child(PyObject *self, PyObject *unused)
{
	PyObject *lock = forking.lock;
	(void)self;
	(void)unused;
	forking.lock = NULL;
	if (lock)
		usmb_dpnp_unlock(lock);
	else
		usmb_dpnp_renew_lock();
	mark_torn(&forking.list);
	if (detach_finalizer() < 0) PyErr_WriteUnraisable(NULL);
	Py_RETURN_NONE;
}

int usmb_fork_register(void)
{
	static PyMethodDef hooks[] = {
	        {"usmbridge_before_fork", before, METH_NOARGS, NULL},
	        {"usmbridge_after_fork_in_parent", after_in_parent, METH_NOARGS, NULL},
	        {"usmbridge_after_fork_in_child", after_in_child, METH_NOARGS, NULL},
	};
	PyObject *posix = PyImport_ImportModule("posix");
	PyObject *f = posix ? PyObject_GetAttrString(posix, "register_at_fork") : NULL;
	PyObject *names = f ? Py_BuildValue("(sss)", "before", "after_in_parent", "after_in_child") : NULL;
	PyObject *args[3] = {NULL, NULL, NULL}, *r = NULL;
	int bad = !names;
	for (int i = 0; i < 3 && !bad; i++) bad = !(args[i] = PyCFunction_NewEx(&hooks[i], NULL, NULL));
	if (!bad) r = PyObject_Vectorcall(f, args, 0, names);
	for (int i = 0; i < 3; i++) Py_XDECREF(args[i]);
	Py_XDECREF(names);
	Py_XDECREF(f);
	Py_XDECREF(posix);
	Py_XDECREF(r);
	return r ? 0 : -1;
}
