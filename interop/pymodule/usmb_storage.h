/*
 * usmb_storage.h: the owners of memory: cells whose end needs Python, work pending on any.
 */
#ifndef USMB_STORAGE_H
#define USMB_STORAGE_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

extern usmb_list *usmb_pylist; /* drop list of cells whose end needs Python */
/* A cell that owns a Python object (takes the reference), or a managed tensor,
   or a Py_buffer. MemoryError when there is none. They take over place. */
usmb_cell *usmb_cell_of_object(PyObject *o, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_managed(void *managed, int versioned, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_buffer(Py_buffer *owned, void *data, uint64_t size);
/* A cell that owns a block of malloc. */
usmb_cell *usmb_cell_of_block(void *block, uint64_t size);
/* Whether the cell is one of this file's, and not of Go's memory manager. */
static inline int usmb_owned_by_python(const usmb_cell *cell)
{
	return cell->home == usmb_pylist;
}

/* The queue on which a producer that says so may still be working on the memory,
   owned by the cell of its tensor; NULL: none is known. Written once, before others
   see the cell. */
static inline void *usmb_cell_producer(const usmb_cell *cell)
{
	return (void *)(uintptr_t)cell->private;
}
static inline void usmb_cell_set_producer(usmb_cell *cell, void *queue)
{
	cell->private = (uint64_t)(uintptr_t)queue;
}

/* Pending work of a cell. copy: an owned reference of its event, NULL for none;
   done: forgets the event once it is complete; set: puts an owned event in the
   place of what was there. No GIL needed. */
void *usmb_pending_copy(usmb_cell *cell);
void usmb_pending_done(usmb_cell *cell);
void usmb_pending_set(usmb_cell *cell, void *event);
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

#endif
