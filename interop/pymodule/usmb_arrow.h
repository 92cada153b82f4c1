/*
 * usmb_arrow.h: __arrow_c_array__ and __arrow_c_device_array__, out and in; the structs of
 * the Arrow C data interface and of the C device data interface.
 */
#ifndef USMB_ARROW_H
#define USMB_ARROW_H

#include "usmb_array.h"

/* What kind of values an array has: 72 bytes where pointers have 8. */
typedef struct usmb_arrow_schema {
	const char *format, *name;
	const char *metadata; /* int32 pairs, then each int32 length and bytes, twice a pair */
	int64_t flags;
	int64_t n_children;
	struct usmb_arrow_schema **children, *dictionary;
	void (*release)(struct usmb_arrow_schema *); /* NULL: it was */
	void *private_data;
} usmb_arrow_schema;

/* Their memory: 80 bytes. */
typedef struct usmb_arrow_array {
	int64_t length, null_count, offset, n_buffers, n_children;
	const void **buffers;
	struct usmb_arrow_array **children, *dictionary;
	void (*release)(struct usmb_arrow_array *);
	void *private_data;
} usmb_arrow_array;

/* The same on a device: 128 bytes. sync_event is the device's own, of ONEAPI a pointer
   to a sycl::event; NULL: nothing to wait for. */
typedef struct {
	usmb_arrow_array array;
	int64_t device_id; /* -1 for the CPU */
	int32_t device_type;
	void *sync_event;
	int64_t reserved[3];
} usmb_arrow_device_array;

enum { USMB_ARROW_CPU = 1, USMB_ARROW_ONEAPI = 14 };

PyObject *usmb_array_arrow(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* The element type of a format of the interface: 0, or -1 without an exception. */
int usmb_arrow_dtype(const char *format, usmb_dl_dtype *out);

/* arrow_in.c: the read-only array on o's memory by __arrow_c_device_array__, else by
   __arrow_c_array__; NULL without an exception where o has neither. may_copy: whether
   booleans, which are bits in Arrow, may be copied to bytes. Errors: BufferError for
   structs that don't fit, nulls, memory of another device; TypeError for element types
   that no array has; ValueError for booleans without may_copy. */
PyObject *usmb_import_arrow(PyObject *o, int may_copy);

#endif
