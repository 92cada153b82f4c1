/* asarray.c: arrays from any object: by the protocols that it has, else as a number or a nested
   sequence. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "storage.h"
#include "support.h"

/* ==== Importers ============================================================================== */

/* The ways to import an object's memory, in the order in which they are tried. */
enum {
	IMPORT_ARRAY,
	IMPORT_DPCTL_MEMORY,
	IMPORT_SUAI,
	IMPORT_DLPACK,
	IMPORT_BUFFER,
	IMPORT_CUDA_INTERFACE,
	IMPORT_ML_DTYPES,
	IMPORT_ARROW_STREAM,
	IMPORT_ARRAY_INTERFACE,
	IMPORT_ARRAY_VIEW,
	IMPORT_ARROW,
	IMPORT_ARROW_LATER,
	IMPORT_COPIED,
	N_IMPORTERS
};
#define BIT(importer) (1u << (importer))

/* Errors that let another importer try. */
enum { BUFFER_ERROR = 1, TYPE_ERROR = 2, VALUE_ERROR = 4, NOT_IMPLEMENTED = 8, OTHER_ERROR = 16, ANY_ERROR = 31 };

/* The import of one object. */
typedef struct {
	PyObject *o;
	int may_copy;                   /* elements that cannot be shared may be copied */
	int numpy;                      /* usmb_numpy_protocol(o); UNKNOWN: not computed yet */
	int missing;                    /* an importer found nulls that it refuses, which other importers could lose */
	const usmb_dl_dtype *want;      /* the element type that the caller converts to, or NULL */
	unsigned failed;                /* BIT of each importer that failed */
	unsigned errors;                /* the class of the error below, as a flag */
	PyObject *type, *value, *trace; /* the error to raise if no other importer succeeds */
} attempt;
enum { UNKNOWN = -2 };

static PyObject *take(PyObject *o, int may_copy, const usmb_dl_dtype *want);

/* Numbers without a buffer count too: scalars of ml_dtypes have none. */
static int is_number(PyObject *o)
{
	return PyNumber_Check(o) && !PySequence_Check(o);
}

static int if_array(attempt *t)
{
	return usmb_is_array(t->o);
}

static int if_dlpack(attempt *t)
{
	if (PyCapsule_CheckExact(t->o)) return 1;
	PyObject *method = usmb_optional_attr(t->o, usmb_name.__dlpack__);
	Py_XDECREF(method);
	return method ? 1 : PyErr_Occurred() ? -1 : 0;
}

static int if_buffer(attempt *t)
{
	return PyObject_CheckBuffer(t->o) && (t->failed || !is_number(t->o));
}

static int if_cuda_interface(attempt *t)
{
	return !PyList_Check(t->o) && !PyTuple_Check(t->o);
}

static int if_failed(attempt *t)
{
	return t->failed != 0;
}

static int numpy_protocol(attempt *t)
{
	if (t->numpy == UNKNOWN) t->numpy = is_number(t->o) ? USMB_NUMPY_NONE : usmb_numpy_protocol(t->o);
	return t->numpy;
}

static int if_array_interface(attempt *t)
{
	int has = numpy_protocol(t);
	return has < 0 ? has : has == USMB_NUMPY_SHARES;
}

static int if_array_method(attempt *t)
{
	return numpy_protocol(t) == USMB_NUMPY_MAY_COPY;
}

static int if_arrow(attempt *t)
{
	return t->failed & BIT(IMPORT_DLPACK) || !(is_number(t->o) || PyList_Check(t->o) || PyTuple_Check(t->o));
}

/* Objects with isna, as pandas' columns, have their own meaning of missing values: their streams call NaN null, too. */
static int if_arrow_stream(attempt *t)
{
	PyObject *const stream[1] = {usmb_name.__arrow_c_stream__}, *const isna[1] = {usmb_name.isna};
	int has = usmb_type_has(t->o, stream, 1);
	return has > 0 ? !usmb_type_has(t->o, isna, 1) : has;
}

/* An exception of another class is the producer's own refusal, except where __array__ was asked for a view. */
static int if_copied(attempt *t)
{
	return t->failed & BIT(IMPORT_ARRAY_VIEW) || (t->failed && t->errors != OTHER_ERROR);
}

#define IMPORT_BY(name, call) \
	static PyObject *import_##name(attempt *t) \
	{ \
		return call; \
	}
IMPORT_BY(dpctl_memory, usmb_import_memory(t->o))
IMPORT_BY(buffer, usmb_import_buffer(t->o))
IMPORT_BY(cuda_interface, usmb_import_cuda_interface(t->o))
IMPORT_BY(ml_dtypes, usmb_import_ml(t->o))
IMPORT_BY(arrow, usmb_import_arrow(t->o, t->may_copy, t->want, &t->missing))

/* pyarrow's extension arrays, which have a storage, are read by Arrow: their DLPack (pyarrow 26) has wrong strides for
   permuted tensors, and ignores nulls of tensors. It remains for extension types that Arrow's reader does not have. All
   arrays of pyarrow are read-only, and those that are no extension arrays have one axis. */
static PyObject *import_dlpack(attempt *t)
{
	PyObject *const storage[1] = {usmb_name.storage}, *const arrow[1] = {usmb_name.__arrow_c_array__};
	PyObject *a = usmb_import_object(t->o);
	if (!a || !(((usmb_array *)a)->flags & USMB_ARR_READONLY) || ((usmb_array *)a)->ndim < 2) return a;
	int extension = usmb_type_has(t->o, arrow, 1);
	if (extension > 0) extension = usmb_type_has(t->o, storage, 1);
	if (extension == 0) return a;
	PyObject *r = extension < 0 ? NULL : usmb_import_arrow(t->o, t->may_copy, t->want, &t->missing);
	if (extension > 0 && !r && !t->missing && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		return a;
	}
	Py_DECREF(a);
	return r;
}

