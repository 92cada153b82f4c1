/* storage.c: the owners of memory: cells whose end needs Python, and the cache of memory that arrays
   released. */
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "usmb_pystate.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

usmb_list *usmb_pylist, *usmb_shown_list;

/* ---- pending work -------------------------------------------------------------- */

void *usmb_pending_copy(usmb_cell *cell)
{
	cell = usmb_cell_record(cell);
	for (;;) {
		int state = USMB_SYCL_EVENT_COMPLETE;
		if (atomic_load_explicit(&cell->pending, memory_order_acquire) == NULL) return NULL;
		usmb_cell_hold_pending(cell);
		void *event = atomic_load_explicit(&cell->pending, memory_order_acquire);
		void *copy = event ? usmb_sycl_event_copy(event) : NULL;
		if (event && !copy) state = usmb_sycl_event_state(event);
		/* The wait returns immediately, with the failure of the work. */
		if (event && !copy && state != USMB_SYCL_EVENT_PENDING && usmb_sycl_wait_event(event) != USMB_SYCL_OK)
			atomic_fetch_or_explicit(&cell->flags, USMB_CELL_FAILED, memory_order_relaxed);
		usmb_cell_let_pending(cell);
		if (copy || state != USMB_SYCL_EVENT_PENDING) return copy;
		/* No memory for a copy of the event: try again until there is some or the work has ended. Not
		   under the lock, and without the GIL: the work may need the GIL, whose holder may spin for
		   the lock. */
		struct timespec pause = {0, 1000000};
		PyThreadState *saved = usmb_py_holds_gil() ? PyEval_SaveThread() : NULL;
		nanosleep(&pause, NULL);
		if (saved) PyEval_RestoreThread(saved);
	}
}

void usmb_pending_done(usmb_cell *cell)
{
	cell = usmb_cell_record(cell);
	usmb_cell_hold_pending(cell);
	void *event = atomic_load_explicit(&cell->pending, memory_order_acquire);
	if (event && usmb_sycl_event_done(event))
		atomic_store_explicit(&cell->pending, NULL, memory_order_release);
	else
		event = NULL;
	usmb_cell_let_pending(cell);
	usmb_sycl_event_delete(event);
}

/* ---- ends ------------------------------------------------------------------------ */

/* Drops the queues of a cell. */
static void forget_queues(usmb_cell *cell)
{
	PyObject *first = usmb_cell_first_queue(cell);
	int recorded = atomic_load_explicit(&cell->flags, memory_order_relaxed) & USMB_CELL_ON_QUEUES ||
	               atomic_load_explicit(&cell->queue, memory_order_relaxed) != NULL;
	cell->magazine = 0;
	/* Destroying a queue calls SYCL, which a forked child must not. */
	if (usmb_py_in_child()) return;
	if (recorded) usmb_go_forget_queues(cell);
	if (first && usmb_py_alive()) Py_DECREF(first);
}

uint32_t usmb_awaiting;
static uint64_t awaited; /* bytes of their memory */

/* Releases the place, the record, the queues and the pending event of a cell. */
static void release_facts(usmb_cell *cell)
{
	usmb_cell *record = usmb_cell_record(cell);
	if (record != cell) {
		atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_ALIAS, memory_order_relaxed);
		if (!(cell->block & USMB_BLOCK_BORROWS)) usmb_cell_drop(record);
	}
	void *event = atomic_load_explicit(&cell->pending, memory_order_acquire);
	if (event) {
		atomic_store_explicit(&cell->pending, NULL, memory_order_relaxed);
		if (!usmb_py_in_child()) usmb_sycl_event_delete(event);
	}
	if (!cell->place) return;
	if (cell->block & USMB_BLOCK_AWAITS) {
		usmb_awaiting--;
		awaited -= cell->requested;
	}
	forget_queues(cell);
	if (!usmb_py_in_child()) usmb_place_release(cell->place);
	cell->place = NULL;
}

/* Takes the object that a cell owns; NULL if it is leaked, as after Python has ended. */
static void *take_owned(usmb_cell *cell)
{
	void *owned = cell->ctx;
	/* Releasing USM calls SYCL, which a forked child must not. */
	int leaked = !usmb_py_alive() || (cell->place && usmb_py_in_child());
	cell->ctx = NULL;
	release_facts(cell);
	return leaked ? NULL : owned;
}

