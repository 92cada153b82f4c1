/*
 * usmb_calls.h: several calls of Python functions in one entry into Python, their arguments
 * and plain results without Go.
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
	uint32_t begun;         /* it is in USMB_ITEM_RUNS before it is run */
	uint32_t named;         /* of the arguments, how many at the end are a name and a value */
	uint32_t positional;
	uint32_t room, used, at; /* words of code: allocated, written, and read */
	uint64_t *code;          /* positional values, then names and values: see interop/internal/values */
	void *function;          /* borrowed: the caller of usmb_batch_run keeps it */
	int64_t nanoseconds;
	/* The result. kind is of usmb_pyop_view; plain ones are in here, of others, and where an
	   interrupt had a part in it, val is a new reference. num is USMB_CALL_*; number is the
	   integer. A failure to wait for what was written is an exception, too. */
	usmb_pyret result;
	int64_t number;
} usmb_item;

enum { USMB_BATCH = 32 };

/* Calls to be made in a row. */
typedef struct usmb_batch {
	/* Calls to make. The side that exchanges one for NULL owns it. */
	_Atomic(usmb_item *) items[USMB_BATCH];
	uint32_t n;
	/* Which of them have been run, in that order; those below ended may be read. */
	uint32_t order[USMB_BATCH];
	_Atomic uint32_t ended;
	_Atomic int32_t current; /* the running call, -1 for none */
	_Atomic int64_t began;   /* when that was, by CLOCK_MONOTONIC */
} usmb_batch;

usmb_item *usmb_item_new(uint64_t number);
void usmb_item_free(usmb_item *item);
/* Room for so many more words; 0 when there is none. */
int usmb_item_grow(usmb_item *item, uint32_t words);
/* Releases the arguments that no call has read, and resets the item. No GIL. */
void usmb_item_clear(usmb_item *item);
/* Releases the result. No GIL. */
void usmb_item_drop(usmb_item *item);

/* Makes the calls; 0, or why Python could not be entered, which is every call's result. */
int usmb_batch_run(usmb_batch *batch);

int64_t usmb_calls_now(void);

#endif