/* The types that Arrow's reader does not have are left to NumPy's protocols. */
static PyObject *import_arrow_stream(attempt *t)
{
	int other = numpy_protocol(t);
	PyObject *a = other < 0 ? NULL : usmb_import_arrow_stream(t->o, t->may_copy, t->want, &t->missing);
	if (!a && other > USMB_NUMPY_NONE && !t->missing && PyErr_ExceptionMatches(PyExc_Exception) &&
	    !PyErr_ExceptionMatches(PyExc_MemoryError))
		PyErr_Clear();
	return a;
}

static PyObject *import_array(attempt *t)
{
	return usmb_array_alive((usmb_array *)t->o) ? Py_NewRef(t->o) : NULL;
}

static PyObject *import_suai(attempt *t)
{
	PyObject *dict = usmb_optional_attr(t->o, usmb_name.__sycl_usm_array_interface__);
	PyObject *a = dict ? usmb_import_suai(t->o, dict) : NULL;
	Py_XDECREF(dict);
	return a;
}

/* The array of the ndarray that a function of _numpy makes of the object. NULL without an exception if the
   function does not apply. */
static PyObject *import_ndarray(attempt *t, PyObject **f, const char *function, int may_copy)
{
	PyObject *n = usmb_numpy_made(f, function, t->o, t->may_copy, t->want);
	PyObject *a = n && n != Py_None ? take(n, may_copy, NULL) : NULL;
	Py_XDECREF(n);
	return a;
}

