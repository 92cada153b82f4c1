/*
 * usmb_export.h: __dlpack__, __dlpack_device__, the C exchange API.
 */
#ifndef USMB_EXPORT_H
#define USMB_EXPORT_H

#include "usmb_array.h"

PyObject *usmb_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_dlpack_device(PyObject *self, PyObject *unused);
/* DLPack device of the array: 0, or -1 with BufferError when there is none. */
int usmb_array_device(usmb_array *a, usmb_dl_device *out);
/* 0 when the elements are aligned as DLPack has it, else -1 with BufferError. */
int usmb_array_check_aligned(usmb_array *a);
/* One managed tensor of the array as dev; -1 with BufferError or MemoryError. */
int usmb_array_export(usmb_array *a, usmb_dl_device dev, uint64_t flags, int versioned, void **out);
/* The standard's flags of the array. */
static inline uint64_t usmb_array_dlflags(const usmb_array *a)
{
	return (a->flags & USMB_ARR_READONLY ? USMB_DL_FLAG_READ_ONLY : 0) |
	       (a->flags & USMB_ARR_PADDED ? USMB_DL_FLAG_SUBBYTE_PADDED : 0);
}
void usmb_export_clear(void);
int usmb_exchange_register(void); /* publishes the exchange API on the type */

/* Notes the queue that will use the memory next. */
void usmb_go_used_on(usmb_cell *cell, void *queue);

#endif
