/* suai.c: __sycl_usm_array_interface__ of Array, and its import from other objects. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "create.h"
#include "dpnp.h"
#include "exchange.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

/* ==== Export ================================================================================== */

/* The constant part for arrays of one type: a dictionary to copy for each access. A few patterns
   are cached, guarded by the GIL. */
typedef struct {
	usmb_dl_dtype dtype;
	PyObject *dict;  /* has all keys; those that differ between arrays are None */
	PyObject *field; /* ("", typestr) */
	PyObject *descr; /* [field], in dict as typedescr */
} pattern;

enum { PATTERNS = 16 };
static pattern patterns[PATTERNS];
static unsigned oldest;

static void clear_pattern(pattern *p)
{
	pattern old = *p;
	memset(p, 0, sizeof *p);
	Py_XDECREF(old.dict);
	Py_XDECREF(old.field);
	Py_XDECREF(old.descr);
}

void usmb_suai_clear(void)
{
	for (int i = 0; i < PATTERNS; i++) clear_pattern(&patterns[i]);
}

static PyObject *no_attribute(const char *why, const char *what)
{
	return usmb_raise(PyExc_AttributeError, "this Array has no __sycl_usm_array_interface__: %s%s", why, what);
}

static PyObject *list_of(PyObject *field)
{
	PyObject *list = PyList_New(1);
	if (list) PyList_SetItem(list, 0, Py_NewRef(field));
	return list;
}

/* Returns the pattern's dictionary, a new reference. The list in typedescr is shared by all
   dictionaries; if a consumer changed it, the pattern gets a new one. */
static PyObject *clean_dict(pattern *p)
{
	if (PyList_Size(p->descr) == 1 && PyList_GetItem(p->descr, 0) == p->field) return Py_NewRef(p->dict);
	/* Creating a list can run the collector, and code that reads other dictionaries and
	   replaces this pattern. */
	PyObject *dict = Py_NewRef(p->dict), *field = Py_NewRef(p->field), *list = list_of(field), *old = NULL;
	int r = list ? PyDict_SetItem(dict, usmb_name.typedescr, list) : -1;
	if (r == 0 && p->dict == dict) {
		old = p->descr;
		p->descr = Py_NewRef(list);
	}
	Py_XDECREF(old);
	Py_XDECREF(list);
	Py_DECREF(field);
	if (r < 0) Py_CLEAR(dict);
	return dict;
}

static int fill_pattern(pattern *p, usmb_array *a)
{
	const char *typestr = usmb_dl_dtype_typestr(a->dtype);
	PyObject *field = Py_BuildValue("(ss)", "", typestr), *descr = field ? list_of(field) : NULL, *dict = NULL;
	if (descr)
		dict = Py_BuildValue("{OOOsOOOOOOOiOiOO}", usmb_name.shape, Py_None, usmb_name.typestr, typestr,
		                     usmb_name.typedescr, descr, usmb_name.data, Py_None, usmb_name.strides, Py_None,
		                     usmb_name.offset, 0, usmb_name.version, 1, usmb_name.syclobj, Py_None);
	if (!dict) {
		Py_XDECREF(field);
		Py_XDECREF(descr);
		return -1;
	}
	p->dtype = a->dtype;
	p->dict = dict;
	p->field = field;
	p->descr = descr;
	return 0;
}

static pattern *pattern_for(usmb_array *a)
{
	for (int i = 0; i < PATTERNS; i++) {
		pattern *p = &patterns[i];
		if (p->dict && p->dtype.code == a->dtype.code && p->dtype.bits == a->dtype.bits) return p;
	}
	pattern *p = &patterns[oldest++ % PATTERNS];
	clear_pattern(p);
	return fill_pattern(p, a) < 0 ? NULL : p;
}

/* Sets a key and drops value; -1 if value is NULL or cannot be set. */
static int put(PyObject *dict, PyObject *key, PyObject *value)
{
	if (!value) return -1;
	int r = PyDict_SetItem(dict, key, value);
	Py_DECREF(value);
	return r;
}

static PyObject *data_pair(usmb_array *a)
{
	PyObject *pair = PyTuple_New(2);
	PyObject *address = PyLong_FromVoidPtr(a->first);
	if (!pair || !address) {
		Py_XDECREF(pair);
		Py_XDECREF(address);
		return NULL;
	}
	PyTuple_SetItem(pair, 0, address);
	/* True means read-only, as the specification says. */
	PyTuple_SetItem(pair, 1, Py_NewRef(a->flags & USMB_ARR_READONLY ? Py_True : Py_False));
	return pair;
}

