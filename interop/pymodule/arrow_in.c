/* arrow_in.c: the Arrow C data interface in: values of one type, lists of a fixed size and
   columns of arrow.fixed_shape_tensor, where they lie. The structs are moved out of their
   capsules before anything else, so that each is read from a copy and released once,
   whatever the producer does meanwhile. How long buffers are the interface does not say:
   there the producer is believed. */
#include <stdlib.h>
#include <string.h>

#include "usmb_array.h"
#include "usmb_arrow.h"
#include "usmb_storage.h"
#include "usmb_support.h"

static const char schema_name[] = "arrow_schema", array_name[] = "arrow_array", device_name[] = "arrow_device_array";

/* What a schema says, in the words of arrays. */
typedef struct {
	usmb_dl_dtype dtype;
	int packed; /* booleans of a bit each, which need a copy */
	int lists;  /* of so many elements: */
	int64_t size;
	int32_t ndim;                                               /* with the rows */
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM]; /* of a row, from 1 on */
} column;

/* Their memory, which a cell owns. */
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
	char name[NAME_ROOM], parameters[PARAMETERS_ROOM]; /* empty: none */
} extension;

/* One text of the metadata and its length, as much of it as there is room for; NULL when
   the length cannot be. */
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

/* A name with a NUL is another than what stands before it; parameters with one, or for
   which there is no room, are none. Of what comes twice others may take the other one. */
static int read_extension(const char *at, extension *e)
{
	char key[32], value[PARAMETERS_ROOM];
	size_t key_length, length;
	int32_t pairs;
	int names = 0, parameters = 0;
	e->name[0] = e->parameters[0] = 0;
	if (!at) return 0;
	memcpy(&pairs, at, sizeof pairs);
	if (pairs < 0 || pairs > PAIRS_MAX) return malformed("have metadata of a length that cannot be");
	at += sizeof pairs;
	for (int32_t i = 0; i < pairs; i++) {
		if (!(at = get_text(at, key, sizeof key, &key_length)) ||
		    !(at = get_text(at, value, sizeof value, &length)))
			return malformed("have metadata of a length that cannot be");
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
	return names > 1 || parameters > 1 ? malformed("have an extension type twice in their metadata") : 0;
}

static int unknown_extension(const extension *e)
{
	usmb_raise(PyExc_TypeError, "a column of Arrow's extension type \"%s\" is no array here; give its storage",
	           e->name);
	return -1;
}

/* The integers of a list in a parameter object: how many, 0 without such a list. */
static int integers(PyObject *parameters, const char *key, int64_t *out)
{
	PyObject *list = PyDict_GetItemString(parameters, key); /* borrowed */
	if (!list || list == Py_None) return 0;
	Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : -1;
	if (n < 0 || n >= USMB_DL_MAX_NDIM)
		return malformed("describe a tensor of too many axes, or whose axes are no list");
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *v = PyList_GetItem(list, i);
		int over = !PyLong_Check(v) || v == Py_True || v == Py_False;
		out[i] = over ? -1 : PyLong_AsLongLongAndOverflow(v, &over);
		if (over || out[i] < 0) return malformed("describe a tensor with axes that are no extents");
	}
	return (int)n;
}

/* A dictionary of pairs of which no key comes twice. */
static PyObject *once_each(PyObject *pairs)
{
	Py_ssize_t n = PyTuple_Size(pairs);
	PyObject *d = PyDict_New();
	for (Py_ssize_t i = 0; d && i < n; i++) {
		PyObject *pair = PyTuple_GetItem(pairs, i); /* borrowed */
		if (PyDict_SetItem(d, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1)) < 0) Py_CLEAR(d);
	}
	if (d && PyDict_Size(d) != n) {
		Py_CLEAR(d);
		malformed("describe a tensor by parameters with a name that comes twice");
	}
	return d;
}

