/* arrow.c: the Arrow C data interface, out and in. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "order.h"
#include "storage.h"
#include "support.h"

/* ==== The structs of the interface ============================================================ */

/* ArrowSchema: the type of the values. 72 bytes with pointers of 8. */
typedef struct usmb_arrow_schema {
	const char *format, *name;
	const char *metadata; /* int32 number of pairs, then for each key and value an int32 length and bytes */
	int64_t flags;
	int64_t n_children;
	struct usmb_arrow_schema **children, *dictionary;
	void (*release)(struct usmb_arrow_schema *); /* NULL: released */
	void *private_data;
} usmb_arrow_schema;

/* ArrowArray: the buffers. 80 bytes. */
typedef struct usmb_arrow_array {
	int64_t length, null_count, offset, n_buffers, n_children;
	const void **buffers;
	struct usmb_arrow_array **children, *dictionary;
	void (*release)(struct usmb_arrow_array *);
	void *private_data;
} usmb_arrow_array;

/* ArrowDeviceArray: the same on a device. 128 bytes. sync_event has the type of the device: for
   ONEAPI a pointer to a sycl::event; NULL: no need to wait. */
typedef struct {
	usmb_arrow_array array;
	int64_t device_id; /* -1 for the CPU */
	int32_t device_type;
	void *sync_event;
	int64_t reserved[3];
} usmb_arrow_device_array;

/* ArrowArrayStream: arrays of one type, in order. 40 bytes. The functions return an errno; an array without release
   function is the end. */
typedef struct usmb_arrow_stream {
	int (*get_schema)(struct usmb_arrow_stream *, usmb_arrow_schema *);
	int (*get_next)(struct usmb_arrow_stream *, usmb_arrow_array *);
	const char *(*get_last_error)(struct usmb_arrow_stream *);
	void (*release)(struct usmb_arrow_stream *);
	void *private_data;
} usmb_arrow_stream;

enum { USMB_ARROW_CPU = 1, USMB_ARROW_ONEAPI = 14, USMB_ARROW_NULLABLE = 2 };

/* ==== Export ================================================================================== */

/* An array of one axis is exported as values, one of more axes as a column of
   arrow.fixed_shape_tensor, on the same memory. Elements that are not in C order are copied, by Go;
   the rest does not enter Go. The release functions need neither the GIL nor a lock. */

static const struct {
	uint8_t code, bits;
	const char *format;
} formats[] = {
        {USMB_DL_INT, 8, "c"},    {USMB_DL_INT, 16, "s"},   {USMB_DL_INT, 32, "i"},   {USMB_DL_INT, 64, "l"},
        {USMB_DL_UINT, 8, "C"},   {USMB_DL_UINT, 16, "S"},  {USMB_DL_UINT, 32, "I"},  {USMB_DL_UINT, 64, "L"},
        {USMB_DL_FLOAT, 16, "e"}, {USMB_DL_FLOAT, 32, "f"}, {USMB_DL_FLOAT, 64, "g"},
};

/* The element type of a format; -1 without an exception if there is none. */
static int arrow_dtype(const char *format, usmb_dl_dtype *out)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strcmp(formats[i].format, format) == 0) {
			*out = (usmb_dl_dtype){formats[i].code, formats[i].bits, 1};
			return 0;
		}
	return -1;
}

static const char schema_name[] = "arrow_schema", array_name[] = "arrow_array", device_name[] = "arrow_device_array",
                  stream_name[] = "arrow_array_stream";

/* ---- memory of the structs --------------------------------------------------------- */

/* A consumer may move a child out and release its parent, so both own a share of the memory. */
typedef struct {
	atomic_int shares;
	usmb_arrow_schema child, *children[1];
	char format[24];
	char text[]; /* metadata of an extension type */
} schema_rest;

typedef struct {
	atomic_int shares;
	usmb_cell *cell;
	usmb_drop_fn drop;
	void *event; /* owned: sycl::event*; sync_event points to it */
	usmb_arrow_array child, *children[1];
	const void *none[1], *values[2]; /* buffers: validity only; validity and values */
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
	rest->drop(rest->cell);
	free(rest);
}

/* A capsule owns its struct, and the struct's contents until a consumer moves them out. */
static void end_schema(PyObject *capsule)
{
	usmb_arrow_schema *s = PyCapsule_GetPointer(capsule, schema_name);
	if (!s) return;
	if (s->release) s->release(s);
	free(s);
}

/* For both structs of memory, which begin with the array. */
static void end_memory(PyObject *capsule)
{
	usmb_arrow_array *a = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
	if (!a) return;
	if (a->release) a->release(a);
	free(a);
}

/* ---- schema -------------------------------------------------------------------------- */

static char *put_pair(char *at, const char *text)
{
	int32_t n = (int32_t)strlen(text);
	memcpy(at, &n, sizeof n);
	memcpy(at + sizeof n, text, (size_t)n);
	return at + sizeof n + n;
}

/* Writes {"shape":[…]} for the axes after the first; at most 20 digits and a comma each. */
static void shape_text(usmb_array *a, char *out, size_t room)
{
	size_t at = (size_t)snprintf(out, room, "{\"shape\":[");
	for (int32_t i = 1; i < a->ndim; i++)
		at += (size_t)snprintf(out + at, room - at, i > 1 ? ",%" PRId64 : "%" PRId64, usmb_shape(a)[i]);
	snprintf(out + at, room - at, "]}");
}

/* storage: not 0 for lists without the name of the extension type, as a consumer asks for that adds it itself; with
   USMB_ARROW_NULLABLE if it declares their values nullable. */
static usmb_arrow_schema *make_schema(usmb_array *a, const char *format, int64_t row, int storage)
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
	if (!storage || boolean) s->metadata = rest->text;
	if (a->ndim == 1) return s;
	snprintf(rest->format, sizeof rest->format, "+w:%" PRId64, row);
	values.name = "item";
	values.flags = storage & USMB_ARROW_NULLABLE;
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
	int on_host = (a->flags & USMB_ARR_READ) != 0;
	int exported = on_host && usmb_array_lent(a) < 0 ? -1 : usmb_array_exported(a);
	array_rest *rest = exported == 0 ? calloc(1, sizeof *rest) : NULL;
	if (!rest) {
		usmb_sycl_event_delete(event);
		if (exported == 0) PyErr_NoMemory();
		return -1;
	}
	rest->cell = a->cell;
	rest->drop = usmb_array_share(a, on_host);
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
	return 0;
}