static int suai_check(usmb_array *a)
{
	const char *name = usmb_dl_dtype_name(a->dtype);
	if (!a->cell->place)
		no_attribute("its memory is plain host memory, not USM", "");
	else if (!usmb_dl_dtype_typestr(a->dtype))
		no_attribute("the interface has no type string for ", name ? name : "its element type");
	else
		return 0;
	return -1;
}

PyObject *usmb_array_suai(PyObject *self, void *closure)
{
	usmb_array *a = (usmb_array *)self;
	(void)closure;
	usmb_owner_drain();
	if (suai_check(a) < 0 || usmb_array_allowed(a) < 0) return NULL;
	if (!(a->flags & USMB_ARR_OURS) && (usmb_array_wait_known(a) < 0 || usmb_array_address_shown(a) < 0))
		return NULL;
	pattern *p = pattern_for(a);
	PyObject *clean = p ? clean_dict(p) : NULL;
	PyObject *dict = clean ? PyDict_Copy(clean) : NULL;
	Py_XDECREF(clean);
	if (!dict) return NULL;
	PyObject *queue = a->queue ? Py_NewRef(a->queue) : usmb_public_queue(usmb_array_place(a));
	int bad = put(dict, usmb_name.syclobj, queue) < 0 || put(dict, usmb_name.data, data_pair(a)) < 0 ||
	          put(dict, usmb_name.shape, usmb_tuple_i64(usmb_shape(a), a->ndim)) < 0;
	if (!bad && !(a->flags & USMB_ARR_C))
		bad = put(dict, usmb_name.strides, usmb_tuple_i64(usmb_strides(a), a->ndim)) < 0;
	if (bad) {
		Py_DECREF(dict);
		return NULL;
	}
	usmb_array_show(a);
	return dict;
}

/* ==== Import ================================================================================== */

/* This part reads the dictionary. Go has the rules for its values, for both languages. */

/* A dictionary that is being read, and the objects that it owns. */
typedef struct {
	usmb_suai_in in;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	usmb_syclref ref;
	Py_buffer *view;   /* owned: the object's buffer if data is missing */
	PyObject *held[8]; /* owned: the values of the dictionary, which foreign code can clear */
	int nheld;
	PyObject *dict; /* borrowed; NULL: a library's, whose owner keeps the memory alive by itself */
	int ours;       /* a result of dpnp that only our functions have used */
} parsed;

#define WHERE "__sycl_usm_array_interface__: "

/* Reads a key once; p holds the value. A list is held as a tuple, because it could change while it
   is read. */
static PyObject *item(PyObject *dict, PyObject *key, parsed *p, int *bad)
{
	if (*bad) return NULL; /* an exception is set: a look-up may run code, which must not see it */
	PyObject *v = PyDict_GetItemWithError(dict, key);
	if (v) {
		Py_INCREF(v); /* creating a tuple can run the collector, and code that removes the value */
		if (PyList_Check(v)) {
			PyObject *list = v;
			v = PyList_AsTuple(list);
			Py_DECREF(list);
		}
		if (v) p->held[p->nheld++] = v;
	}
	if (!v && PyErr_Occurred()) *bad = 1;
	return v;
}

static int malformed(PyObject *kind, const char *key, const char *rule, PyObject *found)
{
	char type[64];
	if (found)
		usmb_raise(kind, WHERE "'%s' %s, found a %s", key, rule, usmb_type_name(found, type, sizeof type));
	else
		usmb_raise(kind, WHERE "'%s' %s, found nothing", key, rule);
	return -1;
}

/* The integer that o, which may have __index__, stands for; a new reference. */
static PyObject *integer_of(PyObject *o, const char *key, const char *rule)
{
	if (PyLong_CheckExact(o)) return Py_NewRef(o); /* saves two calls */
	if (PyIndex_Check(o)) return PyNumber_Index(o);
	malformed(PyExc_TypeError, key, rule, o);
	return NULL;
}