/* These functions run with the GIL held. */
static void end_object(usmb_cell *cell)
{
	PyObject *o = take_owned(cell);
	Py_XDECREF(o);
}

static void end_buffer(usmb_cell *cell)
{
	Py_buffer *view = take_owned(cell);
	if (view) PyBuffer_Release(view);
	free(view);
}

static void end_foreign(usmb_cell *cell)
{
	usmb_foreign *owned = take_owned(cell);
	if (owned) owned->end(owned);
}

static void end_block(usmb_cell *cell)
{
	free(cell->ctx); /* needs no Python, so it is freed after Python's end too */
	cell->ctx = NULL;
	release_facts(cell);
}

static void end_versioned(usmb_cell *cell)
{
	void *managed = take_owned(cell);
	if (managed) usmb_dl_delete(managed, 1);
}

static void end_legacy(usmb_cell *cell)
{
	void *managed = take_owned(cell);
	if (managed) usmb_dl_delete(managed, 0);
}

/* Dead cells for the next imports. Other threads cannot reach them (GIL); each has a generation of
   its own and count 0. */
enum { STASH = 32 };
static usmb_cell *stash[STASH];
static int stashed;

/* How deep the ends of owners nest, under the GIL. Beyond DEEP a cell goes on the list, for an
   outer end to run: chains of owners can have any length, but the stack cannot. */
enum { DEEP = 24 };
static int nested;

/* The flags of memory on which other libraries may have unreported work because users or consumers saw it here. */
enum { SHOWN = USMB_CELL_SEEN & ~USMB_CELL_IMPORTED };

/* Gives the owner of a dead cell to a new cell, and the dead cell to Go, which releases the new one when the work of other
   libraries on the memory has ended. Does nothing and returns 0 if there cannot be such work. */
static int await_work(usmb_cell *cell)
{
	uint32_t flags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	/* The work on the memory of an alias is that of its record. */
	if (!(flags & SHOWN) || flags & USMB_CELL_ALIAS || !cell->place || !cell->at_zero || !usmb_shown_list ||
	    !usmb_py_alive() || usmb_py_in_child())
		return 0;
	usmb_cell *end = usmb_cell_new(usmb_pylist);
	if (!end) return 0;
	PyObject *first = usmb_cell_first_queue(cell);
	end->at_zero = cell->at_zero;
	end->ctx = cell->ctx;
	end->data = cell->data;
	end->size = cell->size;
	end->requested = cell->requested;
	end->place = cell->place;
	end->magazine = cell->magazine;
	end->block = USMB_BLOCK_AWAITS;
	atomic_store_explicit(&end->flags, flags & (USMB_CELL_FOREIGN | USMB_CELL_HOST_READABLE), memory_order_release);
	usmb_awaiting++;
	awaited += end->requested;
	/* The new cell keeps the place and the queue. */
	if (first && !atomic_load_explicit(&cell->queue, memory_order_relaxed))
		atomic_store_explicit(&cell->queue, usmb_queue_ref(first), memory_order_relaxed);
	cell->at_zero = NULL;
	cell->ctx = end;
	cell->private = cell->magazine = 0;
	cell->block = 0;
	cell->home = usmb_shown_list;
	usmb_cell_push(cell);
	return 1;
}

static void finish_gil(usmb_cell *cell)
{
	if (atomic_load_explicit(&cell->flags, memory_order_relaxed) & SHOWN && await_work(cell)) return;
	if (nested >= DEEP) {
		usmb_cell_push(cell);
		return;
	}
	/* An array can be deallocated while an exception is set. Code that the owner's end runs
	   must not see or clear it. */
	PyObject *type = NULL, *value, *trace;
	int passing = PyErr_Occurred() != NULL;
	if (__builtin_expect(passing, 0)) PyErr_Fetch(&type, &value, &trace);
	nested++;
	cell->at_zero(cell);
	nested--;
	if (__builtin_expect(passing, 0)) PyErr_Restore(type, value, trace);
	/* Check only now: the owner's end may have filled the stash. */
	if (stashed == STASH) {
		usmb_cell_recycle(cell);
		return;
	}
	uint64_t word = atomic_load_explicit(&cell->word, memory_order_relaxed);
	atomic_store_explicit(&cell->word, ((word >> 32) + 1) << 32, memory_order_release);
	/* The next user of the cell must not see these flags. */
	atomic_store_explicit(&cell->flags, 0, memory_order_relaxed);
	stash[stashed++] = cell;
}