/* json.loads(text, object_pairs_hook=tuple), by which no object is a list. */
static PyObject *load_json(const char *text)
{
	PyObject *json = PyImport_ImportModule("json");
	PyObject *loads = json ? PyObject_GetAttrString(json, "loads") : NULL;
	PyObject *args = loads ? Py_BuildValue("(s)", text) : NULL;
	PyObject *how = args ? Py_BuildValue("{s:O}", "object_pairs_hook", &PyTuple_Type) : NULL;
	PyObject *v = how ? PyObject_Call(loads, args, how) : NULL;
	Py_XDECREF(how);
	Py_XDECREF(args);
	Py_XDECREF(loads);
	Py_XDECREF(json);
	return v;
}

static PyObject *parse_parameters(const char *text)
{
	PyObject *v = load_json(text), *d = NULL;
	if (v && PyTuple_Check(v)) {
		d = once_each(v);
	} else if (v || PyErr_ExceptionMatches(PyExc_ValueError) ||
	           PyErr_ExceptionMatches(PyExc_RuntimeError)) { /* RecursionError: too deep */
		PyErr_Clear();
		malformed("describe a tensor by parameters that are no JSON object");
	}
	Py_XDECREF(v);
	return d;
}

/* shape and permutation of arrow.fixed_shape_tensor: axis i of a row is the stored axis
   permutation[i]. */
static int read_tensor(PyObject *parameters, column *c)
{
	int64_t shape[USMB_DL_MAX_NDIM], order[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM], size = 1, zero = 1;
	int n = integers(parameters, "shape", shape);
	int permuted = n < 0 ? -1 : integers(parameters, "permutation", order);
	if (permuted < 0) return -1;
	PyObject *given = PyDict_GetItemString(parameters, "shape"); /* borrowed */
	if (!given || given == Py_None) return malformed("describe a tensor without a shape");
	/* Strides are products as well, and leave out what is 0. */
	for (int i = 0; i < n; i++) {
		if (shape[i] == 0)
			zero = 0;
		else if (__builtin_mul_overflow(size, shape[i], &size))
			return malformed("describe a tensor of no size");
	}
	if (size * zero != c->size) return malformed("describe a tensor whose shape is not that of its lists");
	uint64_t seen = 0;
	for (int i = 0; i < permuted; i++)
		if (order[i] < n) seen |= UINT64_C(1) << order[i];
	given = PyDict_GetItemString(parameters, "permutation"); /* borrowed */
	if (given && given != Py_None && (permuted != n || seen != (UINT64_C(1) << n) - 1))
		return malformed("describe a tensor by a permutation that is none of its axes");
	usmb_fill_strides(n, shape, strides, 0);
	for (int i = 0; i < n; i++) {
		int64_t axis = permuted ? order[i] : i;
		c->shape[i + 1] = shape[axis];
		c->strides[i + 1] = strides[axis];
	}
	c->ndim = n + 1;
	return 0;
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
	} else if (usmb_arrow_dtype(s->format, &c->dtype) < 0) {
		usmb_raise(PyExc_TypeError,
		           "Arrow values of format \"%.40s\" are no elements of an array; integers, float16, float32, "
		           "float64 and booleans are: cast() them first",
		           s->format);
		return -1;
	}
	return s->n_children == 0 ? 0 : malformed("have values with children");
}

/* The number behind "+w:"; -1 when there is none. */
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
	PyObject *parameters = parse_parameters(e.parameters);
	if (!parameters) return -1;
	int r = read_tensor(parameters, c);
	Py_DECREF(parameters);
	return r;
}

/* ---- the memory ---------------------------------------------------------------------- */

static int check_struct(const usmb_arrow_array *a, int64_t buffers, int64_t children)
{
	int64_t end;
	if (a->length < 0 || a->offset < 0 || a->null_count < -1 || a->null_count > a->length ||
	    __builtin_add_overflow(a->length, a->offset, &end))
		return malformed("have lengths, offsets or counts that cannot be");
	if (a->n_buffers != buffers || a->n_children != children || a->dictionary || !a->buffers ||
	    (children && (!a->children || !a->children[0])))
		return malformed("have other buffers or children than their type");
	return 0;
}