#define IMPORT_NDARRAY(name, may_copy) \
	static PyObject *import_##name(attempt *t) \
	{ \
		static PyObject *f; \
		return import_ndarray(t, &f, #name, may_copy); \
	}
IMPORT_NDARRAY(described, t->may_copy)
IMPORT_NDARRAY(view, 0)
IMPORT_NDARRAY(copied, 0)

/* An importer is tried if none has failed, or if one of `after` failed with one of `errors`. It
   returns NULL without an exception if it does not apply. Its own error replaces the earlier
   one, unless one of `quiet_after` failed before. */
static const struct importer {
	int (*applies)(attempt *t); /* 1 or 0, -1 with an exception; NULL: always 1 */
	PyObject *(*import)(attempt *t);
	unsigned after, errors, quiet_after;
} importers[N_IMPORTERS] = {
        [IMPORT_ARRAY] = {if_array, import_array, 0, 0, 0},
        [IMPORT_DPCTL_MEMORY] = {NULL, import_dpctl_memory, 0, 0, 0},
        [IMPORT_SUAI] = {NULL, import_suai, 0, 0, 0},
        [IMPORT_DLPACK] = {if_dlpack, import_dlpack, 0, 0, 0},
        /* After DLPack: NumPy before 2.1 cannot export read-only arrays by it. */
        [IMPORT_BUFFER] = {if_buffer, import_buffer, BIT(IMPORT_DLPACK), BUFFER_ERROR, BIT(IMPORT_DLPACK)},
        [IMPORT_CUDA_INTERFACE] = {if_cuda_interface, import_cuda_interface, 0, 0, 0},
        /* ndarrays of ml_dtypes element types, which no protocol of NumPy can describe. */
        [IMPORT_ML_DTYPES] = {if_failed, import_ml_dtypes, BIT(IMPORT_DLPACK) | BIT(IMPORT_BUFFER),
	                      BUFFER_ERROR | VALUE_ERROR, 0},
        /* Streams before NumPy's protocols, which convert integers beside nulls to float64. */
        [IMPORT_ARROW_STREAM] = {if_arrow_stream, import_arrow_stream, 0, 0, 0},
        /* NumPy's protocols before Arrow: they have the shape of the elements. Arrow has a column of
           them, which Pillow's images pad to four bytes for each pixel. */
        [IMPORT_ARRAY_INTERFACE] = {if_array_interface, import_described, 0, 0, 0},
        /* __array__ may copy, so it is asked for a view, then Arrow is, and only then for a copy. */
        [IMPORT_ARRAY_VIEW] = {if_array_method, import_view, BIT(IMPORT_CUDA_INTERFACE), BUFFER_ERROR,
	                       BIT(IMPORT_CUDA_INTERFACE)},
        /* After DLPack: pyarrow has __dlpack__ for each of its arrays, but it fails for tensors,
           slices with nulls before them, and booleans. */
        [IMPORT_ARROW] = {if_arrow, import_arrow, BIT(IMPORT_DLPACK), ANY_ERROR & ~OTHER_ERROR, 0},
        [IMPORT_ARROW_LATER] = {if_arrow, import_arrow, BIT(IMPORT_ARRAY_VIEW), ANY_ERROR, BIT(IMPORT_ARRAY_VIEW)},
        /* A copy of what NumPy reads and no importer shares: unaligned elements, odd strides, another byte
           order, and the elements of an __array__ that cannot give a view. */
        [IMPORT_COPIED] = {if_copied, import_copied, ~0u, ANY_ERROR, 0},
};

static void forget_error(attempt *t)
{
	Py_CLEAR(t->type);
	Py_CLEAR(t->value);
	Py_CLEAR(t->trace);
}

/* Stores and clears the exception that importer i raised. */
static void keep_error(attempt *t, int i)
{
	if (t->failed & importers[i].quiet_after) {
		PyErr_Clear();
	} else {
		forget_error(t);
		t->errors = PyErr_ExceptionMatches(PyExc_BufferError)           ? BUFFER_ERROR
		            : PyErr_ExceptionMatches(PyExc_TypeError)           ? TYPE_ERROR
		            : PyErr_ExceptionMatches(PyExc_ValueError)          ? VALUE_ERROR
		            : PyErr_ExceptionMatches(PyExc_NotImplementedError) ? NOT_IMPLEMENTED
		                                                                : OTHER_ERROR;
		PyErr_Fetch(&t->type, &t->value, &t->trace);
	}
	t->failed |= BIT(i);
}

/* Whether o is one of Python's own numbers. No importer applies to them; subclasses can have any
   attribute. */
static int is_plain_number(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	return type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type || type == &PyComplex_Type;
}

/* Returns the array of o by the first importer that succeeds; NULL without an exception if none
   applies. MemoryError, and an exception that is not an Exception, such as KeyboardInterrupt, end the attempt. */
static PyObject *take(PyObject *o, int may_copy, const usmb_dl_dtype *want)
{
	if (is_plain_number(o)) return NULL; /* saves the failing look-ups of attributes */
	if (!usmb_is_array(o) && usmb_object_allowed(o) < 0) return NULL;
	attempt t = {.o = o, .may_copy = may_copy, .numpy = UNKNOWN, .want = want};
	for (int i = 0; i < N_IMPORTERS; i++) {
		const struct importer *m = &importers[i];
		if (t.failed && !(t.failed & m->after && t.errors & m->errors)) continue;
		int applies = m->applies ? m->applies(&t) : 1;
		if (applies == 0) continue;
		PyObject *a = applies > 0 ? m->import(&t) : NULL;
		if (!a && !PyErr_Occurred()) continue;
		if (a || applies < 0 || t.missing || !PyErr_ExceptionMatches(PyExc_Exception) ||
		    PyErr_ExceptionMatches(PyExc_MemoryError)) {
			if (t.failed) forget_error(&t);
			return a;
		}
		keep_error(&t, i);
	}
	if (t.failed) PyErr_Restore(t.type, t.value, t.trace);
	return NULL;
}

enum { MOST_VIEWS = 32 };

/* The object that owns the memory of o, a view of NumPy or a memoryview, or a view of these; else o. A new reference: base
   of a subclass can be a property. */
static PyObject *behind(PyObject *o)
{
	Py_INCREF(o);
	PyObject *ndarray = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"); /* borrowed */
	ndarray = usmb_given(ndarray) ? usmb_optional_attr(ndarray, usmb_name.ndarray) : NULL;
	if (ndarray && !PyType_Check(ndarray)) Py_CLEAR(ndarray);
	for (int i = 0; i < MOST_VIEWS; i++) {
		const char *name = PyMemoryView_Check(o) ? "obj" : NULL;
		if (!name && ndarray && usmb_py_type_check(o, (PyTypeObject *)ndarray)) name = "base";
		PyObject *of = name ? PyObject_GetAttrString(o, name) : NULL;
		if (!of || of == Py_None) {
			Py_XDECREF(of);
			break;
		}
		Py_DECREF(o);
		o = of;
	}
	PyErr_Clear();
	Py_XDECREF(ndarray);
	return o;
}

/* An array like a, on its elements, with a's flags, by the reference that of has of the memory; NULL without an exception if
   the elements are not in it. Without the views between them, of which the collector does not see all, a cycle of
   references through of can be collected. */
static PyObject *beside(usmb_array *of, usmb_array *a)
{
	int64_t lo, hi;
	usmb_array_range(a, &lo, &hi);
	if (of->cell->size == UINT64_MAX || !usmb_cell_covers(of->cell, a->first + lo, a->first + hi)) return NULL;
	return usmb_array_view_as(of, a->dtype, a->flags, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
}

/* Imports o as take does. An address in USM of ours is USM of ours: an array of plain memory that was just made of
   another object gets the place of the memory, or is a view of an Array behind o, with its queue. Memory that its consumer
   asked for as memory of the host stays plain: a tensor of DLPack, an Array of plain memory. */
static PyObject *take_in_usm(PyObject *o, int may_copy, const usmb_dl_dtype *want)
{
	usmb_array *a = (usmb_array *)take(o, may_copy, want);
	usmb_cell *record = a ? usmb_cell_record(a->cell) : NULL;
	if (!a || a->cell->place || usmb_is_array(o) || usmb_py_in_child() || (record == a->cell && a->nelem > 0))
		return (PyObject *)a;
	PyObject *of = behind(o), *r = (PyObject *)a, *view = NULL;
	usmb_array *array = usmb_is_array(of) ? (usmb_array *)of : NULL;
	if (array ? array->cell->place && !(array->flags & USMB_ARR_RELEASED) : !PyCapsule_CheckExact(of)) {
		/* No elements, no address: only the Array says where they are. */
		if (array && (a->nelem == 0 || usmb_cell_record(array->cell) == record)) view = beside(array, a);
		if (view || PyErr_Occurred()) {
			Py_DECREF(a);
			r = view;
		} else if (record != a->cell) {
			usmb_place_retain(record->place);
			a->cell->place = record->place;
		}
	}
	Py_DECREF(of);
	return r;
}

/* ==== Promotion =============================================================================== */

/* promote() returns the element type that holds two others, by the rules of NumPy's promote_types.
   Types that NumPy lacks promote to those that it has, or not at all. */

static int is_int(usmb_dl_dtype t)
{
	return t.code == USMB_DL_INT || t.code == USMB_DL_UINT;
}

static usmb_dl_dtype type(uint8_t code, int bits)
{
	return (usmb_dl_dtype){code, (uint8_t)bits, 1};
}

static int max(int a, int b)
{
	return a > b ? a : b;
}

static usmb_dl_dtype both_int(usmb_dl_dtype a, usmb_dl_dtype b)
{
	if (a.code == b.code) return a.bits > b.bits ? a : b;
	int u = a.code == USMB_DL_UINT ? a.bits : b.bits, s = a.code == USMB_DL_UINT ? b.bits : a.bits;
	if (u == 64) return type(USMB_DL_FLOAT, 64);
	return type(USMB_DL_INT, max(s, 2 * u));
}

/* The IEEE type that holds the values of t, a real type. */
static usmb_dl_dtype ieee(usmb_dl_dtype t)
{
	if (is_int(t)) return type(USMB_DL_FLOAT, t.bits <= 8 ? 16 : t.bits <= 16 ? 32 : 64);
	if (t.code == USMB_DL_FLOAT) return t;
	if (t.code == USMB_DL_BFLOAT) return type(USMB_DL_FLOAT, 32);
	return type(USMB_DL_FLOAT, 16); /* bool; narrow types are checked by the caller */
}

static int is_narrow(usmb_dl_dtype t)
{
	return !is_int(t) && t.code != USMB_DL_BOOL && t.code != USMB_DL_FLOAT && t.code != USMB_DL_COMPLEX;
}

static int promote(usmb_dl_dtype a, usmb_dl_dtype b, usmb_dl_dtype *out)
{
	int complex = a.code == USMB_DL_COMPLEX || b.code == USMB_DL_COMPLEX;
	if (a.code == b.code && a.bits == b.bits)
		*out = a;
	else if (a.code == USMB_DL_BOOL)
		*out = b;
	else if (b.code == USMB_DL_BOOL)
		*out = a;
	else if (is_int(a) && is_int(b))
		*out = both_int(a, b);
	else {
		usmb_dl_dtype x = a.code == USMB_DL_COMPLEX ? type(USMB_DL_FLOAT, a.bits / 2) : a;
		usmb_dl_dtype y = b.code == USMB_DL_COMPLEX ? type(USMB_DL_FLOAT, b.bits / 2) : b;
		/* float32 and float64 hold the narrow types; float16 does not hold bfloat16. */
		int wide = max(ieee(x).bits, ieee(y).bits);
		if ((is_narrow(x) || is_narrow(y)) && wide < 32) return -1;
		if (is_narrow(x) && is_narrow(y)) return -1;
		if ((is_narrow(x) && is_int(y)) || (is_narrow(y) && is_int(x))) return -1;
		*out = complex ? type(USMB_DL_COMPLEX, max(64, 2 * wide)) : type(USMB_DL_FLOAT, wide);
	}
	return 0;
}

/* ==== Sequences =============================================================================== */

/* Numbers, arrays, and nested sequences of them. Python's numbers are read as bool, int64, uint64,
   float64 or complex128; Go converts them to other types. */

/* Kinds of numbers; each includes the values of the earlier ones. */
enum { LEAF_NONE, LEAF_BOOL, LEAF_INT, LEAF_FLOAT, LEAF_COMPLEX };

/* The structure of a nested sequence. The leaves are stored, so that the sequence is traversed
   once: reading a leaf can run code that changes it. A leaf that is an array adds its axes as the
   last axes of the result, so that an array and a list of its shape are equivalent. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM]; /* of the result; -1: not known yet */
	int32_t ndim;                    /* of the result; -1 until the first leaf or empty sequence */
	int leaf;                        /* LEAF_* of all leaves so far */
	int arrays;                      /* whether there are arrays among them */
	int foreign;                     /* whether some have an element type: arrays, and numbers of NumPy */
	int typed;                       /* whether type holds all leaves */
	int mixed;                       /* whether the leaves have no common type */
	usmb_dl_dtype type;
	const usmb_dl_dtype *want; /* the element type that the caller converts to, or NULL */
	PyTypeObject *last;        /* the static type of the last number with a dtype, and that dtype */
	usmb_dl_dtype last_type;
	PyObject *leaves; /* list of numbers and Arrays */
} survey;

/* ---- leaves --------------------------------------------------------------------- */

static const usmb_dl_dtype defaults[] = {
        [LEAF_NONE] = {USMB_DL_FLOAT, 64, 1},       [LEAF_BOOL] = {USMB_DL_BOOL, 8, 1},
        [LEAF_INT] = {USMB_DL_INT, 64, 1},          [LEAF_FLOAT] = {USMB_DL_FLOAT, 64, 1},
        [LEAF_COMPLEX] = {USMB_DL_COMPLEX, 128, 1},
};

static int kind_of(usmb_dl_dtype t)
{
	switch (t.code) {
	case USMB_DL_BOOL: return LEAF_BOOL;
	case USMB_DL_INT:
	case USMB_DL_UINT: return LEAF_INT;
	case USMB_DL_COMPLEX: return LEAF_COMPLEX;
	}
	return LEAF_FLOAT;
}

/* Reads the element type in a number's attribute dtype, which NumPy's scalars have. Returns 1, or 0
   if there is none. Types that arrays cannot have (datetime64, clongdouble) are a TypeError: with
   float() or int() such a number would lose its unit or its imaginary part. */
static int own_type(PyObject *o, usmb_dl_dtype *t)
{
	char name[64];
	PyObject *dtype = usmb_optional_attr(o, usmb_name.dtype);
	if (!dtype) return PyErr_Occurred() ? -1 : 0;
	int r = usmb_given(dtype);
	if (r && usmb_parse_dtype(dtype, NULL, t) < 0) {
		r = -1;
		if (PyErr_ExceptionMatches(PyExc_TypeError)) {
			PyErr_Clear();
			PyErr_Format(PyExc_TypeError,
			             "asarray: %s is a number of type \"%S\", which arrays do not support; "
			             "convert it first by its method astype",
			             usmb_type_name(o, name, sizeof name), dtype);
		}
	}
	Py_DECREF(dtype);
	return r;
}

/* The element type of a number. */
static int type_of(PyObject *o, survey *s, usmb_dl_dtype *t)
{
	char name[64];
	PyTypeObject *type = Py_TYPE(o);
	int kind = LEAF_NONE;
	if (PyBool_Check(o))
		kind = LEAF_BOOL;
	else if (type == &PyLong_Type)
		kind = LEAF_INT;
	else if (type == &PyFloat_Type)
		kind = LEAF_FLOAT;
	else if (type == &PyComplex_Type)
		kind = LEAF_COMPLEX;
	if (kind != LEAF_NONE) {
		*t = defaults[kind];
		return 0;
	}
	if (type == s->last) {
		*t = s->last_type; /* s->foreign is set */
		return 0;
	}
	int own = own_type(o, t);
	if (own < 0) return -1;
	if (own) {
		s->foreign = 1;
		/* Numbers of a heap type can differ in their dtype. */
		if (!(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE)) {
			s->last = type;
			s->last_type = *t;
		}
		return 0;
	}
	if (PyLong_Check(o) || PyIndex_Check(o))
		kind = LEAF_INT;
	else if (PyComplex_Check(o))
		kind = LEAF_COMPLEX;
	else if (PyNumber_Check(o))
		kind = LEAF_FLOAT;
	*t = defaults[kind];
	if (kind != LEAF_NONE) return 0;
	usmb_raise(PyExc_TypeError,
	           "asarray takes objects with __sycl_usm_array_interface__, __dlpack__, a buffer, "
	           "__cuda_array_interface__ or __arrow_c_array__, numbers, and "
	           "nested sequences of numbers and arrays, not %s",
	           usmb_type_name(o, name, sizeof name));
	return -1;
}

static int uneven(int32_t depth)
{
	usmb_raise(PyExc_ValueError, "asarray: the sequences at depth %d differ in length or nesting", depth);
	return -1;
}

/* Sets the length of an axis, in which all sequences and arrays must agree. */
static int set_extent(survey *s, int32_t axis, int64_t n)
{
	if (s->shape[axis] < 0) s->shape[axis] = n;
	return s->shape[axis] == n ? 0 : uneven(axis);
}

/* Sets the number of axes of the result, found by a leaf or an empty sequence at a depth. */
static int set_ndim(survey *s, int32_t depth, int32_t ndim)
{
	if (ndim > USMB_DL_MAX_NDIM) {
		usmb_raise(PyExc_ValueError, "asarray: %d dimensions, at most %d are possible", ndim, USMB_DL_MAX_NDIM);
		return -1;
	}
	if (s->ndim < 0) s->ndim = ndim;
	return s->ndim == ndim ? 0 : uneven(depth);
}

/* Adds a leaf. */
static int add_leaf(PyObject *o, int32_t depth, survey *s, usmb_dl_dtype t, int32_t ndim, const int64_t *shape)
{
	if (set_ndim(s, depth, depth + ndim) < 0) return -1;
	for (int32_t i = 0; i < ndim; i++)
		if (set_extent(s, depth + i, shape[i]) < 0) return -1;
	if (kind_of(t) > s->leaf) s->leaf = kind_of(t);
	if (!s->typed)
		s->type = t;
	else if (!s->mixed && promote(s->type, t, &s->type) < 0)
		s->mixed = 1;
	s->typed = 1;
	return PyList_Append(s->leaves, o);
}

static int add_array(PyObject *a, int32_t depth, survey *s)
{
	usmb_array *x = (usmb_array *)a;
	if (!usmb_array_alive(x)) return -1;
	/* A view, because traversing the other items can release the array. */
	PyObject *view = usmb_array_view(x, x->first, x->ndim, usmb_shape(x), usmb_strides(x));
	s->arrays = s->foreign = 1;
	int r = view ? add_leaf(view, depth, s, x->dtype, x->ndim, usmb_shape((usmb_array *)view)) : -1;
	Py_XDECREF(view);
	return r;
}

/* ---- looking --------------------------------------------------------------------- */

static int look(PyObject *o, int32_t depth, survey *s);

static int look_into(PyObject *o, int32_t depth, survey *s)
{
	if (depth == USMB_DL_MAX_NDIM || (s->ndim >= 0 && depth >= s->ndim)) {
		if (depth < USMB_DL_MAX_NDIM) return uneven(depth);
		usmb_raise(PyExc_ValueError, "asarray: sequences nested deeper than %d", USMB_DL_MAX_NDIM);
		return -1;
	}
	PyObject *fast = PySequence_Tuple(o);
	if (!fast) return -1;
	Py_ssize_t n = PyTuple_Size(fast);
	int bad = set_extent(s, depth, n) < 0 || (n == 0 && set_ndim(s, depth, depth + 1) < 0);
	for (Py_ssize_t i = 0; i < n && !bad; i++) bad = look(PyTuple_GetItem(fast, i), depth + 1, s);
	Py_DECREF(fast);
	return bad ? -1 : 0;
}

/* Adds an object of another type: as an array if it has memory, else by its items, else as a
   number. */
static int look_at_other(PyObject *o, int32_t depth, survey *s)
{
	usmb_dl_dtype t;
	int sequence = PySequence_Check(o);
	if (depth > 0 && (sequence || !PyNumber_Check(o))) {
		PyObject *a = take_in_usm(o, 1, s->want);
		if (a) {
			int r = add_array(a, depth, s);
			Py_DECREF(a);
			return r;
		}
		int refused = PyErr_Occurred() &&
		              (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
		               PyErr_ExceptionMatches(PyExc_ValueError));
		if (refused) PyErr_Clear();
		if (PyErr_Occurred()) return -1;
	}
	if (sequence) return look_into(o, depth, s);
	return type_of(o, s, &t) < 0 ? -1 : add_leaf(o, depth, s, t, 0, NULL);
}

static int look(PyObject *o, int32_t depth, survey *s)
{
	usmb_dl_dtype t;
	if (PyList_Check(o) || PyTuple_Check(o)) return look_into(o, depth, s);
	if (usmb_is_array(o)) return add_array(o, depth, s);
	if (PyUnicode_Check(o) || PyBytes_Check(o) || PyFloat_Check(o) || PyLong_Check(o))
		return type_of(o, s, &t) < 0 ? -1 : add_leaf(o, depth, s, t, 0, NULL);
	return look_at_other(o, depth, s);
}

/* ---- reading --------------------------------------------------------------------- */

/* How numbers are read before the conversion to an element type. */
typedef struct {
	usmb_dl_dtype as;
	const char *name; /* of the element type, for messages */
	int64_t lo;       /* bounds of an integer type */
	uint64_t hi;
} reading;

static reading reading_for(usmb_dl_dtype t)
{
	reading r = {{USMB_DL_FLOAT, 64, 1}, usmb_dl_dtype_name(t), 0, 0};
	if (!r.name) r.name = "the element type";
	if (t.code == USMB_DL_BOOL) {
		r.as = t;
	} else if (t.code == USMB_DL_COMPLEX) {
		r.as = (usmb_dl_dtype){USMB_DL_COMPLEX, 128, 1};
	} else if (t.code == USMB_DL_INT) {
		r.as = (usmb_dl_dtype){USMB_DL_INT, 64, 1};
		r.hi = (uint64_t)INT64_MAX >> (64 - t.bits);
		r.lo = -(int64_t)r.hi - 1;
	} else if (t.code == USMB_DL_UINT) {
		r.as = (usmb_dl_dtype){USMB_DL_UINT, 64, 1};
		r.hi = UINT64_MAX >> (64 - t.bits);
	}
	return r;
}

/* Reads a Python integer as int64 or uint64. */
static int read_long(PyObject *o, const reading *r, int64_t *out)
{
	int above = 0;
	int64_t v = PyLong_AsLongLongAndOverflow(o, &above);
	if (v == -1 && !above && PyErr_Occurred()) return -1;
	int fits = !above && (v < 0 ? v >= r->lo : (uint64_t)v <= r->hi);
	if (above > 0 && r->hi > INT64_MAX) {
		v = (int64_t)PyLong_AsUnsignedLongLong(o);
		fits = !PyErr_Occurred();
		PyErr_Clear();
	}
	*out = v;
	if (fits) return 0;
	usmb_raise(PyExc_OverflowError, "a number is out of bounds for %s", r->name);
	return -1;
}

/* Reads any number as an integer; truncates fractions. */
static int read_int(PyObject *number, const reading *r, int64_t *out)
{
	PyObject *o = PyLong_Check(number)    ? Py_NewRef(number)
	              : PyIndex_Check(number) ? PyNumber_Index(number)
	                                      : PyNumber_Long(number);
	int got = o ? read_long(o, r, out) : -1;
	Py_XDECREF(o);
	return got;
}

static int read_complex(PyObject *number, char *dst)
{
	double d[2];
	/* NumPy's complex scalars have only __complex__, so make a complex of them. */
	PyObject *o = PyComplex_Check(number) ? Py_NewRef(number)
	                                      : PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, number, NULL);
	if (!o) return -1;
	d[0] = PyComplex_RealAsDouble(o);
	d[1] = PyComplex_ImagAsDouble(o);
	Py_DECREF(o);
	memcpy(dst, d, sizeof d);
	return 0;
}

