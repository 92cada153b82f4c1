/* arrow.c: the Arrow C data interface out: an array of one axis as values, one of more
   as a column of arrow.fixed_shape_tensor, on the same memory; elements in another order
   than C's are copied. Else nothing enters Go, and the release functions need neither
   the GIL nor a lock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usmb_array.h"
#include "usmb_arrow.h"
#include "usmb_copy.h"
#include "usmb_export.h"
#include "usmb_storage.h"
#include "usmb_support.h"

static const struct {
	uint8_t code, bits;
	const char *format;
} formats[] = {
        {USMB_DL_INT, 8, "c"},    {USMB_DL_INT, 16, "s"},   {USMB_DL_INT, 32, "i"},   {USMB_DL_INT, 64, "l"},
        {USMB_DL_UINT, 8, "C"},   {USMB_DL_UINT, 16, "S"},  {USMB_DL_UINT, 32, "I"},  {USMB_DL_UINT, 64, "L"},
        {USMB_DL_FLOAT, 16, "e"}, {USMB_DL_FLOAT, 32, "f"}, {USMB_DL_FLOAT, 64, "g"},
};

int usmb_arrow_dtype(const char *format, usmb_dl_dtype *out)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strcmp(formats[i].format, format) == 0) {
			*out = (usmb_dl_dtype){formats[i].code, formats[i].bits, 1};
			return 0;
		}
	return -1;
}

static const char schema_name[] = "arrow_schema", array_name[] = "arrow_array", device_name[] = "arrow_device_array";

/* ---- what the structs refer to ----------------------------------------------------- */

/* A consumer may move a child out and release the parent: both own a share of what
   either refers to. */
typedef struct {
	atomic_int shares;
	usmb_arrow_schema child, *children[1];
	char format[24];
	char text[]; /* metadata: an extension type */
} schema_rest;

typedef struct {
	atomic_int shares;
	usmb_cell *cell;
	void *event; /* owned: sycl::event*, whose address is the sync_event */
	usmb_arrow_array child, *children[1];
	const void *none[1], *values[2]; /* buffers: validity; validity and values */
} array_rest;

static void release_schema(usmb_arrow_schema *s)
{
	schema_rest *rest = s->private_data;
	for (int64_t i = 0; i < s->n_children; i++)
		if (s->children[i]->release) s->children[i]->release(s->children[i]);
	s->release = NULL;
	if (atomic_fetch_sub(&rest->shares, 1) == 1) free(rest);
}

static void release_array(usmb_arrow_array *a)
{
	array_rest *rest = a->private_data;
	for (int64_t i = 0; i < a->n_children; i++)
		if (a->children[i]->release) a->children[i]->release(a->children[i]);
	a->release = NULL;
	if (atomic_fetch_sub(&rest->shares, 1) > 1) return;
	usmb_sycl_event_delete(rest->event);
	usmb_cell_drop(rest->cell);
	free(rest);
}

/* A capsule that was not taken owns its struct's contents; the struct is its own. */
static void end_schema(PyObject *capsule)
{
	usmb_arrow_schema *s = PyCapsule_GetPointer(capsule, schema_name);
	if (!s) return;
	if (s->release) s->release(s);
	free(s);
}

static void end_array(PyObject *capsule)
{
	usmb_arrow_array *a = PyCapsule_GetPointer(capsule, array_name);
	if (!a) return;
	if (a->release) a->release(a);
	free(a);
}

static void end_device(PyObject *capsule)
{
	usmb_arrow_device_array *d = PyCapsule_GetPointer(capsule, device_name);
	if (!d) return;
	if (d->array.release) d->array.release(&d->array);
	free(d);
}

/* ---- schema -------------------------------------------------------------------------- */

static char *put_pair(char *at, const char *text)
{
	int32_t n = (int32_t)strlen(text);
	memcpy(at, &n, sizeof n);
	memcpy(at + sizeof n, text, (size_t)n);
	return at + sizeof n + n;
}

/* {"shape":[…]} of the axes behind the rows; 20 digits each at most, and commas. */
static void shape_text(usmb_array *a, char *out, size_t room)
{
	size_t at = (size_t)snprintf(out, room, "{\"shape\":[");
	for (int32_t i = 1; i < a->ndim; i++)
		at += (size_t)snprintf(out + at, room - at, i > 1 ? ",%" PRId64 : "%" PRId64, usmb_shape(a)[i]);
	snprintf(out + at, room - at, "]}");
}