void usmb_owner_clear(void)
{
	while (stashed > 0) usmb_cell_recycle(stash[--stashed]);
}

static usmb_cell *take_cell(void)
{
	if (stashed == 0) return usmb_cell_new(usmb_pylist);
	usmb_cell *cell = stash[--stashed];
	uint64_t word = atomic_load_explicit(&cell->word, memory_order_relaxed);
	cell->next = NULL;
	atomic_store_explicit(&cell->queue, NULL, memory_order_relaxed);
	cell->block = cell->resource = cell->stack = cell->tag = 0;
	cell->magazine = 0;
	atomic_store_explicit(&cell->word, word | 1, memory_order_release);
	return cell;
}

static usmb_cell *cell_over(char *lo, uint64_t size, usmb_place *place);

static usmb_cell *new_cell(void *ctx, void (*end)(usmb_cell *), void *data, uint64_t size, usmb_place *place)
{
	usmb_cell *cell = take_cell();
	if (!cell) {
		usmb_raise(PyExc_MemoryError, "no memory for another owner cell: too many arrays are alive");
		return NULL;
	}
	usmb_cell_set_root(cell, NULL);
	cell->at_zero = end;
	cell->ctx = ctx;
	cell->data = data;
	cell->size = size;
	cell->requested = size == UINT64_MAX ? 0 : size;
	cell->place = place;
	uint32_t flags = USMB_CELL_FOREIGN | USMB_CELL_IMPORTED;
	if (!place || place->host_readable) flags |= USMB_CELL_HOST_READABLE;
	usmb_cell *record = place ? cell_over(data, cell->requested, place)
	                          : usmb_cell_lent_at(data, (char *)data + cell->requested);
	if (record) {
		usmb_cell_set_record(cell, record);
		flags |= USMB_CELL_ALIAS;
	}
	atomic_store_explicit(&cell->flags, flags, memory_order_release); /* last: Go's reports list the cell now */
	return cell;
}

void usmb_cell_alias(usmb_cell *cell, usmb_cell *of)
{
	of = usmb_cell_record(of);
	if (usmb_cell_record(cell) == cell)
		usmb_cell_set_record(cell, of);
	else if (usmb_cell_record(cell) == of && !(cell->block & USMB_BLOCK_BORROWS))
		usmb_cell_drop(of);
	else
		return;
	cell->block |= USMB_BLOCK_BORROWS;
}

/* The tp_clear of classes that are written in Python, and the last type that may_clear was asked for. */
static void *python_clear;
static PyTypeObject *last_type; /* owned */
static int last_result;

/* Whether the collector may clear the exporter of a buffer while the buffer is in use: it must clear
   Python's attributes only. A tp_clear in C may end the memory or, as memoryview's in CPython 3.11 and in
   3.12 before 3.12.7 (gh-77894), the buffer. */
static int may_clear(PyObject *exporter)
{
	PyTypeObject *type = Py_TYPE(exporter), *t = type;
	if (type == last_type) return last_result;
	void *clear = PyType_GetSlot(t, Py_tp_clear);
	while (clear && clear == python_clear && (t = PyType_GetSlot(t, Py_tp_base)) != NULL)
		clear = PyType_GetSlot(t, Py_tp_clear);
	PyTypeObject *old = last_type;
	last_type = (PyTypeObject *)Py_NewRef(type);
	last_result = clear == NULL;
	Py_XDECREF(old);
	return last_result;
}

PyObject *usmb_cell_object(const usmb_cell *cell)
{
	if (cell->at_zero == end_object) return cell->ctx;
	return cell->block & USMB_BLOCK_CLEARS && cell->ctx ? ((Py_buffer *)cell->ctx)->obj : NULL;
}

usmb_cell *usmb_cell_of_object(PyObject *o, void *data, uint64_t size, usmb_place *place)
{
	return new_cell(o, end_object, data, size, place);
}

/* By the address of the owner, under the GIL. The entries hold no references: the generation of a
   dead cell has changed. An owner that the cell does not hold can end, and another object can get its
   address; its memory then is that of the cell too, because it lies inside. */
enum { KNOWN = 64 };
static struct {
	const PyObject *owner;
	usmb_cell *cell;
	uint32_t generation;
} known[KNOWN];