/* ---- the methods ------------------------------------------------------------------------ */

/* Returns the format of the values, which is given or that of the elements, and in *row the elements of a row; NULL
   with BufferError if Arrow cannot describe the array. */
static const char *check(usmb_array *a, const char *format, int64_t *row)
{
	for (size_t i = 0; !format && i < sizeof formats / sizeof *formats; i++)
		if (formats[i].code == a->dtype.code && formats[i].bits == a->dtype.bits) format = formats[i].format;
	/* Arrow's booleans are bits; booleans of a byte are an extension type. */
	if (!format && a->dtype.code == USMB_DL_BOOL && a->ndim == 1) format = "c";
	if (!format) {
		usmb_raise(PyExc_BufferError,
		           "Arrow has no element type %s of this layout; view() the elements as integers of their size",
		           usmb_dl_dtype_name(a->dtype));
		return NULL;
	}
	if (a->ndim == 0) {
		usmb_raise(PyExc_BufferError, "a 0-d array cannot be an Arrow array; use reshape(1)");
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

/* Returns the capsules of the schema and of array, which it takes over. */
static PyObject *pair(usmb_array *a, const char *format, int64_t row, int storage, void *array, const char *name)
{
	usmb_arrow_schema *s = make_schema(a, format, row, storage);
	PyObject *schema = s ? PyCapsule_New(s, schema_name, end_schema) : NULL;
	if (s && !schema) {
		s->release(s);
		free(s);
	}
	PyObject *memory = PyCapsule_New(array, name, end_memory);
	if (!memory) {
		release_array(array);
		free(array);
	}
	PyObject *both = schema && memory ? PyTuple_Pack(2, schema, memory) : NULL;
	Py_XDECREF(schema);
	Py_XDECREF(memory);
	return both;
}

/* What a requested schema asks for. Wishes for other types are ignored: the consumer then converts. */
typedef struct {
	enum { AS_BITS, AS_BOOL8, AS_INT8 } booleans; /* those of one axis */
	int storage;                                  /* for make_schema */
	int typed;                                    /* whether it has an element type: */
	usmb_dl_dtype dtype;
} request;

static void read_request(PyObject *wish, request *r)
{
	const usmb_arrow_schema *s = NULL;
	memset(r, 0, sizeof *r);
	if (wish && PyCapsule_IsValid(wish, schema_name)) s = PyCapsule_GetPointer(wish, schema_name);
	if (!s || !s->release || !s->format || s->dictionary) return;
	int lists = strncmp(s->format, "+w:", 3) == 0 && s->n_children == 1 && s->children && s->children[0];
	if (!lists && strcmp(s->format, "c") == 0) r->booleans = s->metadata ? AS_BOOL8 : AS_INT8;
	const usmb_arrow_schema *values = lists ? s->children[0] : s;
	if (!values->format || values->metadata || (s->metadata && !lists)) return;
	if (lists && !s->metadata) r->storage = 1 | (int)(values->flags & USMB_ARROW_NULLABLE);
	r->typed = arrow_dtype(values->format, &r->dtype) == 0;
	if (strcmp(values->format, "b") == 0) {
		r->dtype = (usmb_dl_dtype){USMB_DL_BOOL, 8, 1};
		r->typed = 1;
	}
}

/* Reads the arguments; -1 with an exception. */
static int parse(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, request *r)
{
	PyObject *const names[1] = {usmb_name.requested_schema};
	PyObject *v[1] = {NULL};
	if (usmb_args(func, args, n, kwnames, names, 1, 0, 1, v) < 0) return -1;
	read_request(v[0], r);
	return 0;
}

/* The same. Later versions of the protocol may add arguments. The protocol says that None must be ignored. */
static int parse_device(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, request *r)
{
	PyObject *wish = NULL;
	Py_ssize_t keywords = kwnames ? PyTuple_Size(kwnames) : 0;
	for (Py_ssize_t i = 0; i < keywords; i++) {
		PyObject *key = PyTuple_GetItem(kwnames, i);
		if (PyUnicode_Compare(key, usmb_name.requested_schema) == 0) {
			wish = args[n + i];
		} else if (usmb_given(args[n + i])) {
			usmb_raise(PyExc_NotImplementedError,
			           "__arrow_c_device_array__: an unknown argument is not None");
			return -1;
		}
	}
	if (!wish) return parse("__arrow_c_device_array__", args, n, NULL, r);
	read_request(wish, r);
	return 0;
}

/* ---- conversion to the requested type ---------------------------------------------------- */

static int is_integer(usmb_dl_dtype t)
{
	return t.code == USMB_DL_INT || t.code == USMB_DL_UINT || t.code == USMB_DL_BOOL;
}

/* Whether x and y, of plain memory and in C order, have the same elements. */
static int same_elements(usmb_array *x, usmb_array *y)
{
	int equal = 1;
	if (is_integer(x->dtype)) return memcmp(x->first, y->first, (size_t)usmb_nbytes(x)) == 0;
	for (int64_t i = 0; i < x->nelem && equal; i++) equal = ((double *)x->first)[i] == ((double *)y->first)[i];
	return equal;
}

/* Whether there is a negative element in an array of integers; -1 with an exception. */
static int has_negative(usmb_array *a)
{
	const usmb_dl_dtype wide = {USMB_DL_INT, 64, 1};
	usmb_array *x = (usmb_array *)usmb_copy_as(a, wide, &usmb_on_host);
	int negative = x ? 0 : -1;
	for (int64_t i = 0; x && i < x->nelem && !negative; i++) negative = ((int64_t *)x->first)[i] < 0;
	Py_XDECREF(x);
	return negative;
}

/* Whether c, the elements of a converted, has their values; -1 with an exception. The elements are compared as float64
   where that has them exactly, else after the conversion back. */
static int converted_exactly(usmb_array *a, usmb_array *c)
{
	int integer = is_integer(a->dtype), integers = integer && is_integer(c->dtype), r = -1;
	int large = integer && !integers && a->dtype.bits == 64;
	usmb_dl_dtype t = {USMB_DL_FLOAT, 64, 1};
	/* Rounding to a floating-point type is no loss, and all numbers have a truth value. */
	if (c->dtype.code == USMB_DL_BOOL || (!integer && !is_integer(c->dtype))) return 1;
	if (integers || large) t = a->dtype;
	/* The last byte of packed elements can have bits that belong to none. */
	if (integers && a->dtype.bits < 8) t = (usmb_dl_dtype){USMB_DL_INT, 64, 1};
	usmb_array *x = (usmb_array *)usmb_copy_as(a, t, &usmb_on_host);
	usmb_array *y = x ? (usmb_array *)usmb_copy_as(c, t, &usmb_on_host) : NULL;
	if (y) r = same_elements(x, y);
	/* 2^63 and 2^64 become the largest integers. */
	for (int64_t i = 0; r == 1 && large && i < x->nelem; i++)
		r = ((uint64_t *)x->first)[i] != (a->dtype.code == USMB_DL_INT ? INT64_MAX : UINT64_MAX);
	Py_XDECREF(x);
	Py_XDECREF(y);
	/* Between signed and unsigned types, integers wrap there and back. */
	if (r == 1 && integers && (a->dtype.code == USMB_DL_INT) != (c->dtype.code == USMB_DL_INT)) {
		int negative = has_negative(a->dtype.code == USMB_DL_INT ? a : c);
		r = negative < 0 ? -1 : !negative;
	}
	return r;
}

/* Returns the array with the requested element type; the array itself if it has that type, or if Arrow's numbers do
   not include its elements. */
static PyObject *as_requested(usmb_array *a, const request *r)
{
	const char *from = usmb_dl_dtype_name(a->dtype), *to = usmb_dl_dtype_name(r->dtype);
	int same = r->dtype.code == a->dtype.code && r->dtype.bits == a->dtype.bits;
	int boolean = a->dtype.code == USMB_DL_BOOL && a->ndim == 1 && r->booleans != AS_BITS;
	if (!r->typed || same || boolean || a->dtype.code == USMB_DL_COMPLEX) return Py_NewRef(a);
	usmb_array *c = (usmb_array *)usmb_copy_as(a, r->dtype, NULL);
	int exact = c ? converted_exactly(a, c) : -1;
	if (exact == 0)
		usmb_raise(
		        PyExc_ValueError,
		        "the requested type %s cannot hold all values of these elements of %s; astype(\"%s\") converts "
		        "them without a check",
		        to, from ? from : "another type", to);
	if (exact != 1) Py_CLEAR(c);
	return (PyObject *)c;
}

/* ---- export ------------------------------------------------------------------------------ */

/* Memory that the host can read is exported as CPU memory after waiting for work, because most
   consumers accept only that. Device memory is exported as ONEAPI, with the event of our pending
   work. */
static int fill_device(usmb_array *a, int64_t row, usmb_arrow_device_array *out)
{
	out->device_id = -1;
	out->device_type = USMB_ARROW_CPU;
	if (a->flags & USMB_ARR_READ) return usmb_array_wait(a) < 0 ? -1 : fill_array(a, row, NULL, &out->array);
	usmb_dl_device dev;
	if (usmb_array_device(a, &dev) < 0) return -1;
	out->device_id = dev.id;
	out->device_type = USMB_ARROW_ONEAPI;
	if (usmb_array_allowed(a) < 0 || usmb_array_wait_shared(a) < 0) return -1;
	void *event = usmb_pending_copy(a->cell);
	/* If memory for an event ran out, the work has ended, and its failure is on the array's memory. */
	if (!event && usmb_array_wait(a) < 0) return -1;
	out->sync_event = event;
	return fill_array(a, row, event, &out->array);
}

/* device: for __arrow_c_device_array__. A consumer of the other method reads the first member only. format NULL: that
   of the elements. */
static PyObject *export(usmb_array *a, int device, const char *format, int storage)
{
	int64_t row = 1;
	if (!(format = check(a, format, &row))) return NULL;
	if (!device && !(a->flags & USMB_ARR_READ))
		return usmb_raise(PyExc_BufferError, "the host cannot read USM device memory: a consumer of "
		                                     "__arrow_c_device_array__ can; or to_device(\"host\") first");
	usmb_arrow_device_array *out = calloc(1, sizeof *out);
	if (!out) return PyErr_NoMemory();
	if (fill_device(a, row, out) < 0) {
		free(out);
		return NULL;
	}
	return pair(a, format, row, storage, out, device ? device_name : array_name);
}

/* Exports the array, or a copy: in C order if its elements are in another order, of the requested element type, and of
   booleans as bits, which few consumers do without. Booleans of device memory stay bytes. */
static PyObject *ordered(PyObject *self, int device, const request *r)
{
	usmb_array *a = (usmb_array *)as_requested((usmb_array *)self, r);
	PyObject *made = NULL, *out = NULL;
	if (!a) return NULL;
	const int boolean = a->dtype.code == USMB_DL_BOOL && a->ndim > 0, bits = a->ndim > 1 || r->booleans == AS_BITS;
	const char *format = NULL;
	if (boolean && bits && a->flags & USMB_ARR_READ) {
		made = usmb_copy_as(a, (usmb_dl_dtype){USMB_DL_UINT, 1, 1}, &usmb_on_host);
		format = "b";
	} else {
		made = a->flags & USMB_ARR_C ? Py_NewRef(a) : usmb_copy_to(a, NULL);
		if (made && boolean && r->booleans == AS_INT8) {
			usmb_array *c = (usmb_array *)made;
			const usmb_dl_dtype byte = {USMB_DL_INT, 8, 1};
			made = usmb_array_view_as(c, byte, c->flags, c->first, 1, usmb_shape(c), usmb_strides(c));
			Py_DECREF(c);
		}
	}
	if (made) out = export((usmb_array *)made, device, format, r->storage);
	Py_XDECREF(made);
	Py_DECREF(a);
	return out;
}

PyObject *usmb_array_arrow(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	request r;
	usmb_owner_drain();
	return parse("__arrow_c_array__", args, n, kwnames, &r) < 0 ? NULL : ordered(self, 0, &r);
}

PyObject *usmb_array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	request r;
	usmb_owner_drain();
	return parse_device(args, n, kwnames, &r) < 0 ? NULL : ordered(self, 1, &r);
}

/* ==== Import ================================================================================== */

/* Imports values of one type, lists of a fixed size and columns of arrow.fixed_shape_tensor: one array without a copy,
   several arrays of a stream joined. Nulls become NaN in a copy of a floating-point type, and are refused otherwise; they are found
   before values are converted. The structs are first moved out of their capsules, so that each is read from a
   copy and released once, even if the producer changes them meanwhile. The interface does not have
   the lengths of buffers, so they are trusted. */

/* The contents of a schema. */
typedef struct {
	usmb_dl_dtype dtype;
	int packed; /* booleans of a bit each, which must be copied */
	int lists;  /* lists of size elements: */
	int64_t size;
	int32_t ndim;                                               /* including the rows */
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM]; /* of a row, from index 1 on */
} column;