static int parse_version(PyObject *dict, parsed *p)
{
	int bad = 0;
	PyObject *v = item(dict, usmb_name.version, p, &bad);
	if (bad) return -1;
	if (!v) return malformed(PyExc_ValueError, "version", "is required and must be 1", NULL);
	PyObject *integer = integer_of(v, "version", "must be the integer 1");
	if (!integer) return -1;
	int overflow;
	long long n = PyLong_AsLongLongAndOverflow(integer, &overflow);
	Py_DECREF(integer);
	if (n == 1 && !overflow) return 0;
	if (overflow)
		usmb_raise(PyExc_ValueError, WHERE "'version' must be 1, found an "
		                                   "integer of more than 64 bits");
	else
		usmb_raise(PyExc_ValueError, WHERE "'version' must be 1, found %lld", n);
	return -1;
}

/* Reads an integer or any object with __index__ except text. */
static int parse_int(PyObject *o, const char *key, int64_t *out)
{
	if (!PyIndex_Check(o)) return malformed(PyExc_TypeError, key, "must hold integers", o);
	if (usmb_parse_dim(o, out, key) == 0) return 0;
	if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
	PyErr_Clear();
	usmb_raise(PyExc_ValueError, WHERE "'%s' must hold integers of 64 bits, found a larger one", key);
	return -1;
}

/* Reads a tuple of integers; returns its length, or -1. */
static int parse_ints(PyObject *o, const char *key, int64_t *out)
{
	int n;
	if (!PyTuple_Check(o)) /* lists were converted to tuples */
		return malformed(PyExc_TypeError, key, "must be a tuple or list of integers", o);
	Py_ssize_t size = PyTuple_Size(o);
	if (size > USMB_DL_MAX_NDIM) {
		usmb_raise(PyExc_ValueError, WHERE "'%s' has %lld entries, at most %d dimensions are possible", key,
		           (long long)size, USMB_DL_MAX_NDIM);
		return -1;
	}
	for (n = 0; n < (int)size; n++)
		if (parse_int(PyTuple_GetItem(o, n), key, &out[n]) < 0) return -1;
	return n;
}

static int parse_layout(PyObject *dict, parsed *p)
{
	int bad = 0;
	PyObject *shape = item(dict, usmb_name.shape, p, &bad);
	PyObject *strides = item(dict, usmb_name.strides, p, &bad);
	PyObject *offset = item(dict, usmb_name.offset, p, &bad);
	if (bad) return -1;
	if (!shape || shape == Py_None) return malformed(PyExc_ValueError, "shape", "is required", shape);
	p->in.ndim = parse_ints(shape, "shape", p->shape);
	if (p->in.ndim < 0) return -1;
	p->in.shape = p->shape;
	if (strides && strides != Py_None) {
		int n = parse_ints(strides, "strides", p->strides);
		if (n < 0) return -1;
		if (n != p->in.ndim) {
			usmb_raise(PyExc_ValueError,
			           WHERE
			           "'strides' has %d entries and 'shape' has %d; both describe the same dimensions",
			           n, p->in.ndim);
			return -1;
		}
		p->in.strides = p->strides;
	}
	return offset && offset != Py_None ? parse_int(offset, "offset", &p->in.offset) : 0;
}

static int parse_typestr(PyObject *dict, parsed *p)
{
	int bad = 0;
	Py_ssize_t n;
	PyObject *v = item(dict, usmb_name.typestr, p, &bad);
	if (bad) return -1;
	if (!v || v == Py_None) return malformed(PyExc_ValueError, "typestr", "is required", v);
	if (!PyUnicode_Check(v)) return malformed(PyExc_TypeError, "typestr", "must be a string such as \"<f4\"", v);
	p->in.typestr = (char *)PyUnicode_AsUTF8AndSize(v, &n);
	p->in.ntypestr = (uint64_t)n;
	return p->in.typestr ? 0 : -1;
}