static usmb_arrow_schema *make_schema(usmb_array *a, const char *format, int64_t row)
{
	enum { SHAPE = 32 + 64 * 21, METADATA = 128 + SHAPE };
	schema_rest *rest = calloc(1, sizeof *rest + METADATA);
	usmb_arrow_schema *s = calloc(1, sizeof *s);
	if (!rest || !s) {
		free(rest);
		free(s);
		PyErr_NoMemory();
		return NULL;
	}
	usmb_arrow_schema values = {.format = format, .name = "", .release = release_schema, .private_data = rest};
	*s = values;
	atomic_store(&rest->shares, 1);
	char shape[SHAPE] = "";
	int boolean = a->dtype.code == USMB_DL_BOOL;
	if (a->ndim == 1 && !boolean) return s;
	if (a->ndim > 1) shape_text(a, shape, sizeof shape);
	int32_t pairs = 2;
	char *at = rest->text;
	memcpy(at, &pairs, sizeof pairs);
	at = put_pair(at + sizeof pairs, "ARROW:extension:name");
	at = put_pair(at, boolean ? "arrow.bool8" : "arrow.fixed_shape_tensor");
	at = put_pair(at, "ARROW:extension:metadata");
	put_pair(at, shape);
	s->metadata = rest->text;
	if (a->ndim == 1) return s;
	snprintf(rest->format, sizeof rest->format, "+w:%" PRId64, row);
	values.name = "item";
	rest->child = values;
	rest->children[0] = &rest->child;
	s->format = rest->format;
	s->n_children = 1;
	s->children = rest->children;
	atomic_store(&rest->shares, 2);
	return s;
}

/* ---- memory --------------------------------------------------------------------------- */

static int fill_array(usmb_array *a, int64_t row, void *event, usmb_arrow_array *out)
{
	array_rest *rest = calloc(1, sizeof *rest);
	if (!rest) {
		usmb_sycl_event_delete(event);
		PyErr_NoMemory();
		return -1;
	}
	usmb_cell_retain(a->cell);
	rest->cell = a->cell;
	rest->event = event;
	rest->values[1] = a->first;
	usmb_arrow_array values = {.length = a->nelem,
	                           .n_buffers = 2,
	                           .buffers = rest->values,
	                           .release = release_array,
	                           .private_data = rest};
	*out = values;
	atomic_store(&rest->shares, 1);
	if (a->ndim > 1) {
		values.length = usmb_shape(a)[0] * row;
		rest->child = values;
		rest->children[0] = &rest->child;
		out->length = usmb_shape(a)[0];
		out->n_buffers = 1;
		out->buffers = rest->none;
		out->n_children = 1;
		out->children = rest->children;
		atomic_store(&rest->shares, 2);
	}
	if (a->cell->place) atomic_fetch_or_explicit(&a->cell->flags, USMB_CELL_EXPORTED, memory_order_relaxed);
	return 0;
}

/* ---- the methods ------------------------------------------------------------------------ */

/* The format of the values and the elements of a row; NULL with BufferError when Arrow
   cannot say what the array is. */
static const char *check(usmb_array *a, int64_t *row)
{
	const char *format = NULL;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (formats[i].code == a->dtype.code && formats[i].bits == a->dtype.bits) format = formats[i].format;
	/* Booleans of Arrow's own are bits; of a byte each they are an extension type. */
	if (!format && a->dtype.code == USMB_DL_BOOL && a->ndim == 1) format = "c";
	if (!format) {
		usmb_raise(PyExc_BufferError,
		           "Arrow stores no %s as memory has it; view() the elements as integers of their size",
		           usmb_dl_dtype_name(a->dtype));
		return NULL;
	}
	if (a->ndim == 0) {
		usmb_raise(PyExc_BufferError, "a 0-d array is no Arrow array; reshape(1)");
		return NULL;
	}
	*row = 1;
	for (int32_t i = 1; i < a->ndim; i++)
		if (__builtin_mul_overflow(*row, usmb_shape(a)[i], row) || *row > INT32_MAX) {
			usmb_raise(PyExc_BufferError,
			           "an Arrow tensor has at most 2^31-1 elements; make the first axis rows");
			return NULL;
		}
	return usmb_array_check_aligned(a) < 0 ? NULL : format;
}