static unsigned known_at(const void *owner)
{
	return (unsigned)(((uintptr_t)owner >> 4) * 0x9E3779B97F4A7C15u >> 58) % KNOWN;
}

void usmb_cell_remember(const PyObject *owner, usmb_cell *cell)
{
	unsigned at = known_at(owner);
	known[at].owner = owner;
	known[at].cell = cell;
	known[at].generation = usmb_cell_generation(cell);
}

usmb_cell *usmb_cell_known(const PyObject *owner, const char *lo, const char *hi)
{
	unsigned at = known_at(owner);
	usmb_cell *cell = known[at].cell;
	if (known[at].owner != owner || !usmb_cell_try_retain(cell, known[at].generation)) return NULL;
	if (cell->place && usmb_cell_covers(cell, lo, hi)) return cell;
	usmb_cell_drop_gil(cell);
	return NULL;
}

/* ---- USM by address ---------------------------------------------------------------- */

/* A tree of intervals that do not overlap. Entries hold no references; those of dead cells stay until their addresses
   are entered again or the tree has doubled. */
typedef struct {
	const char *lo, *hi;
	usmb_cell *cell;
	uint32_t generation;
} interval;
static void *intervals;                                           /* of tsearch */
static size_t n_intervals, swept;                                 /* entries now, and after the last sweep */
static const char *lent_lo = (const char *)UINTPTR_MAX, *lent_hi; /* of all memory that was ever lent */
static interval *latest; /* the one that was found or entered last, or NULL: an import asks for it several times */

/* Intervals that overlap are equal. */
static int compare_intervals(const void *a, const void *b)
{
	const interval *x = a, *y = b;
	return x->hi <= y->lo ? -1 : x->lo >= y->hi ? 1 : 0;
}

static int is_dead(const interval *e)
{
	return usmb_cell_generation(e->cell) != e->generation || usmb_cell_count(e->cell) == 0;
}

static interval *interval_in(const char *lo, const char *hi)
{
	interval key = {lo, hi, NULL, 0}, **found;
	if (latest && compare_intervals(latest, &key) == 0) return latest;
	found = tfind(&key, &intervals, compare_intervals);
	return found ? (latest = *found) : NULL;
}

static void forget_interval(interval *e)
{
	tdelete(e, &intervals, compare_intervals);
	if (latest == e) latest = NULL;
	free(e);
	n_intervals--;
}

static interval **dead; /* those that a sweep has found */
static size_t n_dead;

static void find_dead(const void *node, VISIT visit, int depth)
{
	interval *e = *(interval *const *)node;
	(void)depth;
	if ((visit == postorder || visit == leaf) && is_dead(e)) dead[n_dead++] = e;
}

static void sweep_intervals(void)
{
	dead = malloc(n_intervals * sizeof *dead);
	if (!dead) return;
	n_dead = 0;
	twalk(intervals, find_dead);
	while (n_dead > 0) forget_interval(dead[--n_dead]);
	free(dead);
	swept = n_intervals;
}

/* Moves the bounds of an interval outwards, as far as no other live memory begins. */
static void widen(interval *e, const char *lo, const char *hi)
{
	for (interval *next; lo < e->lo && (next = interval_in(lo, e->lo)) != NULL;)
		if (is_dead(next))
			forget_interval(next);
		else
			lo = next->hi;
	for (interval *next; hi > e->hi && (next = interval_in(e->hi, hi)) != NULL;)
		if (is_dead(next))
			forget_interval(next);
		else
			hi = next->lo;
	if (lo < e->lo) e->lo = lo;
	if (hi > e->hi) e->hi = hi;
}

/* The record of memory at a place that a new cell shares with live ones, retained, or NULL. Its interval then covers the
   memory of both, because owners need not report how far theirs goes. */
static usmb_cell *cell_over(char *lo, uint64_t size, usmb_place *place)
{
	const char *hi = lo + size;
	for (interval *e; size > 0 && (e = interval_in(lo, hi)) != NULL; forget_interval(e)) {
		if (!usmb_cell_try_retain(e->cell, e->generation)) {
			if (e->lo == lo && e->hi == hi) return NULL; /* usmb_cell_enter takes the entry */
			continue;
		}
		if (e->cell->place == place) {
			widen(e, lo, hi);
			return e->cell;
		}
		usmb_cell_drop_gil(e->cell);
		return NULL;
	}
	return NULL;
}