/* Reads the first field of typedescr, which differs from typestr only for structured types. */
static int parse_typedescr(PyObject *dict, parsed *p)
{
	int bad = 0;
	Py_ssize_t n;
	PyObject *v = item(dict, usmb_name.typedescr, p, &bad);
	if (bad) return -1;
	if (!v || v == Py_None) return 0;
	if (!PyTuple_Check(v)) return malformed(PyExc_TypeError, "typedescr", "must be a list of tuples", v);
	n = PyTuple_Size(v);
	if (n == 0) return 0;
	PyObject *field = PyTuple_GetItem(v, 0);
	Py_ssize_t width = PyTuple_Check(field) ? PyTuple_Size(field) : 0;
	if (width < 2) return malformed(PyExc_TypeError, "typedescr", "must hold tuples (name, type)", field);
	PyObject *name = PyTuple_GetItem(field, 0), *type = PyTuple_GetItem(field, 1);
	if (!PyUnicode_Check(type)) {
		usmb_raise(PyExc_ValueError, WHERE "'typedescr' describes a structured type, which cannot be "
		                                   "exchanged; export each field as an array of its own");
		return -1;
	}
	int named = !PyUnicode_Check(name) || PyUnicode_GetLength(name) > 0;
	Py_ssize_t length;
	p->in.fieldtype = (char *)PyUnicode_AsUTF8AndSize(type, &length);
	if (!p->in.fieldtype) return -1;
	p->in.nfieldtype = (uint64_t)length;
	/* One field without a name and with the same type adds nothing. */
	if (n == 1 && width == 2 && !named && p->in.nfieldtype == p->in.ntypestr &&
	    !memcmp(p->in.fieldtype, p->in.typestr, p->in.ntypestr))
		return 0;
	p->in.nfields = (int32_t)(n > INT32_MAX ? INT32_MAX : n);
	p->in.named = named;
	p->in.shaped = width > 2;
	return 0;
}

/* If data is missing, the specification refers to the buffer protocol for memory that the host can
   access. */
static int parse_buffer(PyObject *obj, parsed *p)
{
	Py_buffer *view = calloc(1, sizeof *view);
	if (!view) {
		PyErr_NoMemory();
		return -1;
	}
	int r = PyObject_GetBuffer(obj, view, PyBUF_STRIDED);
	if (r < 0 && PyErr_ExceptionMatches(PyExc_BufferError)) {
		PyErr_Clear();
		r = PyObject_GetBuffer(obj, view, PyBUF_STRIDED_RO);
	}
	if (r < 0) {
		free(view);
		if (usmb_ignore_exception() < 0) return -1;
		return malformed(PyExc_ValueError, "data", "is required where the object has no buffer protocol", NULL);
	}
	p->view = view;
	p->in.data = (uint64_t)(uintptr_t)view->buf;
	p->in.readonly = view->readonly;
	if (PyBuffer_IsContiguous(view, 'C')) {
		p->in.owner = p->in.data;
		p->in.owner_size = (uint64_t)view->len;
	}
	return 0;
}

static int parse_data(PyObject *obj, PyObject *dict, int kind, parsed *p)
{
	int bad = 0;
	PyObject *v = item(dict, usmb_name.data, p, &bad);
	if (bad) return -1;
	if (!v || v == Py_None) return parse_buffer(obj, p);
	if (!PyTuple_Check(v)) return malformed(PyExc_TypeError, "data", "must be a tuple (pointer, read-only)", v);
	if (PyTuple_Size(v) != 2)
		return malformed(PyExc_ValueError, "data", "must have two items (pointer, read-only)", v);
	PyObject *address = PyTuple_GetItem(v, 0), *flag = PyTuple_GetItem(v, 1);
	PyObject *integer = integer_of(address, "data", "must begin with an integer address");
	if (!integer) return -1;
	p->in.data = PyLong_AsUnsignedLongLong(integer);
	Py_DECREF(integer);
	if (p->in.data == UINT64_MAX && PyErr_Occurred()) {
		PyErr_Clear();
		usmb_raise(PyExc_OverflowError, WHERE "'data' holds a pointer outside 0..2^64-1");
		return -1;
	}
	int truth = flag == Py_True ? 1 : flag == Py_False ? 0 : PyObject_IsTrue(flag);
	if (truth < 0) return -1;
	/* In dpctl's memory objects and oneDAL's tables, True means writable. */
	int inverted = kind == USMB_KIND_DPCTL_MEMORY || kind == USMB_KIND_ONEDAL;
	p->in.readonly = inverted ? !truth : truth;
	return 0;
}

/* The extent of the owner's allocation, if the owner reports it. An unexpected answer leaves it
   unknown. -1 with an exception that must end the call. */
