/*
 * handover.h: arrays between Go and Python.
 */
#ifndef USMB_PYMODULE_HANDOVER_H
#define USMB_PYMODULE_HANDOVER_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyresult.h"

/* Whether the import of the package is complete; until then an exchange imports it, or waits. Guarded by the
   GIL. */
extern int usmb_handover_ready;
/* Makes a new Array on memory of a cell. It consumes one reference of the cell on success. first is an
   address; flags are USMB_ARR_READONLY and USMB_ARR_PADDED. Called by Go without the GIL. */
usmb_pyret usmb_handover_to_python(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                                   const int64_t *shape, const int64_t *strides);
/* The same with the GIL held: returns a new reference, or NULL with an exception. */
PyObject *usmb_handover_array(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                              const int64_t *shape, const int64_t *strides);
/* Waits for device work on memory that the caller keeps, if the memory was exported to a library that can use
   a device: -1 with an exception. Needs the GIL. */
int usmb_handover_settle(usmb_cell *cell);
/* The memory of an object by usmb_take_object, after its producer's work has finished: the cell with one
   reference for the caller. */
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