/* A foreign array that a cell owns. */
typedef struct {
	usmb_foreign foreign;
	usmb_arrow_array array;
} holding;

static int malformed(const char *what)
{
	usmb_raise(PyExc_BufferError, "the object's Arrow structs %s", what);
	return -1;
}

/* ---- extension types ----------------------------------------------------------------- */

enum { NAME_ROOM = 64, PARAMETERS_ROOM = 4096, PAIRS_MAX = 1024, TEXT_MAX = 1 << 24 };

typedef struct {
	char name[NAME_ROOM], parameters[PARAMETERS_ROOM]; /* empty: not present */
} extension;

/* Reads a text of the metadata and its length, truncated to room; NULL if the length is invalid. */
static const char *get_text(const char *at, char *out, size_t room, size_t *length)
{
	int32_t n;
	memcpy(&n, at, sizeof n);
	if (n < 0 || n > TEXT_MAX) return NULL;
	*length = (size_t)n;
	size_t k = *length < room ? *length : room - 1;
	memcpy(out, at + sizeof n, k);
	out[k] = 0;
	return at + sizeof n + n;
}

static int is_text(const char *text, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(text, wanted, length) == 0;
}

/* A name with a NUL byte is not the name before that byte. Parameters with a NUL byte, or longer
   than the buffer, are ignored. If a key is repeated, implementations differ in which one they use,
   so that is an error. */
