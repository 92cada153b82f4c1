/*
 * handover.h: arrays between Go and Python.
 */
#ifndef USMB_PYMODULE_HANDOVER_H
#define USMB_PYMODULE_HANDOVER_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyresult.h"

/* Whether the import of the package has ended; until then a hand-over imports it, or waits.
   Guarded by the GIL. */
extern int usmb_handover_ready;
/* For Go, without the GIL. A new Array on memory of a cell, of which it takes one
   reference over on success; first is an address, flags USMB_ARR_READONLY and
   USMB_ARR_PADDED. */
usmb_pyret usmb_handover_to_python(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                                   const int64_t *shape, const int64_t *strides);
/* The same with the GIL held: a new reference, or NULL with an exception. */
PyObject *usmb_handover_array(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                              const int64_t *shape, const int64_t *strides);
/* GIL: waits for what a device was told to do with memory that the caller keeps, where it
   was shown to anybody who could: -1 with an exception. */
int usmb_handover_settle(usmb_cell *cell);
/* The memory of an object by usmb_take_object, finished with by its producer: the
   cell with one reference for the caller. */
typedef struct {
	usmb_cell *cell;
	uintptr_t first;
	usmb_dl_dtype dtype;
	uint32_t flags, itembits;
	int32_t ndim;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
} usmb_handover;
usmb_pyret usmb_handover_from_python(void *o, usmb_handover *out);

#endif