int usmb_cell_enter(usmb_cell *cell)
{
	cell = usmb_cell_record(cell);
	const char *lo = cell->data, *hi = lo + cell->size;
	uint32_t generation = usmb_cell_generation(cell);
	if (!cell->place || !lo || cell->size == 0 || cell->size == UINT64_MAX) return 0;
	for (interval *e; (e = interval_in(lo, hi)) != NULL; forget_interval(e)) {
		if (e->cell == cell && e->generation == generation) return 0;
		if (e->lo == lo && e->hi == hi) {
			e->cell = cell;
			e->generation = generation;
			return 0;
		}
		/* Memory of others can have several cells: the largest one stays. */
		if (!is_dead(e) && e->hi - e->lo > hi - lo) return 0;
	}
	if (n_intervals > 2 * swept + 64) sweep_intervals();
	interval *e = malloc(sizeof *e), **node = NULL;
	if (e) {
		*e = (interval){lo, hi, cell, generation};
		node = tsearch(e, &intervals, compare_intervals);
	}
	if (!node) {
		free(e);
		PyErr_NoMemory();
		return -1;
	}
	*node = latest = e; /* as it is; the analyser does not know that the tree owns e now */
	n_intervals++;
	return 0;
}

/* Whether the host can access the memory of a record, which is in USM. */
static int is_lendable(const usmb_cell *record)
{
	uint32_t flags = atomic_load_explicit(&record->flags, memory_order_relaxed);
	return record->place && record->size != UINT64_MAX && flags & USMB_CELL_HOST_READABLE;
}

int usmb_cell_lend(usmb_cell *cell)
{
	cell = usmb_cell_record(cell);
	const char *lo = cell->data;
	if (!is_lendable(cell)) return 0;
	if (usmb_cell_enter(cell) < 0) return -1;
	interval *e = interval_in(lo, lo + 1);
	if (!e) return 0;
	if (e->lo < lent_lo) lent_lo = e->lo;
	if (e->hi > lent_hi) lent_hi = e->hi;
	return 0;
}

/* The live cell that covers [lo, hi), retained, or NULL. */
static usmb_cell *cell_at(const char *lo, const char *hi)
{
	interval *e = lo < hi ? interval_in(lo, lo + 1) : NULL;
	return e && hi <= e->hi && usmb_cell_try_retain(e->cell, e->generation) ? e->cell : NULL;
}

usmb_cell *usmb_cell_lent_at(const char *lo, const char *hi)
{
	usmb_cell *cell = lo < lent_lo || hi > lent_hi ? NULL : cell_at(lo, hi);
	if (!cell || is_lendable(cell)) return cell;
	usmb_cell_drop_gil(cell);
	return NULL;
}

usmb_cell *usmb_cell_find(const char *lo, const char *hi, usmb_place *place)
{
	usmb_cell *cell = cell_at(lo, hi);
	if (!cell || (cell->place == place && usmb_cell_covers(cell, lo, hi))) return cell;
	usmb_cell_drop_gil(cell);
	return NULL;
}

usmb_cell *usmb_cell_of_managed(void *managed, int versioned, void *data, uint64_t size, usmb_place *place)
{
	return new_cell(managed, versioned ? end_versioned : end_legacy, data, size, place);
}

usmb_cell *usmb_cell_of_buffer(Py_buffer *owned, void *data, uint64_t size)
{
	usmb_cell *cell = new_cell(owned, end_buffer, data, size, NULL);
	if (cell && owned->obj && may_clear(owned->obj)) cell->block |= USMB_BLOCK_CLEARS;
	return cell;
}

usmb_cell *usmb_cell_of_foreign(usmb_foreign *owned, void *data, uint64_t size)
{
	return new_cell(owned, end_foreign, data, size, NULL);
}

usmb_cell *usmb_cell_of_block(void *block, uint64_t size)
{
	return new_cell(block, end_block, block, size, NULL);
}

/* The end for deleters of consumers, which run on any thread. If the thread holds the GIL, the
   owner is freed at once, as other producers do. Cells beyond DEEP are then on the list, and the
   outermost end runs them. */
static int end_here(usmb_cell *cell)
{
	if (!cell->at_zero || !usmb_py_holds_gil() || nested >= DEEP) return 0;
	finish_gil(cell);
	if (nested == 0) usmb_owner_drain();
	return 1;
}