static int read_extension(const char *at, extension *e)
{
	char key[32], value[PARAMETERS_ROOM];
	size_t key_length, length;
	int32_t pairs;
	int names = 0, parameters = 0;
	e->name[0] = e->parameters[0] = 0;
	if (!at) return 0;
	memcpy(&pairs, at, sizeof pairs);
	if (pairs < 0 || pairs > PAIRS_MAX) return malformed("have metadata with an invalid length");
	at += sizeof pairs;
	for (int32_t i = 0; i < pairs; i++) {
		if (!(at = get_text(at, key, sizeof key, &key_length)) ||
		    !(at = get_text(at, value, sizeof value, &length)))
			return malformed("have metadata with an invalid length");
		if (is_text(key, key_length, "ARROW:extension:name")) {
			names++;
			size_t k = length < sizeof e->name ? length : sizeof e->name - 1;
			memcpy(e->name, value, k);
			e->name[k] = 0;
			for (size_t j = 0; j < k; j++)
				if (!e->name[j]) e->name[j] = '?';
		} else if (is_text(key, key_length, "ARROW:extension:metadata")) {
			parameters++;
			if (length == strlen(value)) memcpy(e->parameters, value, length + 1);
		}
	}
	return names > 1 || parameters > 1 ? malformed("have metadata with a repeated key") : 0;
}

static int unknown_extension(const extension *e)
{
	usmb_raise(PyExc_TypeError, "Arrow's extension type \"%s\" is unsupported; pass its storage", e->name);
	return -1;
}

/* Reads the shape and strides of the rows of arrow.fixed_shape_tensor from its parameters. */
static int read_tensor(const char *parameters, column *c)
{
	static PyObject *function;
	PyObject *args[2] = {PyBytes_FromStringAndSize(parameters, (Py_ssize_t)strlen(parameters)), NULL};
	if (args[0]) args[1] = PyLong_FromLongLong(c->size);
	PyObject *row = args[1] ? usmb_call_python(&function, "usmbridge._arrow", "row", args, 2) : NULL;
	PyObject *shape, *strides; /* borrowed */
	int64_t s[USMB_DL_MAX_NDIM], t[USMB_DL_MAX_NDIM];
	int n = -1;
	if (row && PyArg_ParseTuple(row, "OO", &shape, &strides)) n = usmb_parse_dims(shape, s, "an Arrow tensor");
	if (n >= 0 && (usmb_parse_dims(strides, t, "an Arrow tensor") != n || n == USMB_DL_MAX_NDIM)) {
		if (!PyErr_Occurred()) malformed("have invalid tensor parameters");
		n = -1;
	}
	if (n > 0) memcpy(&c->shape[1], s, (size_t)n * sizeof *s);
	if (n > 0) memcpy(&c->strides[1], t, (size_t)n * sizeof *t);
	Py_XDECREF(row);
	Py_XDECREF(args[1]);
	Py_XDECREF(args[0]);
	c->ndim = n + 1;
	return n < 0 ? -1 : 0;
}

/* ---- the schema ---------------------------------------------------------------------- */

