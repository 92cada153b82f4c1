/*
 * usmb_calls.h: makes several calls of Python functions in one entry into Python. It reads the
 * arguments and stores plain results without a call into Go.
 */
#ifndef USMB_CALLS_H
#define USMB_CALLS_H

#include "usmb_pycall.h"
#include "usmb_pyvalues.h"

#define USMB_ARG_WAIT (1u << 31) /* flag of an array: the call waits for pending writes to its memory */

/* Which side owns a call: its caller and the batch exchange the state. */
enum { USMB_ITEM_WAITS = 0, USMB_ITEM_RUNS, USMB_ITEM_LEFT, USMB_ITEM_DONE };

/* One call. C owns the memory; Go writes it before the call and reads it afterwards. */
typedef struct usmb_item {
	usmb_call call;
	_Atomic uint32_t state; /* USMB_ITEM_* */
	uint32_t begun;         /* the state was set to USMB_ITEM_RUNS before the batch runs */
	uint32_t named;         /* number of keyword arguments */
	uint32_t positional;
	uint32_t room, used, at; /* words of code: allocated, written, and read */
	uint64_t *code;          /* positional values, then names and values: see interop/internal/values */
	void *function;          /* borrowed: the caller of usmb_batch_run keeps it */
	int64_t nanoseconds;
	/* The result. kind is that of usmb_pyop_view and num is USMB_CALL_*. A plain result is in re, im
	   and number. For other results, and if the call was interrupted, val is a new reference. If
	   waiting for pending writes fails, the result is an exception. */
	usmb_pyret result;
	int64_t number;
} usmb_item;

enum { USMB_BATCH = 32 };

/* A row of calls. */
typedef struct usmb_batch {
	/* Calls to make. The side that exchanges one for NULL owns it. */
	_Atomic(usmb_item *) items[USMB_BATCH];
	uint32_t n;
	/* Places of the calls in order of completion. The first ended elements may be read. */
	uint32_t order[USMB_BATCH];
	_Atomic uint32_t ended;
	_Atomic int32_t current; /* the running call, -1 for none */
	_Atomic int64_t began;   /* start of the running call, by CLOCK_MONOTONIC */
} usmb_batch;

usmb_item *usmb_item_new(uint64_t number);
void usmb_item_free(usmb_item *item);
/* Makes room for more words; 0 if memory is exhausted. */
int usmb_item_grow(usmb_item *item, uint32_t words);
/* Releases the arguments that no call has read, and resets the item. No GIL. */
void usmb_item_clear(usmb_item *item);
/* Releases the result. No GIL. */
void usmb_item_drop(usmb_item *item);

/* Makes the calls. Returns 0, or the code of a failure to enter Python, which is then the result of each
   call. */
int usmb_batch_run(usmb_batch *batch);

int64_t usmb_calls_now(void);

#endif