static int bit(const uint8_t *bits, int64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

static int check_nulls(const uint8_t *valid, int64_t null_count, int64_t first, int64_t n, const char *what)
{
	int64_t nulls = 0;
	if (null_count == 0 || n == 0 || (!valid && null_count < 0)) return 0;
	if (!valid) return malformed("have nulls, but no bitmap that says which");
	for (int64_t i = first; i < first + n; i++) nulls += !bit(valid, i);
	if (nulls == 0) return 0;
	usmb_raise(PyExc_BufferError,
	           "%lld of %lld %s are null, which an array cannot say; fill them first (pyarrow: fill_null())",
	           (long long)nulls, (long long)n, what);
	return -1;
}

/* Where the elements are, once all that can be checked was. */
typedef struct {
	const char *data;
	int64_t first, n;
} values;

static int read_values_of(const usmb_arrow_array *a, int64_t first, int64_t n, values *v)
{
	const uint8_t *valid = a->buffers[0];
	v->data = a->buffers[1];
	v->first = first;
	v->n = n;
	if (!v->data && n > 0) return malformed("have elements, but no memory of them");
	return check_nulls(valid, a->null_count, first, n, "elements");
}

static int read_array(const usmb_arrow_array *a, const column *c, values *v)
{
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
	if (check_nulls(a->buffers[0], a->null_count, a->offset, a->length, "rows") < 0) return -1;
	return read_values_of(&child, first, n, v);
}

/* ---- arrays --------------------------------------------------------------------------- */

static void end_holding(usmb_foreign *f)
{
	holding *h = (holding *)f;
	h->array.release(&h->array);
	free(h);
}

/* Booleans a byte each, of Arrow's bits. */
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

/* The array of the elements; it takes h over where it is on its memory (*taken). */
static PyObject *array_of(holding *h, column *c, const values *v, int *taken)
{
	usmb_dl_span span;
	char text[512];
	int64_t width = c->dtype.bits / 8, skip = 0;
	uintptr_t place = (uintptr_t)v->data;
	if (!c->packed && (__builtin_mul_overflow(v->first, width, &skip) ||
	                   __builtin_add_overflow(place, (uintptr_t)skip, &place))) {
		malformed("have an offset behind all memory");
		return NULL;
	}
	usmb_array *a = usmb_array_raw(c->ndim);
	if (!a) return NULL;
	memcpy(usmb_shape(a), c->shape, (size_t)c->ndim * sizeof *c->shape);
	memcpy(usmb_strides(a), c->strides, (size_t)c->ndim * sizeof *c->strides);
	usmb_shape(a)[0] = h->array.length;
	usmb_strides(a)[0] = c->size;
	usmb_cell *cell = c->packed ? unpacked(v) : NULL;
	char *first = cell ? cell->data : (char *)place;
	/* Arrow recommends an alignment and asks for none: the check sees an address that is
	   aligned, in the same place but for its last bits. */
	char *at = (char *)((uintptr_t)first & ~(uintptr_t)(width - 1));
	usmb_dl_tensor t = {at, {USMB_DL_CPU, 0}, c->ndim, c->dtype, usmb_shape(a), usmb_strides(a), 0};
	int code = c->packed && !cell ? -1 : usmb_dl_check(&t, 0, NULL, &span);
	if (code == USMB_DL_OK && !c->packed)
		cell = usmb_cell_of_foreign(&h->foreign, first + span.lo, (uint64_t)(span.hi - span.lo));
	if (code > 0) usmb_raise(PyExc_BufferError, "%s", usmb_dl_explain(code, &t, text, sizeof text));
	if (code != USMB_DL_OK || !cell) {
		if (cell) usmb_cell_drop_gil(cell);
		Py_DECREF(a);
		return NULL;
	}
	span.first = first;
	*taken = !c->packed;
	if (*taken) atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	usmb_array_settle_as(a, cell, c->dtype, *taken ? USMB_ARR_READONLY : 0, &span);
	return (PyObject *)a;
}

static PyObject *import(holding *h, const usmb_arrow_schema *schema, int may_copy, int *taken)
{
	column c;
	values v;
	if (read_schema(schema, &c) < 0) return NULL;
	if (c.packed && !may_copy)
		return usmb_raise(PyExc_ValueError,
		                  "Arrow's booleans are bits, and an array has bytes: asarray without copy=False "
		                  "copies them, or cast() them to uint8 or arrow.bool8 first");
	return read_array(&h->array, &c, &v) < 0 ? NULL : array_of(h, &c, &v, taken);
}

/* ---- the protocol ---------------------------------------------------------------------- */

/* Moves both structs out of their capsules: the caller releases what it got. */
static int move(PyObject *pair, int device, usmb_arrow_schema *schema, usmb_arrow_device_array *d)
{
	PyObject *first = PyTuple_GetItem(pair, 0), *second = PyTuple_GetItem(pair, 1);
	usmb_arrow_schema *s = PyCapsule_GetPointer(first, schema_name);
	void *m = s ? PyCapsule_GetPointer(second, device ? device_name : array_name) : NULL;
	if (!m) {
		PyErr_Clear();
		usmb_raise(PyExc_TypeError, "%s gave other capsules than \"%s\" and \"%s\"",
		           device ? "__arrow_c_device_array__" : "__arrow_c_array__", schema_name,
		           device ? device_name : array_name);
		return -1;
	}
	memset(d, 0, sizeof *d);
	d->device_type = USMB_ARROW_CPU;
	memcpy(d, m, device ? sizeof *d : sizeof d->array);
	*schema = *s;
	s->release = NULL;
	((usmb_arrow_array *)m)->release = NULL; /* both kinds begin with it */
	return 0;
}

static PyObject *import_moved(const usmb_arrow_schema *schema, const usmb_arrow_device_array *d, int may_copy,
                              int *taken)
{
	if (!schema->release || !d->array.release) {
		malformed("were released, or taken by somebody else, before they came here");
		return NULL;
	}
	if (d->device_type != USMB_ARROW_CPU || d->sync_event)
		return usmb_raise(
		        PyExc_BufferError,
		        "Arrow's memory is on device type %d (%lld)%s; only the CPU's (1) is taken: ask for a "
		        "copy there, or use from_dlpack",
		        (int)d->device_type, (long long)d->device_id,
		        d->sync_event ? ", with an event to wait for" : "");
	holding *h = calloc(1, sizeof *h);
	if (!h) return PyErr_NoMemory();
	h->foreign.end = end_holding;
	h->array = d->array;
	PyObject *a = import(h, schema, may_copy, taken);
	if (!*taken) free(h);
	return a;
}

/* The producer's functions run whatever code; an exception here survives them. */
static void release_both(usmb_arrow_schema *schema, usmb_arrow_array *array)
{
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	if (schema->release) schema->release(schema);
	if (array && array->release) array->release(array);
	PyErr_Restore(type, value, trace);
}

PyObject *usmb_import_arrow(PyObject *o, int may_copy)
{
	int device = 1, taken = 0;
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
		usmb_raise(PyExc_TypeError, "%s gave no tuple of two capsules",
		           device ? "__arrow_c_device_array__" : "__arrow_c_array__");
	} else if (move(pair, device, &schema, &d) == 0) {
		a = import_moved(&schema, &d, may_copy, &taken);
		release_both(&schema, taken ? NULL : &d.array);
	}
	usmb_decref_aside(pair);
	return a;
}