static int read_values(const usmb_arrow_schema *s, column *c)
{
	extension e;
	if (!s->format) return malformed("have no format");
	if (s->dictionary) {
		usmb_raise(PyExc_TypeError,
		           "Arrow's values are dictionary-encoded; decode them first (pyarrow: dictionary_decode())");
		return -1;
	}
	if (read_extension(s->metadata, &e) < 0) return -1;
	int boolean = strcmp(e.name, "arrow.bool8") == 0 && strcmp(s->format, "c") == 0;
	if (e.name[0] && !boolean) return unknown_extension(&e);
	c->packed = strcmp(s->format, "b") == 0;
	if (boolean || c->packed) {
		c->dtype = (usmb_dl_dtype){USMB_DL_BOOL, 8, 1};
	} else if (arrow_dtype(s->format, &c->dtype) < 0) {
		usmb_raise(PyExc_TypeError,
		           "Arrow values of format \"%.40s\" are unsupported; cast() them to integers, float16, "
		           "float32, float64 or booleans first",
		           s->format);
		return -1;
	}
	return s->n_children == 0 ? 0 : malformed("have values with children");
}

/* The number after "+w:"; -1 if there is none. */
static int64_t list_size(const char *format)
{
	int64_t n = 0;
	if (!*format) return -1;
	for (; *format; format++)
		if (*format < '0' || *format > '9' || (n = n * 10 + *format - '0') > INT32_MAX) return -1;
	return n;
}

static int read_schema(const usmb_arrow_schema *s, column *c)
{
	extension e;
	memset(c, 0, sizeof *c);
	c->ndim = 1;
	c->size = 1;
	if (!s->format) return malformed("have no format");
	if (s->dictionary || strncmp(s->format, "+w:", 3) != 0) return read_values(s, c);
	c->lists = 1;
	c->size = list_size(s->format + 3);
	if (c->size < 0 || s->n_children != 1 || !s->children || !s->children[0])
		return malformed("have lists without a size or without one child");
	usmb_arrow_schema child = *s->children[0];
	if (!child.release) return malformed("have a child that was released");
	if (read_values(&child, c) < 0 || read_extension(s->metadata, &e) < 0) return -1;
	if (!e.name[0]) {
		c->ndim = 2;
		c->shape[1] = c->size;
		c->strides[1] = 1;
		return 0;
	}
	if (strcmp(e.name, "arrow.fixed_shape_tensor") != 0) return unknown_extension(&e);
	return read_tensor(e.parameters, c);
}

/* ---- the memory ---------------------------------------------------------------------- */

static int check_struct(const usmb_arrow_array *a, int64_t buffers, int64_t children)
{
	int64_t end;
	if (a->length < 0 || a->offset < 0 || a->null_count < -1 || a->null_count > a->length ||
	    __builtin_add_overflow(a->length, a->offset, &end))
		return malformed("have an invalid length, offset or null count");
	if (a->n_buffers != buffers || a->n_children != children || a->dictionary || !a->buffers ||
	    (children && (!a->children || !a->children[0])))
		return malformed("have a number of buffers or children that does not match their type");
	return 0;
}

