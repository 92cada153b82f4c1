/*
 * handover.h: arrays between Go and Python.
 */
#ifndef USMB_PYMODULE_HANDOVER_H
#define USMB_PYMODULE_HANDOVER_H

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyresult.h"

/* Whether the import of the package has completed. Until then a hand-over imports it or waits.
   Guarded by the GIL. */
extern int usmb_handover_ready;
/* For Go, without the GIL. Makes an Array on the memory of a cell and takes over one reference of
   it on success. first is an address; flags are USMB_ARR_READONLY and USMB_ARR_PADDED. */
usmb_pyret usmb_handover_to_python(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                                   const int64_t *shape, const int64_t *strides);
/* The same with the GIL held: returns a new reference, or NULL with an exception. */
PyObject *usmb_handover_array(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                              const int64_t *shape, const int64_t *strides);
/* Waits for work of devices on memory that the caller retains, if other libraries know the memory;
   -1 with an exception. GIL. */
int usmb_handover_settle(usmb_cell *cell);
/* The memory of an object that usmb_take_object imported, after the producer's work on it. The
   caller owns one reference of the cell. */
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