static int read_number(PyObject *o, const reading *r, char *dst)
{
	double d;
	int64_t i;
	switch (r->as.code) {
	case USMB_DL_BOOL:
		i = PyObject_IsTrue(o);
		*dst = i > 0;
		return i < 0 ? -1 : 0;
	case USMB_DL_FLOAT:
		d = PyFloat_AsDouble(o);
		memcpy(dst, &d, sizeof d);
		return d == -1.0 && PyErr_Occurred() ? -1 : 0;
	case USMB_DL_COMPLEX: return read_complex(o, dst);
	default:
		if (read_int(o, r, &i) < 0) return -1;
		memcpy(dst, &i, sizeof i);
		return 0;
	}
}

/* Reports whether numbers of a kind can be converted to elements of type t; raises TypeError for complex numbers and
   a real type. read_number converts all others; fractions are truncated toward zero, as int() does. */
static int convertible(int leaf, usmb_dl_dtype t)
{
	if (leaf != LEAF_COMPLEX || t.code == USMB_DL_BOOL || t.code == USMB_DL_COMPLEX) return 1;
	const char *name = usmb_dl_dtype_name(t);
	usmb_raise(PyExc_TypeError, "asarray: complex numbers do not fit %s; take their .real first",
	           name ? name : "the element type");
	return 0;
}

