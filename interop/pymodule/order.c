/* order.c: the order of device work on the memory of arrays.

   Our own work leaves an event in the cell (storage.h). Memory is used by dpnp where our functions compute with it:
   the cell has the number of the queue, and dpnp.c waits for dpnp's work. Memory is shown where users or consumers got
   its address, its queue or a tensor. They report no events, so the queues that they may use are recorded, and host
   accesses, exports and launches come after all work on these queues:
   - the default queues of the place (usmb_place_show), for memory that was exported, imported or shown
     without another queue;
   - queues that the memory was shown, imported or exported with. Go records them (memmgr/shared_queues.go),
     except for the first queue of memory that belongs to Python: its cell owns the queue object.
   Libraries of CUDA work on streams, which are no queues of SYCL: usmb_cuda_wait waits for all of them. It does not
   replace the waits for the queues, because SYCL holds work back behind host tasks. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dpnp.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

static uint32_t flags_of(usmb_cell *cell)
{
	return atomic_load_explicit(&cell->flags, memory_order_relaxed);
}

static void set_flags(usmb_cell *cell, uint32_t flags)
{
	if ((flags_of(cell) & flags) != flags) atomic_fetch_or_explicit(&cell->flags, flags, memory_order_relaxed);
}

/* ---- the queues of a piece of memory ----------------------------------------------- */

/* The flags of memory on which other libraries may use the default queues of its place. */
enum { ON_DEFAULT = USMB_CELL_EXPORTED | USMB_CELL_FOREIGN | USMB_CELL_ASYNC };

enum { BORROWED = 4 }; /* the queue of the array, the first queue, and those of the place */

typedef struct {
	void *borrowed[BORROWED]; /* in use if all is NULL */
	void **all;               /* owned: the same, and owned references of the queues that Go has recorded */
	size_t nborrowed, n;
} queues;

static void free_queues(queues *q)
{
	for (size_t i = q->nborrowed; i < q->n; i++) usmb_sycl_queue_delete(q->all[i]);
	free(q->all);
}

static void *const *list_of(const queues *q)
{
	return q->all ? q->all : (void *const *)q->borrowed;
}

/* Adds the queues that Go has recorded. */
static int add_recorded(queues *q, usmb_cell *cell)
{
	usmb_recorded_queues found = {0};
	usmb_goerr err;
	if (usmb_go_shared_queues(cell, &found, &err) < 0) return usmb_raise_go(&err);
	if (found.n == 0) return 0;
	void **all = malloc((q->n + found.n) * sizeof *all);
	if (!all) {
		for (size_t i = 0; i < found.n; i++) usmb_sycl_queue_delete(found.refs[i]);
		free(found.refs);
		PyErr_NoMemory();
		return -1;
	}
	memcpy(all, q->borrowed, q->n * sizeof *all);
	memcpy(all + q->n, found.refs, found.n * sizeof *all);
	free(found.refs);
	q->all = all;
	q->n += found.n;
	return 0;
}

static void add(queues *q, void *queue)
{
	if (queue) q->borrowed[q->n++] = queue;
}

/* Whether Go may have recorded queues of a record. */
static int has_recorded(usmb_cell *cell)
{
	uint32_t flags = flags_of(cell);
	return flags & USMB_CELL_ON_QUEUES ||
	       (flags & USMB_CELL_FOREIGN && atomic_load_explicit(&cell->queue, memory_order_relaxed) != NULL);
}

/* The work for which wait_for waits. */
enum {
	ALL,
	KNOWN, /* not the default queue that users see */
	BESIDE, /* not dpnp's work on the queue of the array, and not work behind which that queue puts dpnp's: for a computation
	           by dpnp */
	SHARED, /* not our own pending work */
	KEEP,   /* all; a failure stays on the memory */
};

/* Whether the queue of an array that users see, the given or the default one, puts later work behind theirs. */
static int runs_in_order(const usmb_place *place, PyObject *named)
{
	PyObject *queue = named ? named : usmb_kept_queue(place);
	void *ref = queue ? usmb_queue_ref(queue) : place->queue;
	return (!named && usmb_place_in_order(place)) || (ref && usmb_sycl_queue_in_order(ref));
}

/* Whether the wait leaves out the queue that users see. */
static int leaves_out(const usmb_place *place, PyObject *named, int what)
{
	return what == KNOWN ? !named : what == BESIDE && runs_in_order(place, named);
}

