//go:build linux && cgo

/* Calls in a row: their states, and the way of each. */
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
		uint64_t word = item->code[item->at++], n = word >> USMB_ARG_BITS;
		switch (word & ((1u << USMB_ARG_BITS) - 1)) {
		case USMB_ARG_INT:
		case USMB_ARG_UINT:
		case USMB_ARG_FLOAT:
		case USMB_ARG_BORROWED: item->at++; break;
		case USMB_ARG_COMPLEX: item->at += 2; break;
		case USMB_ARG_TEXT:
		case USMB_ARG_BYTES: item->at += (uint32_t)(n / 8 + 1); break;
		case USMB_ARG_ARRAY:
			usmb_cell_drop((void *)(uintptr_t)item->code[item->at]);
			item->at += (uint32_t)(4 + 2 * n);
			break;
		}
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

/* The arguments as a vectorcall wants them. */
typedef struct {
	PyObject **refs; /* owned */
	PyObject **more; /* where they are when they are many; NULL: in few */
	PyObject *names; /* owned; NULL: none */
	PyObject *few[FEW + 1];
	uint32_t n, positional;
} arguments;

static void let(arguments *a)
{
	for (uint32_t i = 0; i < a->n; i++) Py_DECREF(a->refs[i]);
	Py_XDECREF(a->names);
	free(a->more);
}

/* A name of an argument: interned, since functions compare it with their own by identity
   first. */
static PyObject *name_of(usmb_item *item)
{
	uint64_t n = item->code[item->at] >> USMB_ARG_BITS;
	const char *text = (const char *)(item->code + item->at + 1);
	item->at += (uint32_t)(n / 8 + 2);
	if (memchr(text, 0, n)) return PyUnicode_FromStringAndSize(text, (Py_ssize_t)n);
	return PyUnicode_InternFromString(text);
}

static int take(usmb_item *item, arguments *a, usmb_waits *waits)
{
	uint32_t all = item->positional + item->named;
	*a = (arguments){.positional = item->positional};
	/* The place before the first is the callee's to use. */
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
			PyObject *name = name_of(item);
			if (!name || PyTuple_SetItem(a->names, (Py_ssize_t)(a->n - item->positional), name)) return 0;
		}
		if (!(a->refs[a->n] = usmb_argument(item, waits))) return 0;
	}
	return 1;
}

/* What is plain is read here; the rest is Go's to read, with the GIL. */
static void view(usmb_item *item)
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
	usmb_waits waits = {.cells = waits.few, .room = sizeof waits.few / sizeof *waits.few};
	usmb_pyret *r = &item->result;
	if (take(item, &a, &waits))
		*r = usmb_py_call_with(&item->call, item->function, (void **)a.refs,
		                       a.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, a.names);
	else
		usmb_py_take_exception(r);
	/* After an exception too: the arguments are their owners' again. */
	for (uint32_t i = 0; i < waits.n; i++) {
		int settled = usmb_handover_settle(waits.cells[i]);
		usmb_cell_drop_gil(waits.cells[i]);
		if (settled == 0) continue;
		if (r->code) {
			PyErr_Clear();
			continue;
		}
		Py_XDECREF((PyObject *)r->val);
		usmb_py_take_exception(r);
	}
	if (waits.cells != waits.few) free(waits.cells);
	let(&a);
	if (r->code == 0 && r->num == 0) view(item);
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
			item->result.code = code; /* it never ran: its state stays */
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