/* A new array on malloc memory, for numbers before their conversion. */
static PyObject *scratch(int32_t ndim, const int64_t *shape, usmb_dl_dtype t)
{
	int64_t bytes = usmb_dense_bytes(ndim, shape, t);
	if (bytes < 0) return NULL;
	usmb_cell *cell = usmb_new_block(bytes);
	return cell ? usmb_array_dense(cell, ndim, shape, t, 0, 0) : NULL;
}

/* Reads the numbers from begin to end to dst, as r describes. */
static int read_all(PyObject *leaves, Py_ssize_t begin, Py_ssize_t end, const reading *r, char *dst)
{
	for (Py_ssize_t i = begin; i < end; i++) {
		if (read_number(PyTuple_GetItem(leaves, i), r, dst) < 0) return -1;
		dst += r->as.bits / 8;
	}
	return 0;
}

/* Makes the array of a sequence of numbers only, as type t at w. If w is NULL, the numbers are not
   converted. */
static PyObject *of_numbers(const survey *s, PyObject *leaves, usmb_dl_dtype t, const usmb_where *w)
{
	reading r = reading_for(t);
	/* Numbers that need no conversion are read directly into the result, if the host can write
	   it. */
	int there = w && w->kind != USMB_USM_DEVICE && r.as.code == t.code && r.as.bits == t.bits;
	PyObject *a = NULL, *out = NULL;
	if (there) {
		a = usmb_new_array(w, s->ndim, s->shape, t, 0, USMB_WRITTEN);
		if (!a) return NULL;
		if (!(((usmb_array *)a)->flags & USMB_ARR_READ)) {
			Py_CLEAR(a);
			there = 0;
		}
	}
	if (!there) a = scratch(s->ndim, s->shape, r.as);
	if (a && read_all(leaves, 0, PyTuple_Size(leaves), &r, ((usmb_array *)a)->first) == 0)
		out = there || !w ? Py_NewRef(a) : usmb_copy_as((usmb_array *)a, t, w);
	Py_XDECREF(a);
	return out;
}

