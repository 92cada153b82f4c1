/* storage.h: the owners of memory, work pending on it, and the cache of memory that arrays released. */
#ifndef USMB_PYMODULE_STORAGE_H
#define USMB_PYMODULE_STORAGE_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

/* ---- storage ---- */

extern usmb_list *usmb_pylist; /* drop list of cells whose end needs Python */
/* Make a cell that owns a Python object (consumes the reference), a managed tensor, or a Py_buffer.
   MemoryError if there is no memory. They consume place. */
usmb_cell *usmb_cell_of_object(PyObject *o, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_managed(void *managed, int versioned, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_buffer(Py_buffer *owned, void *data, uint64_t size);
/* Foreign memory that a C function releases. */
typedef struct usmb_foreign {
	/* Called once, with the GIL held, when the last reference is dropped; not after the end of Python. It
	   frees the struct too. */
	void (*end)(struct usmb_foreign *);
} usmb_foreign;
usmb_cell *usmb_cell_of_foreign(usmb_foreign *owned, void *data, uint64_t size);
/* Registers the cell of an object, so that the next import of the object finds it while it lives.
   usmb_cell_known returns it, retained, if it covers [lo, hi). The cell holds the object, so the address
   cannot belong to another one. */
void usmb_cell_remember(usmb_cell *cell);
usmb_cell *usmb_cell_known(PyObject *owner, const char *lo, const char *hi);
/* Makes a cell that owns a block of malloc. */
usmb_cell *usmb_cell_of_block(void *block, uint64_t size);
/* Reports whether the cell is one of this file's, and not of Go's memory manager. */
static inline int usmb_owned_by_python(const usmb_cell *cell)
{
	return cell->home == usmb_pylist;
}

/* Returns the Python object that one of this file's cells holds, borrowed; NULL if there is none. */
PyObject *usmb_cell_object(const usmb_cell *cell);
/* Returns the array through which the collector sees that object, borrowed; NULL if there is none. Repeated
   imports give one cell several arrays. Needs the GIL. */
static inline void *usmb_cell_root(const usmb_cell *cell)
{
	return (void *)(uintptr_t)cell->private;
}
static inline void usmb_cell_set_root(usmb_cell *cell, void *root)
{
	cell->private = (uint64_t)(uintptr_t)root;
}

/* Pending work of a cell. copy returns an owned reference of its event; NULL if there is none, or if there
   was no memory for a reference and the work was waited for, with the GIL released. done forgets the event
   once it is complete. set replaces the event by an owned one. The GIL is not needed. */
void *usmb_pending_copy(usmb_cell *cell);
void usmb_pending_done(usmb_cell *cell);
void usmb_pending_set(usmb_cell *cell, void *event);
void usmb_storage_register(void);
/* Frees the cells of the stash. */
void usmb_owner_clear(void);
/* Drops a reference with the GIL held: ends cells that need Python immediately. */
void usmb_cell_drop_gil(usmb_cell *cell);
/* Ends the cells that were dropped without the GIL. Every entry calls it, dealloc included. It costs one read
   if there are none. */
void usmb_owner_drain_slow(void);
static inline void usmb_owner_drain(void)
{
	if (!usmb_list_empty(usmb_pylist)) usmb_owner_drain_slow();
}
/* Takes the GIL and drains; 0 after the end of Python. Called without the GIL. */
int usmb_owner_drain_locked(void);

/* ---- kept ---- */

/* A cache of memory. Most new arrays have the size of one that was just released, and entering Go for both
   costs more than the rest of the work. A few blocks of the shared pools therefore stay here. No handle to
   them is valid, and live_buffers does not count them. For their pool they are in use: a function that reads,
   trims or closes the pools, in Python or in Go (memmgr.AddCache), has them returned first. The cache is
   limited in number and in bytes. All functions but usmb_kept_clear need the GIL. */

/* The requested place: the default device with a kind of memory (0 to 3), or the host. */
typedef uint32_t usmb_wish;
static inline usmb_wish usmb_wish_of(int kind, int host)
{
	return (uint32_t)kind | (host ? 4u : 0u);
}

/* Returns a cell with one reference for that many bytes; NULL if there is none. */
usmb_cell *usmb_kept_take(uint64_t bytes, usmb_wish wish);
/* Reports a cell that Go has just made for a wish and that can be kept later. */
void usmb_kept_note(usmb_cell *cell, usmb_wish wish);
/* Reports whether Go's memory for a wish is at place, if Go has made any. */
int usmb_kept_lies_at(usmb_wish wish, const usmb_place *place);
/* Drops a reference to a reported cell. The last one keeps the cell if its memory is in its initial state. */
void usmb_kept_drop(usmb_cell *cell, usmb_wish wish);
/* Returns all cells to their pools; 1 if there were any. On any thread. */
int usmb_kept_clear(void);

#endif