/* Collects the queues with unreported work on the memory of a record. Ends with free_queues. */
static int collect(queues *q, usmb_cell *cell, PyObject *named, int what)
{
	usmb_place *place = cell->place;
	uint32_t flags = flags_of(cell);
	PyObject *first = usmb_cell_first_queue(cell);
	void *shown[2];
	q->all = NULL;
	q->n = q->nborrowed = 0;
	if (usmb_py_in_child() || !(flags & USMB_CELL_SEEN)) return 0;
	int without = place && leaves_out(place, named, what);
	if (named && !without) add(q, usmb_queue_ref(named));
	if (first && first != named) add(q, usmb_queue_ref(first));
	if (place && flags & ON_DEFAULT) {
		int n = usmb_place_shown(place, shown);
		/* Users see the queue of dpctl, which is the last one, or the place's own. */
		if (without && !named) n--;
		for (int i = 0; i < n; i++) add(q, shown[i]);
	}
	q->nborrowed = q->n;
	if (!place) return 0;
	return has_recorded(cell) ? add_recorded(q, cell) : 0;
}

int usmb_cell_each_queue(usmb_cell *cell, int (*add)(void *queue, void *arg), void *arg)
{
	queues q;
	int r = 0;
	if (cell->place && flags_of(cell) & USMB_CELL_SEEN && usmb_note_dpctl_queue(cell->place) < 0) return -1;
	if (collect(&q, cell, NULL, 0) < 0) return -1;
	for (size_t i = 0; i < q.n && r == 0; i++) r = add(list_of(&q)[i], arg);
	free_queues(&q);
	return r;
}

/* ---- waits ---------------------------------------------------------------------------- */

int usmb_wait_result(int code)
{
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(PyExc_RuntimeError, "waiting for pending work on the array's memory: %s", usmb_sycl_strerror(code));
	return -1;
}

/* Whether only the default queue that users see can have unreported work on memory that was seen. */
static int only_default(usmb_cell *cell)
{
	return !has_recorded(cell) && !usmb_cell_first_queue(cell) && !usmb_place_shows_own(cell->place) &&
	       !usmb_cuda_shown(cell->place);
}

/* Whether libraries of CUDA may have work on the memory, of which SYCL's queues know nothing. */
static int has_cuda(usmb_cell *cell)
{
	return usmb_cuda_shown(cell->place) && flags_of(cell) & (ON_DEFAULT | USMB_CELL_CUDA) && !usmb_py_in_child();
}

/* The number of the queue whose work on used memory is to be waited for: 0 if there is none, or if it is the queue on
   which dpnp or the consumer orders its work. */
static uint32_t used_for(usmb_cell *cell, PyObject *named, int what)
{
	uint32_t used = usmb_cell_used(cell);
	if (used == USMB_USED_NO || usmb_py_in_child()) return USMB_USED_NO;
	/* Consumers can work on another queue than a given one: dpnp's from_dlpack uses the default queue. */
	if (used == USMB_USED_SEVERAL || (what != BESIDE && (what != KNOWN || named))) return used;
	PyObject *queue = named ? named : usmb_kept_queue(cell->place);
	return queue && used == usmb_dpnp_find(queue) ? USMB_USED_NO : used;
}

/* Waits for the queues that have work, except for the one behind which the caller's work comes anyway, which may be NULL. Most
   queues have none, and to ask costs less than a barrier. */
static int wait_for_busy(const queues *q, void *behind)
{
	enum { MOST = 64 };
	void *const *all = list_of(q), *busy[MOST];
	size_t n = 0;
	if (q->n > MOST) return usmb_sycl_wait_queues(all, q->n);
	for (size_t i = 0; i < q->n; i++)
		if (!(behind && usmb_sycl_queue_equal(all[i], behind)) && !usmb_sycl_queue_empty(all[i]))
			busy[n++] = all[i];
	return n ? usmb_sycl_wait_queues(busy, n) : USMB_SYCL_OK;
}

/* Raises the failure of work for which an earlier call has waited. */
static int failed_before(usmb_cell *cell, int what)
{
	if (what != KEEP) atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_FAILED, memory_order_relaxed);
	return usmb_wait_result(USMB_SYCL_EASYNC);
}