/* Returns the leaves from *at on that are assigned together, and advances *at: one array, or all
   numbers up to the next array as an array of one axis. */
static usmb_array *next_part(PyObject *leaves, Py_ssize_t *at, const reading *r)
{
	PyObject *first = PyTuple_GetItem(leaves, *at);
	Py_ssize_t end = *at + 1, n = PyTuple_Size(leaves);
	if (usmb_is_array(first)) {
		*at = end;
		return (usmb_array *)Py_NewRef(first);
	}
	while (end < n && !usmb_is_array(PyTuple_GetItem(leaves, end))) end++;
	int64_t count = end - *at;
	PyObject *a = scratch(1, &count, r->as);
	if (a && read_all(leaves, *at, end, r, ((usmb_array *)a)->first) < 0) Py_CLEAR(a);
	*at = end;
	return (usmb_array *)a;
}

/* Chooses the place of the first array in USM, else host memory. */
static void choose_place(PyObject *leaves, usmb_where *w)
{
	*w = usmb_on_host;
	for (Py_ssize_t i = 0; i < PyTuple_Size(leaves); i++) {
		PyObject *o = PyTuple_GetItem(leaves, i);
		if (!usmb_is_array(o) || !usmb_array_place((usmb_array *)o)) continue;
		usmb_copy_beside((usmb_array *)o, w);
		return;
	}
}