static int owner_extent(PyObject *obj, int kind, parsed *p)
{
	PyObject *memory = NULL, *tensor = NULL, *address = NULL, *size = NULL;
	if (kind == USMB_KIND_DPCTL_MEMORY) {
		memory = Py_NewRef(obj);
	} else if (kind == USMB_KIND_TENSOR) {
		memory = PyObject_GetAttr(obj, usmb_name.usm_data);
	} else if (kind == USMB_KIND_DPNP_ARRAY) {
		tensor = PyObject_CallMethodObjArgs(obj, usmb_name.get_array, NULL);
		memory = tensor ? PyObject_GetAttr(tensor, usmb_name.usm_data) : NULL;
	} else {
		return 0;
	}
	if (memory) address = PyObject_GetAttr(memory, usmb_name._pointer);
	if (address) size = PyObject_GetAttr(memory, usmb_name.nbytes);
	if (size && PyLong_Check(address) && PyLong_Check(size)) {
		p->in.owner = PyLong_AsUnsignedLongLong(address);
		p->in.owner_size = PyLong_AsUnsignedLongLong(size);
		if (PyErr_Occurred()) p->in.owner_size = UINT64_MAX;
	}
	int r = usmb_ignore_exception();
	Py_XDECREF(tensor);
	Py_XDECREF(memory);
	Py_XDECREF(address);
	Py_XDECREF(size);
	return r;
}

static int parse_syclobj(PyObject *dict, parsed *p)
{
	int bad = 0;
	PyObject *v = item(dict, usmb_name.syclobj, p, &bad);
	if (bad) return -1;
	if (!v || v == Py_None) return malformed(PyExc_ValueError, "syclobj", "is required", v);
	if (usmb_syclref_get(v, &p->ref, WHERE "'syclobj'") < 0) return -1;
	return 0;
}

/* Releases the objects that p owns. The code of those objects must not see or clear the exception that is set. */
static void free_parsed(parsed *p)
{
	PyObject *type = NULL, *value, *trace;
	int passing = PyErr_Occurred() != NULL;
	if (__builtin_expect(passing, 0)) PyErr_Fetch(&type, &value, &trace);
	if (p->view) {
		PyBuffer_Release(p->view);
		free(p->view);
	}
	usmb_syclref_release(&p->ref, 0);
	while (p->nheld > 0) Py_DECREF(p->held[--p->nheld]);
	if (__builtin_expect(passing, 0)) PyErr_Restore(type, value, trace);
}

/* The element type of a type string with this machine's byte order; 0 if there is none. */
static int plain_type(const char *s, uint64_t n, usmb_dl_dtype *out)
{
	return n > 0 && (s[0] == '<' || s[0] == '=' || s[0] == '|') &&
	       usmb_dl_dtype_by_typestr(s, (size_t)n, out) == USMB_DL_OK;
}

/* Accepts ordinary dictionaries by dlpack's layout rules, which are at least as strict. All others
   (negative offsets, odd alignment) go to the full rules. */
static int plainly_right(const parsed *p, usmb_suai_out *out)
{
	const usmb_suai_in *in = &p->in;
	usmb_dl_span span;
	if (in->nfields != 0 || in->data == 0 || in->offset < 0) return 0;
	if (!plain_type(in->typestr, in->ntypestr, &out->dtype)) return 0;
	int64_t bytes;
	if (__builtin_mul_overflow(in->offset, (int64_t)(out->dtype.bits / 8), &bytes)) return 0;
	usmb_dl_tensor t = {(void *)(uintptr_t)in->data,
	                    {USMB_DL_CPU, 0},
	                    in->ndim,
	                    out->dtype,
	                    in->shape,
	                    in->strides,
	                    (uint64_t)bytes};
	if (usmb_dl_check(&t, 0, NULL, &span) != USMB_DL_OK || span.nelem == 0) return 0;
	out->first = (uint64_t)(uintptr_t)span.first;
	out->lo = out->first + (uint64_t)span.lo;
	out->hi = out->first + (uint64_t)span.hi;
	uint64_t end;
	if (in->owner_size == UINT64_MAX) return 1;
	return !__builtin_add_overflow(in->owner, in->owner_size, &end) && out->lo >= in->owner && out->hi <= end;
}

/* Arrays without elements access no memory, but DLPack, the buffer protocol and our strides still
   compute with their extents in bits and bytes. */
static int countable(const parsed *p, const usmb_suai_out *out)
{
	int64_t n = out->dtype.bits;
	for (int32_t i = 0; i < p->in.ndim; i++)
		if (p->shape[i] > 0 && __builtin_mul_overflow(n, p->shape[i], &n)) {
			usmb_raise(PyExc_ValueError, WHERE "'shape' has extents whose product cannot be counted");
			return 0;
		}
	return 1;
}