/* A forked child cannot wait. The work had ended before the fork, unless the wait there ran out of time. */
static int wait_in_child(usmb_cell *cell)
{
	if (cell->place && usmb_place_is_cuda(cell->place)) {
		usmb_raise(
		        PyExc_RuntimeError,
		        "usmbridge: memory of CUDA devices cannot be used in a forked process, because CUDA does not "
		        "support fork; copy the array before the fork: a.asnumpy(), or start the process by "
		        "multiprocessing's \"spawn\" or \"forkserver\"");
		return -1;
	}
	if (!(flags_of(cell) & USMB_CELL_TORN)) return 0;
	usmb_raise(
	        PyExc_RuntimeError,
	        "usmbridge: device work on the array's memory had not ended when this process was forked, %d seconds "
	        "after the fork was asked for, so its values are unknown here; wait for the work before the fork: "
	        "a.sycl_queue.wait()",
	        USMB_FORK_LIMIT);
	return -1;
}

/* The caller holds the cell. Work of libraries of CUDA is ordered before a stream of CUDA if it is not 0. A signal
   cannot end the wait: SYCL has no wait with a timeout, and the memory must not be touched before the work
   completes. */
static int wait_for(usmb_cell *cell, PyObject *named, int what, uintptr_t stream)
{
	queues q;
	usmb_events dpnp;
	cell = usmb_cell_record(cell);
	if (usmb_py_in_child()) return wait_in_child(cell);
	if (__builtin_expect(flags_of(cell) & USMB_CELL_FAILED, 0)) return failed_before(cell, what);
	int pending = atomic_load_explicit(&cell->pending, memory_order_acquire) != NULL;
	int seen = cell->place && flags_of(cell) & USMB_CELL_SEEN;
	uint32_t used = used_for(cell, named, what);
	int others = seen && !(only_default(cell) && !named && leaves_out(cell->place, NULL, what));
	if (__builtin_expect(!pending && !others && used == USMB_USED_NO, 1)) return 0;
	if (seen && usmb_note_dpctl_queue(cell->place) < 0) return -1;
	if (usmb_dpnp_events(used, &dpnp) < 0) return -1;
	if (collect(&q, cell, named, what) < 0) {
		(void)usmb_events_wait(&dpnp);
		return -1;
	}
	void *event = what == SHARED ? NULL : usmb_pending_copy(cell);
	void *behind = named && seen && leaves_out(cell->place, named, what) ? usmb_queue_ref(named) : NULL;
	int cuda = has_cuda(cell);
	int before = !event && flags_of(cell) & USMB_CELL_FAILED;            /* from usmb_pending_copy */
	if (!before && !event && q.n == 0 && !cuda && dpnp.n == 0) return 0; /* there is nothing to free */
	PyThreadState *saved = usmb_py_release_gil();
	/* Our work first: it may have been submitted to one of the queues. */
	int code = before ? USMB_SYCL_EASYNC : event ? usmb_sycl_wait_event(event) : USMB_SYCL_OK;
	int computed = usmb_events_wait(&dpnp);
	if (code == USMB_SYCL_OK) code = computed;
	if (code == USMB_SYCL_OK && q.n > 0)
		code = what == BESIDE ? wait_for_busy(&q, behind) : usmb_sycl_wait_queues(list_of(&q), q.n);
	if (code == USMB_SYCL_OK && cuda)
		code = stream ? usmb_cuda_order(cell->place, stream) : usmb_cuda_wait(cell->place, 0);
	if (code != USMB_SYCL_OK && what == KEEP) set_flags(cell, USMB_CELL_FAILED);
	if (event) {
		usmb_sycl_event_delete(event);
		usmb_pending_done(cell);
	}
	usmb_py_acquire_gil(saved);
	free_queues(&q);
	return before ? failed_before(cell, what) : usmb_wait_result(code);
}

int usmb_cell_wait(usmb_cell *cell)
{
	return wait_for(cell, NULL, ALL, 0);
}