static PyObject *pair(usmb_array *a, const char *format, int64_t row, void *array, const char *name,
                      PyCapsule_Destructor end)
{
	usmb_arrow_schema *s = make_schema(a, format, row);
	PyObject *schema = s ? PyCapsule_New(s, schema_name, end_schema) : NULL;
	if (s && !schema) {
		s->release(s);
		free(s);
	}
	PyObject *memory = PyCapsule_New(array, name, end);
	PyObject *both = schema && memory ? PyTuple_New(2) : NULL;
	if (!memory) { /* both structs begin with the array */
		release_array(array);
		free(array);
	}
	if (!both) {
		Py_XDECREF(schema);
		Py_XDECREF(memory);
		return NULL;
	}
	PyTuple_SetItem(both, 0, schema);
	PyTuple_SetItem(both, 1, memory);
	return both;
}

/* requested_schema is a wish, which a producer may leave: the consumer converts. */
static int parse(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	PyObject *const names[1] = {usmb_name.requested_schema};
	PyObject *v[1] = {NULL};
	return usmb_args(func, args, n, kwnames, names, 1, 0, 1, v);
}

static PyObject *export_host(usmb_array *a)
{
	int64_t row;
	const char *format = check(a, &row);
	if (!format) return NULL;
	if (!(a->flags & USMB_ARR_READ))
		return usmb_raise(PyExc_BufferError, "the host cannot read USM device memory: a consumer of "
		                                     "__arrow_c_device_array__ can; or to_device(\"host\") first");
	if (usmb_array_wait(a) < 0) return NULL;
	usmb_arrow_array *out = malloc(sizeof *out);
	if (!out) return PyErr_NoMemory();
	if (fill_array(a, row, NULL, out) < 0) {
		free(out);
		return NULL;
	}
	return pair(a, format, row, out, array_name, end_array);
}

/* Arguments that a later edition of the protocol may have: None is none, as it says. */
static int unknown_wish(PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	Py_ssize_t keywords = kwnames ? PyTuple_Size(kwnames) : 0;
	if (n > 1) return parse("__arrow_c_device_array__", args, n, NULL) < 0;
	for (Py_ssize_t i = 0; i < keywords; i++) {
		PyObject *key = PyTuple_GetItem(kwnames, i);
		if (PyUnicode_Compare(key, usmb_name.requested_schema) == 0 || !usmb_given(args[n + i])) continue;
		usmb_raise(PyExc_NotImplementedError,
		           "__arrow_c_device_array__: an argument that is not known here has a value");
		return 1;
	}
	return 0;
}

/* Memory that the host can read is the CPU's, after a wait: consumers of that are many.
   Device memory is ONEAPI's, with the event of our pending work. */
static int fill_device(usmb_array *a, int64_t row, usmb_arrow_device_array *out)
{
	memset(out, 0, sizeof *out);
	out->device_id = -1;
	out->device_type = USMB_ARROW_CPU;
	if (a->flags & USMB_ARR_READ) return usmb_array_wait(a) < 0 ? -1 : fill_array(a, row, NULL, &out->array);
	usmb_dl_device dev;
	if (usmb_array_device(a, &dev) < 0) return -1;
	out->device_id = dev.id;
	out->device_type = USMB_ARROW_ONEAPI;
	void *event = usmb_pending_copy(a->cell);
	out->sync_event = event;
	return fill_array(a, row, event, &out->array);
}

static PyObject *export_device(usmb_array *a)
{
	int64_t row;
	const char *format = check(a, &row);
	if (!format) return NULL;
	usmb_arrow_device_array *out = malloc(sizeof *out);
	if (!out) return PyErr_NoMemory();
	if (fill_device(a, row, out) < 0) {
		free(out);
		return NULL;
	}
	return pair(a, format, row, out, device_name, end_device);
}

/* The array, or a copy in C order where its elements are in another. */
static PyObject *ordered(PyObject *self, PyObject *(*export)(usmb_array *))
{
	usmb_array *a = (usmb_array *)self;
	if (a->flags & USMB_ARR_C) return export(a);
	PyObject *copy = usmb_copy_to(a, NULL);
	PyObject *out = copy ? export((usmb_array *)copy) : NULL;
	Py_XDECREF(copy);
	return out;
}

PyObject *usmb_array_arrow(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	usmb_owner_drain();
	return parse("__arrow_c_array__", args, n, kwnames) < 0 ? NULL : ordered(self, export_host);
}

PyObject *usmb_array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	usmb_owner_drain();
	return unknown_wish(args, n, kwnames) ? NULL : ordered(self, export_device);
}