static int bit(const uint8_t *bits, int64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

/* Returns the number of nulls among n values from first on; -1 with an exception. */
static int64_t count_nulls(const uint8_t *valid, int64_t null_count, int64_t first, int64_t n)
{
	int64_t nulls = 0;
	if (null_count == 0 || n == 0 || (!valid && null_count < 0)) return 0;
	if (!valid) return malformed("have nulls, but no validity bitmap");
	for (int64_t i = first; i < first + n; i++) nulls += !bit(valid, i);
	return nulls;
}

/* The position of the elements, after all possible checks. */
typedef struct {
	const char *data;
	int64_t first, n;
	const uint8_t *valid, *rows; /* bitmaps of the elements and of the rows; NULL: no nulls */
	int64_t row, size;           /* the first row in its bitmap, and the elements of a row */
	int64_t nulls;               /* rows that are null, or else elements */
} values;

static int read_values_of(const usmb_arrow_array *a, int64_t first, int64_t n, values *v)
{
	v->data = a->buffers[1];
	v->first = first;
	v->n = n;
	if (!v->data && n > 0) return malformed("have elements, but no data buffer");
	int64_t nulls = count_nulls(a->buffers[0], a->null_count, first, n);
	if (nulls > 0) v->valid = a->buffers[0];
	if (!v->rows) v->nulls = nulls;
	return nulls < 0 ? -1 : 0;
}

static int read_array(const usmb_arrow_array *a, const column *c, values *v)
{
	memset(v, 0, sizeof *v);
	v->size = 1;
	if (!c->lists) return check_struct(a, 2, 0) < 0 ? -1 : read_values_of(a, a->offset, a->length, v);
	if (check_struct(a, 1, 1) < 0) return -1;
	usmb_arrow_array child = *a->children[0];
	int64_t end, first, n;
	if (!child.release) return malformed("have a child that was released");
	if (check_struct(&child, 2, 0) < 0) return -1;
	if (__builtin_mul_overflow(a->offset + a->length, c->size, &end) || end > child.length)
		return malformed("have lists that are longer than their elements");
	first = child.offset + a->offset * c->size;
	n = a->length * c->size;
	v->nulls = count_nulls(a->buffers[0], a->null_count, a->offset, a->length);
	if (v->nulls < 0) return -1;
	if (v->nulls > 0) v->rows = a->buffers[0];
	v->row = a->offset;
	v->size = c->size;
	return read_values_of(&child, first, n, v);
}

/* ---- arrays --------------------------------------------------------------------------- */

static void end_holding(usmb_foreign *f)
{
	holding *h = (holding *)f;
	h->array.release(&h->array);
	free(h);
}

/* Unpacks Arrow's bits to booleans of a byte. */
static usmb_cell *unpacked(const values *v)
{
	uint8_t *block = malloc(v->n ? (size_t)v->n : 1);
	if (!block) {
		PyErr_NoMemory();
		return NULL;
	}
	for (int64_t i = 0; i < v->n; i++) block[i] = (uint8_t)bit((const uint8_t *)v->data, v->first + i);
	usmb_cell *cell = usmb_cell_of_block(block, (uint64_t)v->n);
	if (!cell) free(block);
	return cell;
}

/* Makes a cell on the memory of an Arrow array, which it takes over on success. */
static usmb_cell *cell_of(const usmb_arrow_array *array, char *data, int64_t bytes)
{
	holding *h = calloc(1, sizeof *h);
	if (!h) {
		PyErr_NoMemory();
		return NULL;
	}
	h->foreign.end = end_holding;
	h->array = *array;
	usmb_cell *cell = usmb_cell_of_foreign(&h->foreign, data, (uint64_t)bytes);
	if (!cell) free(h);
	return cell;
}

/* Makes the array. *taken: whether it took over source, because it uses source's memory. */
static PyObject *array_of(const usmb_arrow_array *source, column *c, const values *v, int *taken)
{
	usmb_dl_span span;
	char text[512];
	const int packed = c->packed;
	int64_t width = c->dtype.bits / 8, skip = 0;
	uintptr_t place = (uintptr_t)v->data;
	if (!packed && (__builtin_mul_overflow(v->first, width, &skip) ||
	                __builtin_add_overflow(place, (uintptr_t)skip, &place))) {
		malformed("have an offset beyond the address space");
		return NULL;
	}
	usmb_array *a = usmb_array_raw(c->ndim);
	if (!a) return NULL;
	memcpy(usmb_shape(a), c->shape, (size_t)c->ndim * sizeof *c->shape);
	memcpy(usmb_strides(a), c->strides, (size_t)c->ndim * sizeof *c->strides);
	usmb_shape(a)[0] = source->length;
	usmb_strides(a)[0] = c->size;
	usmb_cell *cell = packed ? unpacked(v) : NULL;
	char *first = cell ? cell->data : (char *)place;
	/* Arrow recommends an alignment but does not require one, so the check gets the address
	   rounded down to one. */
	char *at = (char *)((uintptr_t)first & ~(uintptr_t)(width - 1));
	usmb_dl_tensor t = {at, {USMB_DL_CPU, 0}, c->ndim, c->dtype, usmb_shape(a), usmb_strides(a), 0};
	int code = packed && !cell ? -1 : usmb_dl_check(&t, 0, NULL, &span);
	if (code == USMB_DL_OK && !packed) cell = cell_of(source, first + span.lo, span.hi - span.lo);
	if (code > 0) usmb_raise(PyExc_BufferError, "%s", usmb_dl_explain(code, &t, text, sizeof text));
	if (code != USMB_DL_OK || !cell) {
		if (cell) usmb_cell_drop_gil(cell);
		Py_DECREF(a);
		return NULL;
	}
	span.first = first;
	*taken = !packed;
	if (*taken) atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	usmb_array_settle_as(a, cell, c->dtype, *taken ? USMB_ARR_READONLY : 0, &span);
	return (PyObject *)a;
}

/* ---- nulls ---------------------------------------------------------------------------- */

/* How an object is imported, and what was found. */
typedef struct {
	int may_copy;
	const usmb_dl_dtype *want; /* the element type that the caller converts to, or NULL */
	int missing;               /* out: the exception is about nulls, so no other importer may read the object */
} import_mode;

static int is_floating(usmb_dl_dtype t)
{
	return t.code == USMB_DL_FLOAT || t.code == USMB_DL_BFLOAT || t.code == USMB_DL_COMPLEX;
}

static PyObject *refuse_nulls(const values *v, usmb_dl_dtype t, int64_t n, import_mode *m)
{
	const char *name = usmb_dl_dtype_name(t);
	m->missing = 1;
	return usmb_raise(PyExc_BufferError,
	                  "%lld of %lld %s are null, which elements of %s cannot represent; fill them first (pyarrow: "
	                  "fill_null()), or ask for a floating-point type, in which they are NaN",
	                  (long long)v->nulls, (long long)n, v->rows ? "rows" : "elements", name ? name : "this type");
}

/* Writes NaN, with the imaginary part 0 in complex types. */
static void put_nan(char *at, usmb_dl_dtype t)
{
	const uint64_t bits[] = {t.code == USMB_DL_BFLOAT ? 0x7FC0 : 0x7E00, 0x7FC00000, 0x7FF8000000000000};
	int width = t.code == USMB_DL_COMPLEX ? t.bits / 2 : t.bits;
	memset(at, 0, t.bits / 8);
	memcpy(at, &bits[width / 32], (size_t)width / 8); /* 16, 32 and 64 bits; the machine is little-endian */
}

/* Returns a copy of a, whose elements v describes, as elements of t with NaN for the nulls. */
static PyObject *with_nan(usmb_array *a, const values *v, usmb_dl_dtype t)
{
	int64_t index[USMB_DL_MAX_NDIM] = {0}, at = 0;
	usmb_array *r = (usmb_array *)usmb_copy_as(a, t, &usmb_on_host);
	for (int64_t k = 0; r && k < r->nelem; k++) {
		int null = v->valid && !bit(v->valid, v->first + at);
		null = null || (v->rows && !bit(v->rows, v->row + at / v->size));
		if (null) put_nan(r->first + k * (t.bits / 8), t);
		/* The next element in C order. */
		for (int32_t i = a->ndim - 1; i >= 0; i--) {
			at += usmb_strides(a)[i];
			if (++index[i] < usmb_shape(a)[i]) break;
			at -= index[i] * usmb_strides(a)[i];
			index[i] = 0;
		}
	}
	return (PyObject *)r;
}

/* ---- one array, and arrays in sequence ------------------------------------------------- */

/* Makes an Array of source, whose release function is NULL afterwards if the Array took it over. */
static PyObject *import(usmb_arrow_array *source, column *c, import_mode *m)
{
	values v;
	int taken = 0;
	if (read_array(source, c, &v) < 0) return NULL;
	usmb_dl_dtype t = m->want ? *m->want : c->dtype;
	if (v.nulls && !is_floating(t)) return refuse_nulls(&v, t, v.rows ? source->length : v.n, m);
	if ((c->packed || v.nulls) && !m->may_copy)
		return usmb_raise(PyExc_ValueError,
		                  c->packed ? "Arrow's booleans are bits, and an array has bytes: asarray "
		                              "without copy=False copies them, or cast() them to uint8 or "
		                              "arrow.bool8 first"
		                            : "copy=False, but nulls become NaN in a copy; leave copy out to "
		                              "allow it");
	usmb_array *a = (usmb_array *)array_of(source, c, &v, &taken);
	if (taken) source->release = NULL;
	if (!a || !v.nulls) return (PyObject *)a;
	PyObject *r = with_nan(a, &v, t);
	Py_DECREF(a);
	return r;
}

static void release_arrays(usmb_arrow_array *arrays, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (arrays[i].release) arrays[i].release(&arrays[i]);
}

/* Joins n arrays of one column along the first axis. */
static PyObject *join(usmb_arrow_array *sources, int64_t n, column *c, import_mode *m)
{
	usmb_region part;
	PyObject *parts = PyList_New(0);
	usmb_dl_dtype t = c->dtype;
	int bad = !parts;
	c->shape[0] = 0;
	for (int64_t i = 0; i < n && !bad; i++) {
		usmb_array *a = (usmb_array *)import(&sources[i], c, m);
		bad = !a || PyList_Append(parts, (PyObject *)a) < 0;
		if (a && __builtin_add_overflow(c->shape[0], usmb_shape(a)[0], &c->shape[0]))
			bad = malformed("have too many rows");
		/* Nulls are in the type that the caller wants already. */
		if (a && (a->dtype.code != c->dtype.code || a->dtype.bits != c->dtype.bits)) t = a->dtype;
		Py_XDECREF(a);
	}
	usmb_array *r = bad ? NULL : (usmb_array *)usmb_new_array(&usmb_on_host, c->ndim, c->shape, t, 0, USMB_WRITTEN);
	if (r) usmb_whole(r, &part);
	for (int64_t i = 0; r && i < n; i++) {
		usmb_array *a = (usmb_array *)PyList_GetItem(parts, i);
		part.shape[0] = usmb_shape(a)[0];
		if (usmb_assign_array(r, &part, a) < 0) Py_CLEAR(r);
		part.offset += part.shape[0] * part.strides[0];
	}
	Py_XDECREF(parts);
	return (PyObject *)r;
}

static PyObject *import_column(const usmb_arrow_schema *schema, usmb_arrow_array *sources, int64_t n, import_mode *m)
{
	column c;
	if (read_schema(schema, &c) < 0) return NULL;
	if (n == 1) return import(sources, &c, m);
	if (!m->may_copy && usmb_no_copy(PyExc_ValueError, "joining the chunks of a column") < 0) return NULL;
	return join(sources, n, &c, m);
}

/* ---- frames ----------------------------------------------------------------------------- */

/* Whether an array or its children can have nulls. The pointers to dictionaries are not followed. */
static int can_have_nulls(const usmb_arrow_schema *s, const usmb_arrow_array *a, int depth)
{
	if (a->null_count > 0 || (a->null_count < 0 && a->n_buffers > 0 && a->buffers && a->buffers[0])) return 1;
	if (depth == 8 || a->n_children != s->n_children) return 1;
	for (int64_t i = 0; i < s->n_children; i++)
		if (!s->children || !a->children || !s->children[i] || !a->children[i] ||
		    can_have_nulls(s->children[i], a->children[i], depth + 1))
			return 1;
	return 0;
}

/* Moves child i out of the record batches; -1 with an exception. */
static int move_children(usmb_arrow_array *batches, int64_t n, int64_t i, usmb_arrow_array *out)
{
	for (int64_t k = 0; k < n; k++) {
		usmb_arrow_array *b = &batches[k];
		int64_t end;
		if (!b->children || i >= b->n_children || !b->children[i] || !b->children[i]->release)
			return malformed("have a record batch without one of its columns");
		if (__builtin_add_overflow(b->offset, b->length, &end) || end > b->children[i]->length)
			return malformed("have a column that is shorter than its record batch");
		out[k] = *b->children[i];
		b->children[i]->release = NULL;
		out[k].offset += b->offset;
		out[k].length = b->length;
		out[k].null_count = -1;
	}
	return 0;
}

/* Makes an Array of the columns of record batches. Only those with nulls are read here: libraries convert the others
   themselves, with types and columns that this reader does not have. */
static PyObject *import_frame(const usmb_arrow_schema *schema, usmb_arrow_array *batches, int64_t n, import_mode *m)
{
	static PyObject *frame;
	usmb_arrow_array *column = calloc((size_t)n + 1, sizeof *column);
	PyObject *columns = PyList_New(0), *made = NULL;
	int bad = !column || !columns;
	import_mode copied = {1, m->want, 0};
	m->missing = 1; /* whatever follows */
	if (!column) PyErr_NoMemory();
	for (int64_t i = 0; i < schema->n_children && !bad; i++) {
		memset(column, 0, (size_t)n * sizeof *column);
		bad = move_children(batches, n, i, column) < 0;
		PyObject *a = bad ? NULL : import_column(schema->children[i], column, n, &copied);
		release_arrays(column, n);
		bad = !a || PyList_Append(columns, a) < 0;
		Py_XDECREF(a);
	}
	if (!bad && !m->may_copy) bad = usmb_no_copy(PyExc_ValueError, "joining columns") < 0;
	PyObject *type = bad || !m->want ? NULL : usmb_dtype_object(*m->want);
	PyObject *args[2] = {columns, type ? type : Py_None};
	if (!bad && !PyErr_Occurred()) made = usmb_call_python(&frame, "usmbridge._arrow", "frame", args, 2);
	Py_XDECREF(type);
	Py_XDECREF(columns);
	free(column);
	return made;
}

/* Whether the schema is of columns whose nulls other importers could lose when this reader does not know the type:
   NumPy converts integers beside nulls to float64. */
static int loses_nulls(const usmb_arrow_schema *s)
{
	if (s->dictionary) return 1;
	if (!s->format) return 0;
	return strncmp(s->format, "+w:", 3) == 0 || strcmp(s->format, "+s") == 0 || strcmp(s->format, "n") == 0;
}

static PyObject *import_arrays(const usmb_arrow_schema *schema, usmb_arrow_array *sources, int64_t n, import_mode *m)
{
	int nulls = 0, frame = schema->format && strcmp(schema->format, "+s") == 0 && schema->children;
	for (int64_t i = 0; frame && i < n; i++)
		if (check_struct(&sources[i], 1, schema->n_children) < 0) return NULL;
	if (loses_nulls(schema))
		for (int64_t i = 0; i < n && !nulls; i++) nulls = can_have_nulls(schema, &sources[i], 0);
	if (nulls && frame) return import_frame(schema, sources, n, m);
	PyObject *a = import_column(schema, sources, n, m);
	if (!a && nulls && PyErr_ExceptionMatches(PyExc_TypeError)) m->missing = 1;
	return a;
}

/* ---- the protocol ---------------------------------------------------------------------- */

/* Moves both structs out of their capsules; the caller must release them. */
static int move(PyObject *pair, int device, usmb_arrow_schema *schema, usmb_arrow_device_array *d)
{
	PyObject *first = PyTuple_GetItem(pair, 0), *second = PyTuple_GetItem(pair, 1);
	usmb_arrow_schema *s = PyCapsule_GetPointer(first, schema_name);
	void *m = s ? PyCapsule_GetPointer(second, device ? device_name : array_name) : NULL;
	if (!m) {
		PyErr_Clear();
		usmb_raise(PyExc_TypeError, "%s returned other capsules than \"%s\" and \"%s\"",
		           device ? "__arrow_c_device_array__" : "__arrow_c_array__", schema_name,
		           device ? device_name : array_name);
		return -1;
	}
	memset(d, 0, sizeof *d);
	d->device_type = USMB_ARROW_CPU;
	memcpy(d, m, device ? sizeof *d : sizeof d->array);
	*schema = *s;
	s->release = NULL;
	((usmb_arrow_array *)m)->release = NULL; /* both structs begin with it */
	return 0;
}

static PyObject *import_moved(const usmb_arrow_schema *schema, usmb_arrow_device_array *d, import_mode *m)
{
	if (!schema->release || !d->array.release) {
		malformed("were released or imported before");
		return NULL;
	}
	if (d->device_type != USMB_ARROW_CPU || d->sync_event)
		return usmb_raise(PyExc_BufferError,
		                  "Arrow's memory is on device type %d (%lld)%s; only CPU memory (1) can be imported: "
		                  "copy it to the CPU, or use from_dlpack",
		                  (int)d->device_type, (long long)d->device_id,
		                  d->sync_event ? ", with an event to wait for" : "");
	return import_arrays(schema, &d->array, 1, m);
}

/* Releases both and keeps the exception that is set: the producer's functions can run any code. */
static void release_both(usmb_arrow_schema *schema, usmb_arrow_array *array)
{
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	if (schema->release) schema->release(schema);
	if (array && array->release) array->release(array);
	PyErr_Restore(type, value, trace);
}

PyObject *usmb_import_arrow(PyObject *o, int may_copy, const usmb_dl_dtype *want, int *missing)
{
	int device = 1;
	import_mode m = {may_copy, want, 0};
	PyObject *method = usmb_optional_attr(o, usmb_name.__arrow_c_device_array__);
	if (!method && !PyErr_Occurred()) {
		device = 0;
		method = usmb_optional_attr(o, usmb_name.__arrow_c_array__);
	}
	if (!method) return NULL;
	PyObject *pair = PyObject_CallFunctionObjArgs(method, NULL), *a = NULL;
	Py_DECREF(method);
	if (!pair) return NULL;
	usmb_arrow_schema schema;
	usmb_arrow_device_array d;
	if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
		usmb_raise(PyExc_TypeError, "%s did not return a tuple of two capsules",
		           device ? "__arrow_c_device_array__" : "__arrow_c_array__");
	} else if (move(pair, device, &schema, &d) == 0) {
		a = import_moved(&schema, &d, &m);
		release_both(&schema, &d.array);
	}
	*missing = m.missing;
	usmb_decref_aside(pair);
	return a;
}