/* The memory to which the elements belong: that of the owner, if it reports it, so that all its views have one record. */
static void extent(const parsed *p, const usmb_suai_out *out, uint64_t *lo, uint64_t *hi)
{
	int whole = p->in.owner_size != UINT64_MAX && !p->view && out->lo < out->hi;
	*lo = whole ? p->in.owner : out->lo;
	*hi = whole ? p->in.owner + p->in.owner_size : out->hi;
}

/* Checks the extent with the SYCL runtime before accessing it: the first byte in the given context, the last
   byte, then the device. */
static int find_place(parsed *p, usmb_suai_out *out, usmb_place **place)
{
	uint64_t from, to;
	extent(p, out, &from, &to);
	void *lo = (void *)(uintptr_t)from, *hi = (void *)(uintptr_t)to;
	void *context = usmb_syclref_context(&p->ref), *queue = NULL;
	if (usmb_syclref_queue(&p->ref, WHERE "'syclobj'", &queue) < 0) return -1;
	if (!context && !queue) {
		usmb_raise(PyExc_ValueError,
		           WHERE "'syclobj' names the host backend, which has no unified shared memory");
		return -1;
	}
	int (*ask)(void *, void *, const void *, const void *, usmb_place **) =
	        context ? usmb_sycl_place_in : usmb_sycl_place_for;
	int code = ask(context, queue, lo, hi, place);
	if (code == USMB_SYCL_ENOLIB && usmb_open_sycl() == 0) code = ask(context, queue, lo, hi, place);
	if (code == USMB_SYCL_OK) return 0;
	if (PyErr_Occurred()) return -1;
	const char *why = usmb_sycl_strerror(code);
	if (usmb_runtime_failed(code))
		usmb_raise(PyExc_RuntimeError, WHERE "asking for the place of 'data' %p to %p: %s", lo, hi, why);
	else
		usmb_raise(PyExc_ValueError, WHERE "'data' %p to %p does not agree with 'syclobj': %s", lo, hi, why);
	return -1;
}

/* Finds a live cell of the same owner that covers the span, retained. The runtime's answers stay
   valid while an Array holds the owner. Only the context, and the device of host USM, are checked again. An object can show
   other memory inside what an earlier dictionary of it claimed. */
static usmb_cell *known_cell(PyObject *obj, parsed *p, usmb_suai_out *out)
{
	if (p->view || out->lo == out->hi) return NULL;
	const char *lo = (const char *)(uintptr_t)out->lo, *hi = (const char *)(uintptr_t)out->hi;
	usmb_cell *cell = usmb_cell_known(obj, lo, hi);
	if (!cell) return NULL;
	int same = lo == cell->data && (uint64_t)(hi - lo) == cell->size;
	if ((same || !usmb_cell_is_claimed(cell)) && !usmb_cell_narrows(cell, p->in.readonly) &&
	    usmb_syclref_of_place(&p->ref, cell->place))
		return cell;
	usmb_cell_drop_gil(cell);
	return NULL;
}

/* An array on the memory of a cell, which takes over a reference of it: it shows the reference to the collector. */
static PyObject *holder_of(usmb_cell *cell)
{
	int64_t extent = (int64_t)cell->size, step = 1;
	usmb_array *a = usmb_array_laid_out(1, &extent, &step);
	if (!a) {
		usmb_cell_drop_gil(cell);
		return NULL;
	}
	usmb_array_settle(a, cell, cell->data, (usmb_dl_dtype){USMB_DL_UINT, 8, 1}, 0);
	return (PyObject *)a;
}

/* What keeps the memory of an import: the object, its dictionary, because a property can make that and with it the memory,
   and a holder of other memory, or NULL. Takes over the holder. */
static PyObject *owner_of(PyObject *obj, PyObject *dict, PyObject *holder)
{
	if (!dict && !holder) return Py_NewRef(obj);
	PyObject *owner = PyTuple_Pack(3, obj, dict ? dict : Py_None, holder ? holder : Py_None);
	Py_XDECREF(holder);
	return owner;
}

/* Makes a cell for a dictionary that passed the checks; takes over place, and record: the cell of the same memory whose
   record the new cell shares, or NULL. */