void usmb_storage_register(void)
{
	usmb_pylist->here = end_here;
	/* All classes that are written in Python have this function. Without it fewer cycles are found. */
	PyObject *class = PyErr_NewExceptionWithDoc("usmbridge.Class", NULL, NULL, NULL);
	if (class)
		python_clear = PyType_GetSlot((PyTypeObject *)class, Py_tp_clear);
	else
		PyErr_Clear();
	Py_XDECREF(class);
}

void usmb_cell_drop_gil(usmb_cell *cell)
{
	if (!usmb_cell_unref(cell)) return;
	if (cell->home == usmb_pylist && cell->at_zero)
		finish_gil(cell);
	else
		usmb_cell_push(cell);
}

/* Ends the dropped cells and keeps the exception that is set. GIL. */
void usmb_owner_drain_slow(void)
{
	PyObject *type, *value, *trace;
	if (nested >= DEEP) return;
	PyErr_Fetch(&type, &value, &trace);
	nested++;
	/* Deeper ends add to the list meanwhile; the outermost drain empties it. */
	do
		for (usmb_cell *cell = usmb_list_take(usmb_pylist), *next; cell; cell = next) {
			next = cell->next;
			if (!await_work(cell)) usmb_cell_finish(cell);
		}
	while (nested == 1 && !usmb_list_empty(usmb_pylist));
	nested--;
	PyErr_Restore(type, value, trace);
}

void usmb_owner_settle_slow(int which)
{
	enum { EVERY = 16 };
	static unsigned calls;
	/* They are higher after a wait that failed, so that not every operation tries it again. */
	static uint32_t most_awaiting = USMB_MOST_AWAITING;
	static uint64_t most_awaited = USMB_MOST_AWAITED;
	int over = usmb_awaiting > most_awaiting || awaited > most_awaited;
	int wait = which == USMB_SETTLE_ALL || (which == USMB_SETTLE_BOUND && over);
	if (usmb_py_in_child() || (!wait && which == USMB_SETTLE_BOUND && ++calls % EVERY)) return;
	PyThreadState *saved = usmb_py_release_gil();
	int settled = usmb_go_settle(wait);
	usmb_py_acquire_gil(saved);
	usmb_owner_drain();
	if (!wait) return;
	most_awaiting = settled ? USMB_MOST_AWAITING : 2 * usmb_awaiting;
	most_awaited = settled ? USMB_MOST_AWAITED : 2 * awaited;
}

/* Called by the list's own goroutine. Returns 0 if Python has ended. */
int usmb_owner_drain_locked(void)
{
	if (!usmb_py_alive()) return 0;
	PyGILState_STATE state = PyGILState_Ensure();
	usmb_owner_drain();
	PyGILState_Release(state);
	return 1;
}

/* ==== Kept memory ============================================================================= */

/* Memory that arrays released, for the next arrays of the same size. The cache is filled and emptied under
   the GIL. A reader or trimmer of the pools empties it on any thread: it exchanges a slot for NULL, and the
   thread that got the cell owns it. */

enum { SETS = 16, WAYS = 4, WISHES = 8 };
#define KEEP_BYTES ((uint64_t)4 << 20)

static struct set {
	_Atomic(usmb_cell *) cells[WAYS];
	uint64_t requested[WAYS]; /* this and the members below: under the GIL */
	usmb_wish wishes[WAYS];
	unsigned oldest;
} sets[SETS];
/* The bytes put here minus the bytes taken under the GIL; and the bytes that other threads have
   taken and that are not subtracted yet. */
static uint64_t kept_bytes;
static int64_t kept_cells;
static _Atomic uint64_t gone_bytes;
static _Atomic int64_t gone_cells;

/* The properties of the cells that Go makes for a wish. */
static struct {
	uint64_t serial; /* of their place, 0 for none */
	void *queue;     /* compared, never dereferenced */
	uint32_t flags;
} fresh[WISHES];

static struct set *set_of(uint64_t bytes, usmb_wish wish)
{
	return &sets[((bytes * WISHES + wish) * 0x9E3779B97F4A7C15u) >> 60];
}

/* Takes the cell in a slot; NULL if the slot is empty or another thread took the cell. */
static usmb_cell *take_at(struct set *s, int i)
{
	usmb_cell *cell = atomic_exchange_explicit(&s->cells[i], NULL, memory_order_acq_rel);
	if (!cell) return NULL;
	kept_bytes -= cell->size;
	kept_cells--;
	return cell;
}

