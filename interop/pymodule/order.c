/* order.c: the order of device work on the memory of arrays.

   Our own work leaves an event in the cell (storage.h). Other libraries report no events, so the queues
   that they may use are recorded, and host accesses, exports and launches come after all work on these
   queues:
   - the default queues of the place (usmb_place_show), for memory that was exported, imported or shown
     without another queue;
   - queues that the memory was shown, imported or exported with. Go records them (memmgr/shared_queues.go),
     except for the first queue of memory that belongs to Python: its cell owns the queue object. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

static uint32_t flags_of(usmb_cell *cell)
{
	return atomic_load_explicit(&cell->flags, memory_order_relaxed);
}

/* ---- the queues of a piece of memory ----------------------------------------------- */

enum { FEW = 16 };

typedef struct {
	void *few[FEW]; /* in use unless there are more */
	void **all;
	size_t n;
} queues;

/* Appends the queues that Go has recorded. */
static int add_recorded(queues *q, usmb_cell *cell)
{
	size_t room = FEW - q->n, found = usmb_go_shared_queues(cell, q->few + q->n, room);
	while (found > room) { /* rare: more queues than fit */
		void **more = malloc((q->n + found) * sizeof *more);
		if (!more) {
			PyErr_NoMemory();
			return -1;
		}
		memcpy(more, q->few, q->n * sizeof *more);
		free(q->all == q->few ? NULL : q->all);
		q->all = more;
		room = found;
		found = usmb_go_shared_queues(cell, more + q->n, room);
	}
	q->n += found;
	return 0;
}

/* Collects the queues with unreported work on the memory of a record; known: without the default queue
   that users see. Free q->all if it is not q->few. */
static int collect(queues *q, usmb_cell *cell, PyObject *named, int known)
{
	usmb_place *place = cell->place;
	uint32_t flags = flags_of(cell);
	PyObject *first = usmb_cell_first_queue(cell);
	void *shown[2];
	q->all = q->few;
	q->n = 0;
	if (usmb_py_in_child()) return 0;
	if (named) q->few[q->n++] = usmb_queue_ref(named);
	if (first && first != named) q->few[q->n++] = usmb_queue_ref(first);
	if (!place) return 0;
	if (flags & (USMB_CELL_EXPORTED | USMB_CELL_FOREIGN | USMB_CELL_ASYNC)) {
		int n = usmb_place_shown(place, shown);
		/* Users see the queue of dpctl, which is the last one, or the place's own. */
		if (known && !named) n--;
		for (int i = 0; i < n; i++) q->few[q->n++] = shown[i];
	}
	int recorded =
	        flags & USMB_CELL_ON_QUEUES || (flags & (USMB_CELL_EXPORTED | USMB_CELL_FOREIGN) &&
		                                atomic_load_explicit(&cell->queue, memory_order_relaxed) != NULL);
	return recorded ? add_recorded(q, cell) : 0;
}

/* ---- waits ---------------------------------------------------------------------------- */

static int failed(int code)
{
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(PyExc_RuntimeError, "waiting for pending work on the array's memory: %s", usmb_sycl_strerror(code));
	return -1;
}

/* What wait_for waits for. */
enum {
	ALL,
	KNOWN,  /* not the default queue that users see */
	SHARED, /* that neither, nor our own pending work */
};

/* The caller holds the cell. */
static int wait_for(usmb_cell *cell, PyObject *named, int what)
{
	queues q;
	cell = usmb_cell_record(cell);
	int pending = atomic_load_explicit(&cell->pending, memory_order_acquire) != NULL;
	int seen = cell->place && flags_of(cell) & USMB_CELL_SEEN;
	if (__builtin_expect(!pending && !seen && !named, 1)) return 0;
	if (seen && usmb_note_dpctl_queue(cell->place) < 0) return -1;
	if (collect(&q, cell, named, what != ALL) < 0) return -1;
	void *event = what == SHARED ? NULL : usmb_pending_copy(cell);
	if (!event && q.n == 0) return 0;
	PyThreadState *saved = PyEval_SaveThread();
	/* Our work first: it may have been submitted to one of the queues. */
	int code = event ? usmb_sycl_wait_event(event) : USMB_SYCL_OK;
	if (event) {
		usmb_sycl_event_delete(event);
		usmb_pending_done(cell);
	}
	if (code == USMB_SYCL_OK && q.n > 0) code = usmb_sycl_wait_queues(q.all, q.n);
	PyEval_RestoreThread(saved);
	if (q.all != q.few) free(q.all);
	return failed(code);
}

int usmb_cell_wait(usmb_cell *cell)
{
	return wait_for(cell, NULL, ALL);
}