PyObject *usmb_py_wait_at(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
	(void)m;
	if (n != 2) return usmb_raise(PyExc_TypeError, "_wait_at takes two addresses");
	const char *lo = (const char *)(uintptr_t)PyLong_AsUnsignedLongLong(args[0]);
	const char *hi = (const char *)(uintptr_t)PyLong_AsUnsignedLongLong(args[1]);
	if (PyErr_Occurred()) return NULL;
	usmb_cell *cell = usmb_cell_lent_at(lo, hi);
	int r = cell ? usmb_cell_wait(cell) : 0;
	if (cell) usmb_cell_drop_gil(cell);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

static int wait_held(usmb_array *a, int what, uintptr_t stream)
{
	usmb_array_hold(a);
	int r = wait_for(a->cell, a->queue, what, stream);
	usmb_array_unhold(a);
	return r;
}

int usmb_array_wait(usmb_array *a)
{
	return wait_held(a, ALL, 0);
}

int usmb_array_wait_for_stream(usmb_array *a, uintptr_t stream)
{
	return wait_held(a, ALL, stream);
}

int usmb_array_wait_keeping(usmb_array *a)
{
	return wait_held(a, KEEP, 0);
}

int usmb_array_wait_known(usmb_array *a)
{
	return wait_held(a, KNOWN, 0);
}

int usmb_array_wait_shared(usmb_array *a)
{
	return wait_held(a, SHARED, 0);
}

/* ---- order ---------------------------------------------------------------------------- */

static int order_held(usmb_array *a, void *queue)
{
	usmb_cell *cell = usmb_cell_record(a->cell);
	queues q;
	if (usmb_cell_used(cell) != USMB_USED_NO) return wait_for(a->cell, a->queue, ALL, 0);
	if (cell->place && flags_of(cell) & USMB_CELL_SEEN && usmb_note_dpctl_queue(cell->place) < 0) return -1;
	if (collect(&q, cell, a->queue, ALL) < 0) return -1;
	void *event = usmb_pending_copy(cell);
	int code = flags_of(cell) & USMB_CELL_FAILED ? USMB_SYCL_EASYNC : USMB_SYCL_OK;
	int cuda = has_cuda(cell);
	if (code == USMB_SYCL_OK && (event || q.n > 0 || cuda)) {
		/* Without the GIL, because a submission can wait for a thread that takes it. */
		PyThreadState *saved = usmb_py_release_gil();
		if (cuda) code = usmb_cuda_wait(cell->place, 0);
		if (code == USMB_SYCL_OK) code = usmb_sycl_order(queue, event, list_of(&q), q.n);
		usmb_py_acquire_gil(saved);
	}
	usmb_sycl_event_delete(event);
	free_queues(&q);
	return code == USMB_SYCL_OK ? 0 : wait_for(a->cell, a->queue, ALL, 0);
}

int usmb_array_order(usmb_array *a, void *queue)
{
	usmb_array_hold(a);
	int r = order_held(a, queue);
	usmb_array_unhold(a);
	return r;
}

/* ---- what consumers have seen --------------------------------------------------------- */

/* Makes imports of the address find the cell. */
static int index_address(usmb_array *a)
{
	if (a->noted & USMB_ADDRESS_NOTED) return 0;
	if (usmb_cell_enter(a->cell) < 0) return -1;
	a->noted |= USMB_ADDRESS_NOTED;
	return 0;
}

int usmb_array_note_export(usmb_array *a)
{
	/* A given queue is recorded for forks, which know no arrays. */
	if (index_address(a) < 0 || (a->queue && usmb_array_seen_on_queue(a) < 0)) return -1;
	set_flags(a->cell, USMB_CELL_EXPORTED);
	set_flags(usmb_cell_record(a->cell), USMB_CELL_EXPORTED);
	int known = usmb_note_dpctl_queue(a->cell->place);
	if (known == 1) a->noted |= USMB_EXPORT_NOTED;
	return known < 0 ? -1 : 0;
}

int usmb_array_note_lent(usmb_array *a)
{
	if (usmb_cell_lend(a->cell) < 0) return -1;
	a->noted |= USMB_LENT_NOTED;
	return 0;
}

int usmb_array_note_cuda(usmb_array *a)
{
	int32_t unused;
	if (index_address(a) < 0) return -1;
	(void)usmb_cuda_show(a->cell->place, &unused);
	set_flags(a->cell, USMB_CELL_CUDA);
	set_flags(usmb_cell_record(a->cell), USMB_CELL_CUDA);
	return 0;
}

int usmb_array_seen_on(usmb_array *a, void *queue)
{
	if (!a->cell->place || usmb_py_in_child()) return 0;
	usmb_array_hold(a);
	/* Without the GIL, because Go may wait for a submission of another thread, which can need the GIL. */
	PyThreadState *saved = usmb_py_release_gil();
	int r = usmb_go_shared_on(usmb_cell_record(a->cell), queue);
	usmb_py_acquire_gil(saved);
	usmb_array_unhold(a);
	if (r == 0) return 0;
	usmb_raise(PyExc_RuntimeError, "a queue on which the memory is used could not be recorded");
	return -1;
}

/* Without a queue of the array, users see the default queue, and usmb_public_queue records it. */
int usmb_array_seen_on_queue(usmb_array *a)
{
	if (!a->cell->place) return 0;
	if (!a->queue) {
		set_flags(usmb_cell_record(a->cell), USMB_CELL_ASYNC);
		return 0;
	}
	if (a->noted & USMB_QUEUE_NOTED) return 0;
	usmb_cell *cell = usmb_cell_record(a->cell);
	/* Go does not have the first queue of memory that belongs to Python. */
	if (usmb_cell_first_queue(cell) == a->queue)
		set_flags(cell, USMB_CELL_ASYNC);
	else if (usmb_array_seen_on(a, usmb_queue_ref(a->queue)) < 0)
		return -1;
	a->noted |= USMB_QUEUE_NOTED;
	return 0;
}

int usmb_array_use(usmb_array *a)
{
	if (usmb_array_allowed(a) < 0 || wait_held(a, BESIDE, 0) < 0) return -1;
	PyObject *queue = a->queue ? Py_NewRef(a->queue) : usmb_public_queue(a->cell->place);
	if (!queue) return -1;
	usmb_cell_use(usmb_cell_record(a->cell), usmb_dpnp_number(queue));
	Py_DECREF(queue);
	return index_address(a);
}

int usmb_array_end_use(usmb_array *a)
{
	usmb_events events;
	if (!usmb_cell_observed(a->cell)) return 0;
	if (usmb_dpnp_events(usmb_cell_used(usmb_cell_record(a->cell)), &events) < 0) return -1;
	return usmb_wait_result(usmb_events_finish(&events));
}

int usmb_array_settle_queue(usmb_array *a)
{
	/* The queue can have tasks that dpnp did not record, and other queues have tasks in the same few threads. */
	if (usmb_go_allowed() < 0 || usmb_dpnp_finish() < 0) return -1;
	PyObject *queue = a->queue ? Py_NewRef(a->queue) : usmb_public_queue(a->cell->place);
	void *ref = queue ? usmb_queue_ref(queue) : NULL;
	int r = queue ? 0 : -1;
	if (ref) {
		PyThreadState *saved = usmb_py_release_gil();
		int code = usmb_sycl_wait_queues(&ref, 1);
		usmb_py_acquire_gil(saved);
		r = usmb_wait_result(code);
	}
	Py_XDECREF(queue);
	return r;
}

int usmb_array_address_shown(usmb_array *a)
{
	if (usmb_array_lent(a) < 0) return -1;
	if (!a->cell->place) return 0;
	if (index_address(a) < 0 || usmb_array_seen_on_queue(a) < 0) return -1;
	return usmb_note_dpctl_queue(a->cell->place);
}

int usmb_array_imported_on_queue(usmb_array *a)
{
	usmb_cell *cell = usmb_cell_record(a->cell);
	PyObject *first = usmb_cell_first_queue(cell);
	if (!a->queue || first == a->queue) return 0;
	if (!usmb_owned_by_python(cell) || first || usmb_cell_in_go(cell))
		return usmb_array_seen_on(a, usmb_queue_ref(a->queue));
	usmb_cell_set_first_queue(cell, a->queue);
	return 0;
}

int usmb_array_tell_go(usmb_array *a)
{
	usmb_cell *cell = usmb_cell_record(a->cell);
	PyObject *first = usmb_cell_first_queue(cell);
	if (!usmb_owned_by_python(cell)) return 0;
	usmb_cell_set_in_go(cell);
	if (first && usmb_array_seen_on(a, usmb_queue_ref(first)) < 0) return -1;
	return a->queue && a->queue != first ? usmb_array_seen_on(a, usmb_queue_ref(a->queue)) : 0;
}
