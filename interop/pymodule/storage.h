/* storage.h: the owners of memory, work pending on it, and the cache of memory that arrays released. */
#ifndef USMB_PYMODULE_STORAGE_H
#define USMB_PYMODULE_STORAGE_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

/* ---- storage ---- */

extern usmb_list *usmb_pylist; /* drop list of the cells whose end needs Python */
/* The list of Go for dead cells of memory that was shown to other libraries (owner.Shown). */
extern usmb_list *usmb_shown_list;
/* Whether the cell was made by storage.c, not by the memory manager of Go. */
static inline int usmb_owned_by_python(const usmb_cell *cell)
{
	return cell->home == usmb_pylist;
}
/* A cell that owns a Python object (takes over the reference), a managed tensor or a Py_buffer;
   takes over place. NULL with MemoryError on failure. */
usmb_cell *usmb_cell_of_object(PyObject *o, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_managed(void *managed, int versioned, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_buffer(Py_buffer *owned, void *data, uint64_t size);
/* Memory that a C function frees. */
typedef struct usmb_foreign {
	/* Called once with the GIL held when the last reference is dropped, but not after Python
	   has ended. It must free the struct too. */
	void (*end)(struct usmb_foreign *);
} usmb_foreign;
usmb_cell *usmb_cell_of_foreign(usmb_foreign *owned, void *data, uint64_t size);
/* Whether [lo, hi) lies in the memory of a cell. */
static inline int usmb_cell_covers(const usmb_cell *cell, const char *lo, const char *hi)
{
	const char *data = cell->data;
	return lo >= data && lo <= hi && (uint64_t)(hi - data) <= cell->size;
}
/* Remembers the cell of an object's memory, so that the next import of the object finds it.
   usmb_cell_known returns that cell, retained, if it covers [lo, hi). */
void usmb_cell_remember(const PyObject *owner, usmb_cell *cell);
usmb_cell *usmb_cell_known(const PyObject *owner, const char *lo, const char *hi);
/* The first queue object with which memory that belongs to Python was imported, borrowed from the cell, or
   NULL; other memory has none. set takes a new reference. GIL. */
static inline PyObject *usmb_cell_first_queue(const usmb_cell *cell)
{
	return usmb_owned_by_python(cell) ? (PyObject *)(uintptr_t)cell->magazine : NULL;
}
static inline void usmb_cell_set_first_queue(usmb_cell *cell, PyObject *queue)
{
	cell->magazine = (uint64_t)(uintptr_t)Py_NewRef(queue);
}
/* Whether Go has had memory that belongs to Python, and so must know its queues. */
/* Bits of usmb_cell.block. */
enum {
	USMB_BLOCK_CLEARS = 1,
	USMB_BLOCK_IN_GO = 2,
	USMB_BLOCK_BORROWS = 4,
	USMB_BLOCK_AWAITS = 8,  /* it replaced a dead cell: see usmb_awaiting */
	USMB_BLOCK_CLAIMED = 16 /* only a dictionary says how far the memory goes */
};
/* Whether memory that the cell covers can have another owner, which an import then keeps too. */
static inline int usmb_cell_is_claimed(const usmb_cell *cell)
{
	return usmb_owned_by_python(cell) && cell->block & USMB_BLOCK_CLAIMED;
}
/* Whether a cell is read-only, but memory of an import is not. */
static inline int usmb_cell_narrows(const usmb_cell *cell, int readonly)
{
	return !readonly && atomic_load_explicit(&cell->flags, memory_order_relaxed) & USMB_CELL_READONLY;
}
/* Whether an import of memory that the cell covers needs no cell of its own. */
static inline int usmb_cell_serves(const usmb_cell *cell, int readonly)
{
	return !usmb_cell_is_claimed(cell) && !usmb_cell_narrows(cell, readonly);
}
static inline int usmb_cell_in_go(const usmb_cell *cell)
{
	return (cell->block & USMB_BLOCK_IN_GO) != 0;
}
static inline void usmb_cell_set_in_go(usmb_cell *cell)
{
	cell->block |= USMB_BLOCK_IN_GO;
}
/* Drops the queues that Go has recorded for a cell that ends. */
void usmb_go_forget_queues(usmb_cell *cell);

/* USM by address, so that memory that comes back by another object has one record of pending work. usmb_cell_enter records
   the memory of a cell's record; -1 with MemoryError. usmb_cell_find returns the live cell at that place that covers
   [lo, hi), retained; NULL without an exception if there is none. GIL. */
int usmb_cell_enter(usmb_cell *cell);
usmb_cell *usmb_cell_find(const char *lo, const char *hi, usmb_place *place);
/* The same for memory to which the host gets access, and for memory of any place. All cells of plain memory in such USM are
   aliases of its record, so they wait for the work of devices on it. Addresses outside of all such memory cost nothing. */
int usmb_cell_lend(usmb_cell *cell);
usmb_cell *usmb_cell_lent_at(const char *lo, const char *hi);
/* Makes a cell of storage.c, which only the caller knows, an alias of another one, unless it is one. The object that
   the cell owns keeps the memory of the other one alive: the alias owns no reference of it, which would hide cycles from
   the collector. */
void usmb_cell_alias(usmb_cell *cell, usmb_cell *of);

/* Makes a cell that owns a block of malloc. */
usmb_cell *usmb_cell_of_block(void *block, uint64_t size);
/* The Python object that such a cell keeps alive, for the collector, borrowed; NULL if it has none, or one
   that the collector must not clear while its buffer is in use. */
PyObject *usmb_cell_object(const usmb_cell *cell);
/* The array that reports that object to the collector, borrowed, or NULL. Each import of an object
   can have a root of its own. GIL. */
static inline void *usmb_cell_root(const usmb_cell *cell)
{
	return (void *)(uintptr_t)cell->private;
}
static inline void usmb_cell_set_root(usmb_cell *cell, void *root)
{
	cell->private = (uint64_t)(uintptr_t)root;
}

/* The pending work of a cell. copy returns an owned copy of its event; NULL if there is none, or if
   memory ran out and the function waited for the work instead, with the GIL dropped: USMB_CELL_FAILED is
   then set if the work failed. done removes the event once it is complete. No GIL needed. */
void *usmb_pending_copy(usmb_cell *cell);
void usmb_pending_done(usmb_cell *cell);
void usmb_storage_register(void);
/* Frees the cells that are stashed for the next imports. */
void usmb_owner_clear(void);
/* Drops a reference with the GIL held, so that Python's cells end at once. */
void usmb_cell_drop_gil(usmb_cell *cell);
/* Ends the cells that were dropped by threads that could not take the GIL. Every entry calls
   usmb_owner_drain, dealloc included; it costs one read if there are none. */
void usmb_owner_drain_slow(void);
static inline void usmb_owner_drain(void)
{
	if (!usmb_list_empty(usmb_pylist)) usmb_owner_drain_slow();
}
/* The same without the GIL: takes it and drains. Returns 0 if Python has ended. */
int usmb_owner_drain_locked(void);

/*
 * The owners of shown memory that are kept until the work of other libraries on the memory has ended, after the last array
 * on it is gone. Go keeps them (owner.Shown), as it keeps shown memory of its own: it asks the queues four times a second
 * whether they are empty. Operations bound them: while more than USMB_MOST_AWAITING owners or USMB_MOST_AWAITED bytes are
 * kept, an operation waits for the work, without the GIL.
 */
enum { USMB_MOST_AWAITING = 64 };
#define USMB_MOST_AWAITED ((uint64_t)64 << 20)
extern uint32_t usmb_awaiting; /* owners; GIL */
/* Drops the owners whose work has ended. USMB_SETTLE_BOUND does so in every 16th call, and waits for the work of all if there
   are too many; USMB_SETTLE_ENDED never waits; USMB_SETTLE_ALL always does. The GIL is released meanwhile, and no exception may
   be set. A caller that may have the lock of usmb_py_computes_under does not wait: a wait needs that lock. */
enum { USMB_SETTLE_BOUND, USMB_SETTLE_ENDED, USMB_SETTLE_ALL };
void usmb_owner_settle_slow(int which);
static inline void usmb_owner_settle(int which)
{
	if (__builtin_expect(usmb_awaiting != 0, 0)) usmb_owner_settle_slow(which);
}
/* Settles memory in no pool: owner.Settle, or owner.SettleEnded if wait is 0. Returns 0 if a wait failed. No GIL. */
int usmb_go_settle(int wait);

/* ---- kept ---- */

/*
 * A cache of blocks of the shared pools. Most new arrays have the size of one that was just freed, and
 * entering Go for both costs more than everything else. No handle to a kept block is valid, and
 * live_buffers does not count it. For its pool it is in use; therefore reading the statistics of the
 * pools, trimming and closing them, in Python or in Go (memmgr.AddCache), empties the cache first. The
 * cache is bounded in number and in bytes. All functions but usmb_kept_clear need the GIL.
 */

/* The place that a request asks for: the default device (kind 0 to 3), or host memory. */
typedef uint32_t usmb_wish;
static inline usmb_wish usmb_wish_of(int kind, int host)
{
	return (uint32_t)kind | (host ? 4u : 0u);
}

/* A kept cell of that size with one reference, or NULL. */
usmb_cell *usmb_kept_take(uint64_t bytes, usmb_wish wish);
/* Notes a cell that Go has just made for a wish and that may be kept later. */
void usmb_kept_note(usmb_cell *cell, usmb_wish wish);
/* Whether Go made its last memory for the wish at place. */
int usmb_kept_is_at(usmb_wish wish, const usmb_place *place);
/* Drops a reference to a noted cell. The last reference keeps the cell, if its memory is as it was
   when made. */
void usmb_kept_drop(usmb_cell *cell, usmb_wish wish);
/* Returns all kept cells to their pools; 1 if there were any. Any thread. */
int usmb_kept_clear(void);

#endif