/* Makes the array of a sequence that has arrays. The leaves are adjacent in C order. */
static PyObject *of_arrays(const survey *s, PyObject *leaves, usmb_dl_dtype t, const usmb_where *w)
{
	usmb_where here;
	usmb_region part;
	reading r = reading_for(t);
	if (!w) {
		choose_place(leaves, &here);
		w = &here;
	}
	usmb_array *a = (usmb_array *)usmb_new_array(w, s->ndim, s->shape, t, 0, USMB_WRITTEN);
	if (!a) return NULL;
	Py_ssize_t at = 0, n = PyTuple_Size(leaves);
	int bad = 0;
	part.offset = 0;
	while (at < n && a->nelem > 0 && !bad) {
		usmb_array *x = next_part(leaves, &at, &r);
		part.ndim = part.axis = x ? x->ndim : 0;
		int64_t step = 1;
		for (int32_t i = part.ndim; i-- > 0;) {
			part.shape[i] = usmb_shape(x)[i];
			part.strides[i] = step;
			step *= part.shape[i];
		}
		bad = !x || usmb_assign_array(a, &part, x) < 0;
		part.offset += step;
		Py_XDECREF(x);
	}
	if (!bad) return (PyObject *)a;
	Py_DECREF(a);
	return NULL;
}

/* Returns the leaves of o as a tuple, which no other code can change. */
static PyObject *leaves_of(PyObject *o, survey *s, const usmb_dl_dtype *want)
{
	memset(s, 0, sizeof *s);
	s->want = want;
	s->ndim = -1;
	for (int i = 0; i < USMB_DL_MAX_NDIM; i++) s->shape[i] = -1;
	s->leaves = PyList_New(0);
	PyObject *leaves = s->leaves && look(o, 0, s) == 0 ? PyList_AsTuple(s->leaves) : NULL;
	Py_CLEAR(s->leaves);
	return leaves;
}

/* The type for all leaves if none was requested. real is the type of Python's floating-point
   numbers, which NumPy's promotion takes as float64. */
static int common_type(const survey *s, usmb_dl_dtype real, usmb_dl_dtype *t)
{
	*t = s->typed ? s->type : real;
	if (s->typed && !s->foreign && s->leaf == LEAF_FLOAT) *t = real;
	if (s->typed && !s->foreign && s->leaf == LEAF_COMPLEX) *t = type(USMB_DL_COMPLEX, real.bits > 32 ? 128 : 64);
	if (!s->mixed) return 0;
	usmb_raise(PyExc_TypeError, "asarray: the sequence has no common element type; give one with dtype=");
	return -1;
}