static usmb_cell *new_cell(PyObject *obj, parsed *p, usmb_suai_out *out, usmb_place *place, usmb_cell *record)
{
	usmb_cell *cell = NULL;
	uint64_t lo, hi;
	extent(p, out, &lo, &hi);
	char *base = (char *)(uintptr_t)lo;
	uint64_t bytes = hi - lo;
	if (p->view) {
		cell = usmb_cell_of_buffer(p->view, base, bytes);
		if (cell) {
			cell->place = place;
			p->view = NULL;
			if (!place->host_readable)
				atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_HOST_READABLE,
				                          memory_order_relaxed);
		}
		if (cell && record && usmb_cell_record(cell) == cell)
			usmb_cell_set_record(cell, record);
		else if (record)
			usmb_cell_drop_gil(record);
	} else {
		PyObject *holder = record ? holder_of(record) : NULL;
		PyObject *owner = record && !holder ? NULL : owner_of(obj, p->dict, holder);
		cell = owner ? usmb_cell_of_object(owner, base, bytes, place) : NULL;
		if (cell) {
			if (record) usmb_cell_alias(cell, record);
			usmb_cell_remember(obj, cell);
		} else {
			Py_XDECREF(owner);
		}
	}
	if (cell && p->in.owner_size == UINT64_MAX) cell->block |= USMB_BLOCK_CLAIMED;
	if (!cell)
		usmb_place_release(place);
	else if (p->in.readonly)
		atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	if (cell && p->ours)
		atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_IMPORTED, memory_order_relaxed);
	return cell;
}

/* Finds or makes the cell for a dictionary that passed the checks; takes over place. */
static usmb_cell *cell_at(PyObject *obj, parsed *p, usmb_suai_out *out, usmb_place *place)
{
	const char *lo = (const char *)(uintptr_t)out->lo, *hi = (const char *)(uintptr_t)out->hi;
	usmb_cell *cell = usmb_cell_find(lo, hi, place), *record = NULL;
	if (cell && (p->view || !usmb_cell_serves(cell, p->in.readonly))) {
		record = cell;
		cell = NULL;
	}
	if (!cell) {
		cell = new_cell(obj, p, out, place, record);
		if (!cell || usmb_cell_enter(cell) == 0) return cell;
		usmb_cell_drop_gil(cell);
		return NULL;
	}
	usmb_place_release(place);
	usmb_cell_remember(obj, cell);
	return cell;
}

/* Makes the array for a dictionary that passed the checks; takes over the cell. */
static PyObject *build(parsed *p, usmb_suai_out *out, usmb_cell *cell)
{
	if (!p->in.strides) usmb_fill_strides(p->in.ndim, p->shape, p->strides, 0);
	usmb_array *a = usmb_array_laid_out(p->in.ndim, p->shape, p->strides);
	if (!a) {
		usmb_cell_drop_gil(cell);
		return NULL;
	}
	usmb_array_settle(a, cell, (char *)(uintptr_t)out->first, out->dtype, p->in.readonly ? USMB_ARR_READONLY : 0);
	if (p->ours) usmb_cell_use(usmb_cell_record(cell), usmb_dpnp_number(p->ref.keep));
	if (usmb_queue_of(&p->ref, cell->place, &a->queue) == 0 && (p->ours || usmb_array_imported_on_queue(a) == 0))
		return usmb_array_counted(a);
	Py_DECREF(a);
	return NULL;
}

/* Imports a dictionary that passed the rules, if it passes the checks of the runtime. */
static PyObject *import_checked(PyObject *obj, parsed *p, usmb_suai_out *out)
{
	usmb_place *place;
	usmb_cell *cell = known_cell(obj, p, out);
	if (!cell) cell = find_place(p, out, &place) == 0 ? cell_at(obj, p, out, place) : NULL;
	PyObject *r = cell ? build(p, out, cell) : NULL;
	if (r) usmb_syclref_release(&p->ref, 1);
	return r;
}

/* Checks the values by the rules and the runtime, and imports. */
static PyObject *import_parsed(PyObject *obj, parsed *p)
{
	usmb_suai_out out;
	usmb_goerr err;
	/* An array without elements uses no address: views of dpnp can have one outside their memory. */
	int empty = 0;
	for (int32_t i = 0; i < p->in.ndim; i++) empty |= p->shape[i] == 0;
	if (empty && p->in.data && p->in.owner_size != UINT64_MAX) {
		p->in.data = p->in.owner;
		p->in.offset = 0;
	}
	if (!plainly_right(p, &out) && (usmb_go_allowed() < 0 || usmb_go_suai(&p->in, &out, &err) < 0)) {
		if (!PyErr_Occurred()) usmb_raise_go(&err);
		return NULL;
	}
	return countable(p, &out) ? import_checked(obj, p, &out) : NULL;
}