/* Subtracts the bytes that other threads have taken. */
static void deduct(void)
{
	if (atomic_load_explicit(&gone_cells, memory_order_relaxed) == 0) return;
	kept_cells -= atomic_exchange_explicit(&gone_cells, 0, memory_order_acquire);
	kept_bytes -= atomic_exchange_explicit(&gone_bytes, 0, memory_order_relaxed);
}

usmb_cell *usmb_kept_take(uint64_t bytes, usmb_wish wish)
{
	if (kept_cells == 0) return NULL; /* kept_cells can be too high, never too low */
	struct set *s = set_of(bytes, wish);
	for (int i = 0; i < WAYS; i++) {
		if (s->wishes[i] != wish || s->requested[i] != bytes) continue;
		usmb_cell *cell = take_at(s, i);
		if (!cell) continue;
		/* SYCL may have been loaded since: then the default memory is in another place. */
		if (!cell->place && !(wish & 4) && usmb_sycl_loaded()) {
			usmb_cell_push(cell);
			continue;
		}
		uint64_t word = atomic_load_explicit(&cell->word, memory_order_relaxed);
		atomic_store_explicit(&cell->word, ((word >> 32) + 1) << 32 | 1, memory_order_release);
		return cell;
	}
	return NULL;
}

void usmb_kept_note(usmb_cell *cell, usmb_wish wish)
{
	fresh[wish].queue = atomic_load_explicit(&cell->queue, memory_order_relaxed);
	fresh[wish].flags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	fresh[wish].serial = cell->place ? ((usmb_place *)cell->place)->serial : 0;
}

int usmb_kept_is_at(usmb_wish wish, const usmb_place *place)
{
	return fresh[wish].serial == place->serial;
}

/* Reports whether a cell may be kept. Memory that was exported by DLPack, used on another queue,
   has pending work or is profiled goes to its pool, which handles these. */
static int may_be_kept(usmb_cell *cell, usmb_wish wish)
{
	return atomic_load_explicit(&cell->pending, memory_order_acquire) == NULL &&
	       (atomic_load_explicit(&cell->flags, memory_order_relaxed) & ~(uint32_t)USMB_CELL_ASYNC) ==
	               fresh[wish].flags &&
	       atomic_load_explicit(&cell->queue, memory_order_relaxed) == fresh[wish].queue && cell->stack == 0 &&
	       cell->size <= KEEP_BYTES / 2 && usmb_py_alive() && !usmb_py_in_child();
}

void usmb_kept_drop(usmb_cell *cell, usmb_wish wish)
{
	if (usmb_owned_by_python(cell)) {
		usmb_cell_drop_gil(cell);
		return;
	}
	if (!usmb_cell_unref(cell)) return;
	/* dpnp keeps the memory alive while it computes, so its work has ended. */
	if (usmb_cell_used(cell) != USMB_USED_NO)
		atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_USED, memory_order_relaxed);
	if (!may_be_kept(cell, wish)) {
		usmb_cell_push(cell);
		return;
	}
	deduct();
	/* The kept sizes may be out of use: start again. */
	if (kept_bytes + cell->size > KEEP_BYTES) usmb_kept_clear();
	struct set *s = set_of(cell->requested, wish);
	int at = 0;
	while (at < WAYS && atomic_load_explicit(&s->cells[at], memory_order_relaxed)) at++;
	if (at == WAYS) {
		at = (int)(s->oldest++ % WAYS);
		usmb_cell *old = take_at(s, at);
		if (old) usmb_cell_push(old);
	}
	kept_bytes += cell->size;
	kept_cells++;
	s->requested[at] = cell->requested;
	s->wishes[at] = wish;
	atomic_store_explicit(&s->cells[at], cell, memory_order_release);
}

int usmb_kept_clear(void)
{
	int any = 0;
	for (int i = 0; i < SETS; i++)
		for (int k = 0; k < WAYS; k++) {
			if (!atomic_load_explicit(&sets[i].cells[k], memory_order_relaxed)) continue;
			usmb_cell *cell = atomic_exchange_explicit(&sets[i].cells[k], NULL, memory_order_acq_rel);
			if (!cell) continue;
			atomic_fetch_add_explicit(&gone_bytes, cell->size, memory_order_relaxed);
			atomic_fetch_add_explicit(&gone_cells, 1, memory_order_release);
			usmb_cell_push(cell);
			any = 1;
		}
	return any;
}