/* Whether all leaves are exactly int, which can be read twice. */
static int only_ints(PyObject *leaves)
{
	for (Py_ssize_t i = PyTuple_Size(leaves); i-- > 0;)
		if (!PyLong_CheckExact(PyTuple_GetItem(leaves, i))) return 0;
	return 1;
}

/* Makes an array of a number, or of a nested sequence of numbers and arrays, at w (NULL: at the
   default place, or with arrays at that of the first array in USM, else in host memory). dtype may
   be NULL. */
static PyObject *from_sequence(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w)
{
	survey s;
	usmb_where place;
	usmb_defaults d;
	usmb_dl_dtype t, real;
	PyObject *r = NULL, *leaves = leaves_of(o, &s, dtype);
	if (!leaves) return NULL;
	memset(&place, 0, sizeof place);
	if (w) place = *w;
	/* The defaults can add a device, whose references the place owns. */
	int open = !usmb_has_device(&place);
	int ok = usmb_defaults_read(&d) == 0 && usmb_default_place(&d, &place) == 0;
	if (ok && dtype)
		t = *dtype;
	else if (ok)
		ok = usmb_default_real(&d, &place, &real) == 0 && common_type(&s, real, &t) == 0;
	if (ok && convertible(s.leaf, t))
		r = s.arrays ? of_arrays(&s, leaves, t, w ? &place : NULL) : of_numbers(&s, leaves, t, &place);
	/* Integers beyond int64 become uint64, as in NumPy, which makes float64 or objects of all others. */
	if (!r && ok && !dtype && !s.arrays && s.leaf == LEAF_INT && t.code == USMB_DL_INT &&
	    PyErr_ExceptionMatches(PyExc_OverflowError) && only_ints(leaves)) {
		PyErr_Clear();
		r = of_numbers(&s, leaves, (usmb_dl_dtype){USMB_DL_UINT, 64, 1}, &place);
		if (!r && PyErr_ExceptionMatches(PyExc_OverflowError))
			usmb_raise(PyExc_OverflowError, "asarray: neither int64 nor uint64 has all the integers; "
			                                "dtype=\"float64\" rounds them");
	}
	if (open) usmb_where_clear(&place);
	usmb_defaults_drop(&d);
	Py_DECREF(leaves);
	return r;
}

/* The same for an assignment to elements of type t: see usmb_array_of_value. */
static PyObject *from_numbers(PyObject *o, usmb_dl_dtype t)
{
	survey s;
	PyObject *r = NULL, *leaves = leaves_of(o, &s, &t);
	if (!leaves) return NULL;
	if (convertible(s.leaf, t)) r = s.arrays ? of_arrays(&s, leaves, t, NULL) : of_numbers(&s, leaves, t, NULL);
	Py_DECREF(leaves);
	return r;
}

/* ==== asarray =================================================================================== */

int usmb_is_tensor(PyObject *o)
{
	PyObject *const names[] = {usmb_name.__sycl_usm_array_interface__, usmb_name.__dlpack__};
	return usmb_type_has(o, names, sizeof names / sizeof *names);
}

PyObject *usmb_take_object(PyObject *o)
{
	char type[64];
	PyObject *r = take_in_usm(o, 0, NULL);
	if (!r && !PyErr_Occurred() && is_number(o) && PyObject_CheckBuffer(o)) /* a number of NumPy */
		r = from_sequence(o, NULL, &usmb_on_host);
	if (!r && !PyErr_Occurred())
		usmb_raise(
		        PyExc_TypeError,
		        "%s has neither __sycl_usm_array_interface__ nor __dlpack__ nor a buffer nor __arrow_c_array__ "
		        "nor __array__",
		        usmb_type_name(o, type, sizeof type));
	return r;
}

/* Imports o if it has memory, else reads it as a sequence of numbers. */
static PyObject *asarray(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w, int copy)
{
	PyObject *r, *(*importer)(PyObject *, int, const usmb_dl_dtype *) = w && w->host ? take : take_in_usm;
	PyObject *a = importer(o, copy != 0, dtype);
	if (a) {
		r = usmb_adapt((usmb_array *)a, dtype, w, copy, PyExc_ValueError);
		Py_DECREF(a);
		return r;
	}
	r = PyErr_Occurred() ? NULL : from_sequence(o, dtype, w);
	if (r && copy == 0 && usmb_no_copy(PyExc_ValueError, "making an array of Python numbers") < 0) Py_CLEAR(r);
	return r;
}

PyObject *usmb_array_of_value(PyObject *o, usmb_dl_dtype t)
{
	PyObject *a = take(o, 1, &t);
	return a || PyErr_Occurred() ? a : from_numbers(o, t);
}

PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[5] = {NULL, usmb_name.dtype, usmb_name.usm_type, usmb_name.device, usmb_name.copy};
	PyObject *v[5] = {NULL, NULL, NULL, NULL, NULL};
	usmb_dl_dtype dtype;
	usmb_where w;
	int copy;
	(void)m;
	usmb_owner_drain();
	if (usmb_args("asarray", args, n, kw, names, 5, 1, 1, v) < 0 || (copy = usmb_parse_copy(v[4])) < 0) return NULL;
	if (usmb_given(v[1]) && usmb_parse_dtype(v[1], NULL, &dtype) < 0) return NULL;
	PyObject *a = NULL;
	if (usmb_parse_where(v[2], NULL, v[3], &w) == 0) {
		int placed = w.kind || usmb_has_device(&w);
		a = asarray(v[0], usmb_given(v[1]) ? &dtype : NULL, placed ? &w : NULL, copy);
	}
	usmb_where_clear(&w);
	return a;
}
