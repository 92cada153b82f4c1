//go:build linux && cgo

/* Items and batches: reading the arguments, making the calls, storing plain results. */
#include "usmb_calls.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "handover.h"
#include "usmb_owner.h"
#include "usmb_pyvalues.h"
#include "storage.h"

/* ---- items ------------------------------------------------------------------------- */

enum { FIRST_ROOM = 64, KEPT_ROOM = 4096 };

usmb_item *usmb_item_new(uint64_t number)
{
	usmb_item *item = calloc(1, sizeof *item);
	if (!item) return NULL;
	item->call.number = number;
	if (usmb_item_grow(item, FIRST_ROOM)) return item;
	free(item);
	return NULL;
}

void usmb_item_free(usmb_item *item)
{
	free(item->code);
	free(item);
}

int usmb_item_grow(usmb_item *item, uint32_t words)
{
	uint64_t want = (uint64_t)item->used + words;
	if (want <= item->room) return 1;
	if (want > UINT32_MAX / 2) return 0;
	uint64_t room = item->room ? item->room : FIRST_ROOM;
	while (room < want) room *= 2;
	uint64_t *code = realloc(item->code, room * sizeof *code);
	if (!code) return 0;
	item->code = code;
	item->room = (uint32_t)room;
	return 1;
}

void usmb_item_clear(usmb_item *item)
{
	while (item->at < item->used) {
		uint64_t word = item->code[item->at];
		if (usmb_value_kind(word) == USMB_VALUE_ARRAY)
			usmb_cell_drop((void *)(uintptr_t)item->code[item->at + 1]);
		item->at += usmb_value_size(word);
	}
	if (item->room > KEPT_ROOM) {
		uint64_t *code = realloc(item->code, FIRST_ROOM * sizeof *code);
		if (code) item->code = code;
		if (code) item->room = FIRST_ROOM;
	}
	uint64_t number = item->call.number;
	memset(&item->call, 0, sizeof item->call);
	item->call.number = number;
	atomic_store_explicit(&item->state, USMB_ITEM_WAITS, memory_order_relaxed);
	item->begun = item->named = item->positional = item->used = item->at = 0;
	item->function = NULL;
	memset(&item->result, 0, sizeof item->result);
	item->number = 0;
}

void usmb_item_drop(usmb_item *item)
{
	if (item->result.val) usmb_py_decref_later(item->result.val);
	if (item->result.exc) usmb_py_decref_later(item->result.exc);
	item->result.val = item->result.exc = NULL;
}

/* ---- a call ------------------------------------------------------------------------ */

enum { FEW = 16 };

/* The arguments in the form of a vectorcall. */
typedef struct {
	PyObject **refs; /* owned */
	PyObject **more; /* memory of refs if few is too small, else NULL */
	PyObject *names; /* owned; NULL: none */
	PyObject *few[FEW + 1];
	uint32_t n, positional;
} arguments;

static void release_arguments(arguments *a)
{
	for (uint32_t i = 0; i < a->n; i++) Py_DECREF(a->refs[i]);
	Py_XDECREF(a->names);
	free(a->more);
}

/* The words that are being read, and the memory of those arrays whose pending writes the call waits
   for. */
typedef struct {
	usmb_words in;
	uint32_t n, room;
	usmb_cell **cells; /* with a reference each */
	usmb_cell *few[8];
} reader;

/* Adds memory whose pending writes the call waits for; 0 with an exception. */
static int wait_for(reader *r, usmb_cell *cell)
{
	if (r->n == r->room) {
		usmb_cell **more = malloc(2 * (size_t)r->room * sizeof *more);
		if (!more) {
			PyErr_NoMemory();
			return 0;
		}
		memcpy(more, r->cells, r->n * sizeof *more);
		if (r->cells != r->few) free(r->cells);
		r->cells = more;
		r->room *= 2;
	}
	usmb_cell_retain(cell);
	r->cells[r->n++] = cell;
	return 1;
}

/* The words of an array after the first: cell with a reference, first element, dtype, flags,
   extents, strides. */
static PyObject *read_array(usmb_words *in)
{
	uint64_t n = usmb_value_n(in->words[in->at]);
	const uint64_t *words = in->words + in->at + 1;
	usmb_cell *cell = (usmb_cell *)(uintptr_t)words[0];
	usmb_dl_dtype dtype;
	memcpy(&dtype, words + 2, sizeof dtype);
	uint32_t flags = (uint32_t)words[3];
	PyObject *a = usmb_handover_array(cell, (uintptr_t)words[1], dtype, flags & ~USMB_ARG_WAIT, (int32_t)n,
	                                  (int64_t *)words + 4, (int64_t *)words + 4 + n);
	/* After a failure the words still own the reference of the cell, and usmb_item_clear, which
	   goes on at this value, drops it. */
	if (!a) return NULL;
	in->at += usmb_value_size(in->words[in->at]);
	if (!(flags & USMB_ARG_WAIT) || wait_for((reader *)in, cell)) return a;
	Py_DECREF(a);
	return NULL;
}