/* Does not clear the extents, which are written when they are read. */
static void begin(parsed *p)
{
	memset(&p->in, 0, sizeof p->in);
	memset(&p->ref, 0, sizeof p->ref);
	p->view = NULL;
	p->dict = NULL;
	p->ours = 0;
	p->nheld = 0;
	p->in.owner_size = UINT64_MAX;
}

static PyObject *import_dict(PyObject *obj, PyObject *iface, int ours)
{
	parsed p;
	char type[64];
	PyObject *r = NULL;
	if (usmb_go_allowed() < 0) return NULL;
	begin(&p);
	p.ours = ours;
	if (!PyDict_CheckExact(iface))
		return usmb_raise(PyExc_TypeError, WHERE "must be a dict (exactly), found a %s",
		                  usmb_type_name(iface, type, sizeof type));
	const usmb_typeinfo *info = usmb_typeinfo_of(obj);
	if (!info) return NULL;
	int kind = info->kind;
	if (kind == USMB_KIND_PLAIN) p.dict = iface;
	if (parse_version(iface, &p) < 0 || parse_data(obj, iface, kind, &p) < 0 || parse_layout(iface, &p) < 0 ||
	    parse_typestr(iface, &p) < 0 || parse_typedescr(iface, &p) < 0 || parse_syclobj(iface, &p) < 0)
		goto done;
	if (owner_extent(obj, kind, &p) == 0) r = import_parsed(obj, &p);
done:
	free_parsed(&p);
	return r;
}

PyObject *usmb_import_suai(PyObject *obj, PyObject *iface)
{
	return import_dict(obj, iface, 0);
}

PyObject *usmb_import_memory(PyObject *obj)
{
	parsed p;
	uint64_t address, bytes, end;
	PyObject *r = NULL;
	if (!usmb_dpctl_memory(obj, &address, &bytes) || bytes > INT64_MAX / 8) return NULL;
	begin(&p);
	p.in.data = p.in.owner = address;
	p.in.owner_size = bytes;
	p.in.ndim = 1;
	p.in.shape = p.shape;
	p.shape[0] = (int64_t)bytes;
	p.in.typestr = "|u1";
	p.in.ntypestr = 3;
	PyObject *queue = PyObject_GetAttr(obj, usmb_name.sycl_queue);
	if (queue && usmb_syclref_get(queue, &p.ref, WHERE "'syclobj'") == 0) {
		/* Contiguous bytes pass the rules; the checks below refuse invalid memory. */
		if (address && bytes && !__builtin_add_overflow(address, bytes, &end)) {
			usmb_suai_out out = {.first = address, .lo = address, .hi = end, .dtype = {USMB_DL_UINT, 8, 1}};
			r = import_checked(obj, &p, &out);
		} else {
			r = import_parsed(obj, &p);
		}
	}
	Py_XDECREF(queue);
	free_parsed(&p);
	return r;
}

/* A view of an Array that has a dictionary. The dictionary is not read: the view has its own
   reference of the memory. */
static PyObject *view_of_own(usmb_array *a)
{
	if (!usmb_array_alive(a) || suai_check(a) < 0) return NULL;
	return usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
}

PyObject *usmb_from_suai(PyObject *module, PyObject *obj)
{
	char type[64];
	(void)module;
	usmb_owner_drain();
	if (usmb_object_allowed(obj) < 0) return NULL;
	PyObject *known = usmb_import_memory(obj);
	if (known || PyErr_Occurred()) return known;
	if (usmb_is_array(obj)) return view_of_own((usmb_array *)obj);
	PyObject *iface = PyObject_GetAttr(obj, usmb_name.__sycl_usm_array_interface__);
	if (!iface) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
		PyErr_Clear();
		return usmb_raise(PyExc_TypeError, "from_usm_array_interface: %s has no __sycl_usm_array_interface__",
		                  usmb_type_name(obj, type, sizeof type));
	}
	PyObject *r = usmb_import_suai(obj, iface);
	Py_DECREF(iface);
	return r;
}

/* Imports a result of dpnp by a dictionary of the caller, whose syclobj is a dpctl.SyclQueue. */
PyObject *usmb_py_described(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
	(void)module;
	usmb_owner_drain();
	if (n != 2) return usmb_raise(PyExc_TypeError, "_described takes an object and a dictionary");
	return import_dict(args[0], args[1], 1);
}