/* ---- streams ---------------------------------------------------------------------------- */

/* The arrays of a stream, which this owns. */
typedef struct {
	usmb_arrow_schema schema;
	usmb_arrow_array *arrays;
	int64_t n;
} arrivals;

static int failed_stream(usmb_arrow_stream *s, int code)
{
	const char *text = s->get_last_error ? s->get_last_error(s) : NULL;
	usmb_raise(PyExc_RuntimeError, "the object's Arrow stream failed: %.200s", text ? text : strerror(code));
	return -1;
}

static int read_stream(usmb_arrow_stream *s, arrivals *got)
{
	int64_t room = 0;
	int code = s->get_schema(s, &got->schema);
	if (code) return failed_stream(s, code);
	for (;;) {
		if (got->n == room) {
			usmb_arrow_array *more = realloc(got->arrays, (size_t)(room = 2 * room + 4) * sizeof *more);
			if (!more) return PyErr_NoMemory(), -1;
			got->arrays = more;
		}
		usmb_arrow_array *next = &got->arrays[got->n];
		memset(next, 0, sizeof *next);
		code = s->get_next(s, next);
		if (code) return failed_stream(s, code);
		if (!next->release) return 0;
		got->n++;
	}
}

PyObject *usmb_import_arrow_stream(PyObject *o, int may_copy, const usmb_dl_dtype *want, int *missing)
{
	import_mode m = {may_copy, want, 0};
	arrivals got;
	PyObject *capsule = PyObject_CallMethodObjArgs(o, usmb_name.__arrow_c_stream__, NULL), *a = NULL;
	usmb_arrow_stream *given = capsule ? PyCapsule_GetPointer(capsule, stream_name) : NULL;
	if (given && given->release) {
		usmb_arrow_stream s = *given;
		given->release = NULL;
		memset(&got, 0, sizeof got);
		int bad = read_stream(&s, &got) < 0;
		if (!bad && !got.schema.release) bad = malformed("were released or imported before");
		if (!bad) a = import_arrays(&got.schema, got.arrays, got.n, &m);
		PyObject *type, *value, *trace; /* the producer's functions can run any code */
		PyErr_Fetch(&type, &value, &trace);
		release_arrays(got.arrays, got.n);
		if (got.schema.release) got.schema.release(&got.schema);
		s.release(&s);
		PyErr_Restore(type, value, trace);
		free(got.arrays);
	} else if (given) {
		malformed("were released or imported before");
	}
	*missing = m.missing;
	if (capsule) usmb_decref_aside(capsule);
	return a;
}
