/*
 * storage.h: the owners of memory, work pending on it, and the cache of memory that arrays gave back.
 */
#ifndef USMB_PYMODULE_STORAGE_H
#define USMB_PYMODULE_STORAGE_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

/* ---- storage ---- */

extern usmb_list *usmb_pylist; /* drop list of cells whose end needs Python */
/* A cell that owns a Python object (takes the reference), or a managed tensor,
   or a Py_buffer. MemoryError when there is none. They take over place. */
usmb_cell *usmb_cell_of_object(PyObject *o, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_managed(void *managed, int versioned, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_buffer(Py_buffer *owned, void *data, uint64_t size);
/* Memory of others that a function of C gives back. */
typedef struct usmb_foreign {
	/* Called once, with the GIL held, when the last reference has gone; never once Python
	   is gone. It frees the struct as well. */
	void (*end)(struct usmb_foreign *);
} usmb_foreign;
usmb_cell *usmb_cell_of_foreign(usmb_foreign *owned, void *data, uint64_t size);
/* Makes a cell of an object known, so that the next import of the same object finds it
   while it lives: usmb_cell_known gives it, retained, when it covers [lo, hi). The cell
   holds the object, so neither can be another one at the same address. */
void usmb_cell_remember(usmb_cell *cell);
usmb_cell *usmb_cell_known(PyObject *owner, const char *lo, const char *hi);
/* A cell that owns a block of malloc. */
usmb_cell *usmb_cell_of_block(void *block, uint64_t size);
/* Whether the cell is one of this file's, and not of Go's memory manager. */
static inline int usmb_owned_by_python(const usmb_cell *cell)
{
	return cell->home == usmb_pylist;
}

/* The Python object that one of this file's cells keeps alive, borrowed; NULL where it
   keeps none that can be seen. */
PyObject *usmb_cell_object(const usmb_cell *cell);
/* The array through which the collector sees that object, borrowed, NULL: none yet. One
   object's cell may get several arrays by imports of its own. GIL. */
static inline void *usmb_cell_root(const usmb_cell *cell)
{
	return (void *)(uintptr_t)cell->private;
}
static inline void usmb_cell_set_root(usmb_cell *cell, void *root)
{
	cell->private = (uint64_t)(uintptr_t)root;
}

/* Pending work of a cell. copy: an owned reference of its event, NULL for none, or when
   there was no memory for one and the work was waited for, the GIL dropped;
   done: forgets the event once it is complete; set: puts an owned event in the
   place of what was there. No GIL needed. */
void *usmb_pending_copy(usmb_cell *cell);
void usmb_pending_done(usmb_cell *cell);
void usmb_pending_set(usmb_cell *cell, void *event);
void usmb_storage_register(void);
/* Gives the cells back that are kept for the next imports. */
void usmb_owner_clear(void);
/* Drops a reference with the GIL held: ends Python's cells on the spot. */
void usmb_cell_drop_gil(usmb_cell *cell);
/* Ends what was dropped where the GIL could not be taken: every entry calls it,
   dealloc included. One read when idle. */
void usmb_owner_drain_slow(void);
static inline void usmb_owner_drain(void)
{
	if (!usmb_list_empty(usmb_pylist)) usmb_owner_drain_slow();
}
/* No GIL: takes it and drains; 0 when Python is gone. */
int usmb_owner_drain_locked(void);

/* ---- kept ---- */

/*
 * Most new arrays have the size of one that has just gone. Entering Go for both costs
 * more than all the rest; a few blocks of the shared pools therefore stay here. They are
 * dead for everybody else: no handle to them is valid, and live_buffers does not count
 * them. To their pool they are in use, so whoever reads, trims or closes the pools, in
 * Python or in Go (memmgr.AddCache), has them given back first. Bounded in number and in
 * bytes. All but usmb_kept_clear under the GIL.
 */

/* What was asked for beside the size: the default device (kind 0 to 3), or the host's. */
typedef uint32_t usmb_wish;
static inline usmb_wish usmb_wish_of(int kind, int host)
{
	return (uint32_t)kind | (host ? 4u : 0u);
}

/* A cell with one reference for that many bytes; NULL when none is kept. */
usmb_cell *usmb_kept_take(uint64_t bytes, usmb_wish wish);
/* Tells of a cell that Go has just made for a wish, and may be kept later. */
void usmb_kept_note(usmb_cell *cell, usmb_wish wish);
/* Whether the memory that Go makes for a wish lies there, as far as it has made any. */
int usmb_kept_lies_at(usmb_wish wish, const usmb_place *place);
/* Drops a reference to a cell that was noted; the last one keeps it, where its memory is
   as it was when it was made. */
void usmb_kept_drop(usmb_cell *cell, usmb_wish wish);
/* Gives all back to their pools; 1 when there were any. On any thread. */
int usmb_kept_clear(void);

#endif