static int wait_held(usmb_array *a, int what)
{
	usmb_array_hold(a);
	int r = wait_for(a->cell, a->queue, what);
	usmb_array_unhold(a);
	return r;
}

int usmb_array_wait(usmb_array *a)
{
	return wait_held(a, ALL);
}

int usmb_array_wait_known(usmb_array *a)
{
	return wait_held(a, KNOWN);
}

int usmb_array_wait_shared(usmb_array *a)
{
	return wait_held(a, SHARED);
}

/* ---- order ---------------------------------------------------------------------------- */

static int order_held(usmb_array *a, void *queue)
{
	usmb_cell *cell = usmb_cell_record(a->cell);
	queues q;
	if (cell->place && flags_of(cell) & USMB_CELL_SEEN && usmb_note_dpctl_queue(cell->place) < 0) return -1;
	if (collect(&q, cell, a->queue, 0) < 0) return -1;
	void *event = usmb_pending_copy(cell);
	int code = USMB_SYCL_OK;
	if (event || q.n > 0) {
		/* Without the GIL, because a submission can wait for a thread that takes it. */
		PyThreadState *saved = PyEval_SaveThread();
		code = usmb_sycl_order(queue, event, q.all, q.n);
		usmb_sycl_event_delete(event);
		PyEval_RestoreThread(saved);
	}
	if (q.all != q.few) free(q.all);
	return code == USMB_SYCL_OK ? 0 : wait_for(a->cell, a->queue, ALL);
}

int usmb_array_order(usmb_array *a, void *queue)
{
	usmb_array_hold(a);
	int r = order_held(a, queue);
	usmb_array_unhold(a);
	return r;
}

/* ---- what consumers have seen --------------------------------------------------------- */

static void set_flags(usmb_cell *cell, uint32_t flags)
{
	if ((flags_of(cell) & flags) != flags) atomic_fetch_or_explicit(&cell->flags, flags, memory_order_relaxed);
}

enum { QUEUE_NOTED = 1, ADDRESS_NOTED = 2 };

/* Makes imports of the address find the cell. */
static int index_address(usmb_array *a)
{
	if (a->noted & ADDRESS_NOTED) return 0;
	a->noted |= ADDRESS_NOTED;
	return usmb_cell_index_at(a->cell, a->first);
}

int usmb_array_exported(usmb_array *a)
{
	if (!a->cell->place) return 0;
	if (index_address(a) < 0) return -1;
	set_flags(a->cell, USMB_CELL_EXPORTED);
	set_flags(usmb_cell_record(a->cell), USMB_CELL_EXPORTED);
	return usmb_note_dpctl_queue(a->cell->place);
}

void usmb_array_seen_on(usmb_array *a, void *queue)
{
	if (a->cell->place && !usmb_py_in_child()) usmb_go_shared_on(usmb_cell_record(a->cell), queue);
}

/* Without a queue of the array, users see the default queue, and usmb_public_queue records it. */
int usmb_array_seen_on_queue(usmb_array *a)
{
	if (!a->cell->place) return 0;
	if (!a->queue) {
		set_flags(usmb_cell_record(a->cell), USMB_CELL_ASYNC);
		return 0;
	}
	if (a->noted & QUEUE_NOTED) return 0;
	a->noted |= QUEUE_NOTED;
	usmb_cell *cell = usmb_cell_record(a->cell);
	if (usmb_cell_first_queue(cell) != a->queue) usmb_array_seen_on(a, usmb_queue_ref(a->queue));
	return 0;
}

int usmb_array_address_shown(usmb_array *a)
{
	if (!a->cell->place) return 0;
	if (index_address(a) < 0 || usmb_array_seen_on_queue(a) < 0) return -1;
	return usmb_note_dpctl_queue(a->cell->place);
}

int usmb_array_imported_on_queue(usmb_array *a)
{
	usmb_cell *cell = usmb_cell_record(a->cell);
	PyObject *first = usmb_cell_first_queue(cell);
	if (!a->queue || first == a->queue) return 0;
	if (usmb_owned_by_python(cell) && !first)
		usmb_cell_set_first_queue(cell, a->queue);
	else
		usmb_array_seen_on(a, usmb_queue_ref(a->queue));
	return 0;
}

int usmb_array_tell_go(usmb_array *a)
{
	usmb_cell *cell = usmb_cell_record(a->cell);
	PyObject *first = usmb_cell_first_queue(cell);
	if (!usmb_owned_by_python(cell)) return 0;
	if (first) usmb_array_seen_on(a, usmb_queue_ref(first));
	if (a->queue && a->queue != first) usmb_array_seen_on(a, usmb_queue_ref(a->queue));
	return 0;
}