/* Reads the name of an argument. It is interned because functions compare names by identity first. */
static PyObject *name_of(usmb_words *in)
{
	uint64_t word = in->words[in->at];
	const char *text = (const char *)(in->words + in->at + 1);
	if (usmb_value_kind(word) != USMB_VALUE_TEXT || memchr(text, 0, usmb_value_n(word)))
		return usmb_py_read_value(in);
	in->at += usmb_value_size(word);
	return PyUnicode_InternFromString(text);
}

/* Reads all arguments; 0 with an exception. The caller releases them in both cases. */
static int read_arguments(usmb_item *item, arguments *a, usmb_words *in)
{
	uint32_t all = item->positional + item->named;
	*a = (arguments){.positional = item->positional};
	/* PY_VECTORCALL_ARGUMENTS_OFFSET: the callee may use the element before the first. */
	a->refs = a->few + 1;
	if (all > FEW) {
		a->more = malloc(((size_t)all + 1) * sizeof *a->more);
		if (!a->more) {
			PyErr_NoMemory();
			return 0;
		}
		a->refs = a->more + 1;
	}
	if (item->named && !(a->names = PyTuple_New(item->named))) return 0;
	for (; a->n < all; a->n++) {
		if (a->n >= item->positional) {
			PyObject *name = name_of(in);
			if (!name || PyTuple_SetItem(a->names, (Py_ssize_t)(a->n - item->positional), name)) return 0;
		}
		if (!(a->refs[a->n] = usmb_py_read_value(in))) return 0;
	}
	return 1;
}

/* Stores a plain result in the item. Go reads other results later, with the GIL. */
static void store_plain(usmb_item *item)
{
	usmb_pyret *r = &item->result;
	usmb_pyret plain = usmb_pyop_view(r->val);
	switch (plain.code == 0 ? plain.kind : USMB_PYK_OTHER) {
	case USMB_PYK_NONE:
	case USMB_PYK_BOOL:
	case USMB_PYK_INT:
	case USMB_PYK_FLOAT:
	case USMB_PYK_COMPLEX:
		Py_DECREF((PyObject *)r->val);
		r->val = NULL;
		r->kind = plain.kind;
		r->re = plain.re;
		r->im = plain.im;
		item->number = plain.num;
		return;
	}
	Py_XDECREF((PyObject *)plain.exc);
	r->kind = USMB_PYK_OTHER;
}

static void run(usmb_item *item)
{
	arguments a;
	reader in = {.in = {.words = item->code, .at = item->at, .array = read_array},
	             .cells = in.few,
	             .room = sizeof in.few / sizeof *in.few};
	usmb_pyret *r = &item->result;
	int ok = read_arguments(item, &a, &in.in);
	item->at = in.in.at;
	if (ok)
		*r = usmb_py_call_with(&item->call, item->function, (void **)a.refs,
		                       a.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, a.names);
	else
		usmb_py_take_exception(r);
	/* Wait after an exception too: the callers may use their arrays again. */
	for (uint32_t i = 0; i < in.n; i++) {
		int settled = usmb_handover_settle(in.cells[i]);
		usmb_cell_drop_gil(in.cells[i]);
		if (settled == 0) continue;
		if (r->code) {
			PyErr_Clear();
			continue;
		}
		Py_XDECREF((PyObject *)r->val);
		usmb_py_take_exception(r);
	}
	if (in.cells != in.few) free(in.cells);
	release_arguments(&a);
	if (r->code == 0 && r->num == 0) store_plain(item);
}

/* ---- batches ----------------------------------------------------------------------- */

int64_t usmb_calls_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void end(usmb_batch *b, uint32_t i)
{
	uint32_t n = atomic_load_explicit(&b->ended, memory_order_relaxed);
	b->order[n] = i;
	atomic_store_explicit(&b->ended, n + 1, memory_order_release);
}

int usmb_batch_run(usmb_batch *b)
{
	PyGILState_STATE st;
	int code = usmb_py_enter(&st);
	int64_t now = usmb_calls_now();
	for (uint32_t i = 0; i < b->n; i++) {
		usmb_item *item = atomic_exchange_explicit(&b->items[i], NULL, memory_order_acq_rel);
		uint32_t waits = USMB_ITEM_WAITS;
		if (!item) continue; /* taken back */
		if (code) {
			item->result.code = code; /* not made: the state stays */
		} else if (item->begun ||
		           atomic_compare_exchange_strong_explicit(&item->state, &waits, USMB_ITEM_RUNS,
		                                                   memory_order_acq_rel, memory_order_acquire)) {
			atomic_store_explicit(&b->began, now, memory_order_relaxed);
			atomic_store_explicit(&b->current, (int32_t)i, memory_order_release);
			run(item);
			int64_t after = usmb_calls_now();
			item->nanoseconds = after - now;
			now = after;
			atomic_store_explicit(&b->current, -1, memory_order_release);
		}
		end(b, i);
	}
	if (!code) usmb_py_leave(st);
	return code;
}
