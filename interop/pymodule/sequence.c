/* sequence.c: arrays from numbers, arrays, and nested sequences of them. Python's
   numbers are read as bool, int64, uint64, float64 or complex128; what else they
   become is Go's conversion. */
#include <stdlib.h>
#include <string.h>

#include "usmb_array.h"
#include "usmb_asarray.h"
#include "usmb_assign.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_dtype.h"
#include "usmb_index.h"
#include "usmb_promote.h"
#include "usmb_storage.h"
#include "usmb_support.h"

/* Kinds of numbers, the later ones holding the earlier. */
enum { LEAF_NONE, LEAF_BOOL, LEAF_INT, LEAF_FLOAT, LEAF_COMPLEX };

/* What is known of a nested sequence. Its leaves are kept, so that it is looked at
   once: what they run when they are read may change it. A leaf that is an array has the
   last axes of the result, so that an array and a list of its shape stand for the same. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM]; /* of the result; -1 for extents that are not known yet */
	int32_t ndim;                    /* of the result; -1 until a leaf or an empty sequence was seen */
	int leaf;                        /* LEAF_* of all leaves so far */
	int arrays;                      /* whether there are arrays among them */
	int typed;                       /* whether type holds all leaves */
	int mixed;                       /* whether no type does */
	usmb_dl_dtype type;
	PyTypeObject *last; /* the type of number that was seen last, and its element type: a static one, as NumPy's */
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

/* own_type reads the element type that a number names in its attribute dtype, as NumPy's scalars
   do: 1, 0 where it names none. A type that arrays cannot have (datetime64, clongdouble) is a
   TypeError: by float() or int() such a number would lose its unit or its imaginary part. */
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
			PyObject *text = PyObject_Str(dtype);
			const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
			if (s)
				usmb_raise(PyExc_TypeError,
				           "asarray: %s is a number of type \"%s\", which arrays here cannot have; "
				           "convert it first with its method astype",
				           usmb_type_name(o, name, sizeof name), s);
			Py_XDECREF(text);
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
		*t = s->last_type;
		return 0;
	}
	int own = own_type(o, t);
	if (own < 0) return -1;
	if (own) {
		/* Other classes may say another one for each of their numbers. */
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
	           "asarray takes objects with __sycl_usm_array_interface__, __dlpack__, a buffer or "
	           "__arrow_c_array__, numbers, and "
	           "nested sequences of numbers and arrays, not %s",
	           usmb_type_name(o, name, sizeof name));
	return -1;
}

static int uneven(int32_t depth)
{
	usmb_raise(PyExc_ValueError, "asarray: the sequences at depth %d differ in length or nesting", depth);
	return -1;
}

/* set_extent notes the length of an axis, on which all sequences and arrays must agree. */
static int set_extent(survey *s, int32_t axis, int64_t n)
{
	if (s->shape[axis] < 0) s->shape[axis] = n;
	return s->shape[axis] == n ? 0 : uneven(axis);
}

/* set_ndim notes the number of axes that a leaf or an empty sequence at a depth gives the result. */
static int set_ndim(survey *s, int32_t depth, int32_t ndim)
{
	if (ndim > USMB_DL_MAX_NDIM) {
		usmb_raise(PyExc_ValueError, "asarray: %d dimensions, at most %d are possible", ndim, USMB_DL_MAX_NDIM);
		return -1;
	}
	if (s->ndim < 0) s->ndim = ndim;
	return s->ndim == ndim ? 0 : uneven(depth);
}

/* add_leaf notes a leaf of a type and shape. */
static int add_leaf(PyObject *o, int32_t depth, survey *s, usmb_dl_dtype t, int32_t ndim, const int64_t *shape)
{
	if (set_ndim(s, depth, depth + ndim) < 0) return -1;
	for (int32_t i = 0; i < ndim; i++)
		if (set_extent(s, depth + i, shape[i]) < 0) return -1;
	if (kind_of(t) > s->leaf) s->leaf = kind_of(t);
	if (!s->typed)
		s->type = t;
	else if (!s->mixed && usmb_promote(s->type, t, &s->type) < 0)
		s->mixed = 1;
	s->typed = 1;
	return PyList_Append(s->leaves, o);
}

static int add_array(PyObject *a, int32_t depth, survey *s)
{
	usmb_array *x = (usmb_array *)a;
	if (!usmb_array_alive(x)) return -1;
	/* A view of our own: what is looked at next may release the array. */
	PyObject *view = usmb_array_view(x, x->first, x->ndim, usmb_shape(x), usmb_strides(x));
	s->arrays = 1;
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

/* Looks at an object of another's type: an array where it has memory, else its items,
   else a number. */
static int look_at_other(PyObject *o, int32_t depth, survey *s)
{
	usmb_dl_dtype t;
	int sequence = PySequence_Check(o);
	if (depth > 0 && (sequence || !PyNumber_Check(o))) {
		PyObject *a = usmb_take_memory(o);
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

/* What the numbers are read as on their way to an element type. */
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

/* The word that holds a Python integer as int64 or uint64. */
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

/* read_int does so for any number. Its fraction is cut. */
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
	/* What is complex by its __complex__ alone, as NumPy's scalars, has parts only then. */
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

/* suits reports whether numbers of a kind become elements of type t: complex numbers become no
   real ones. Anything else read_number converts: fractions are cut toward zero, as by int(). */
static int suits(int leaf, usmb_dl_dtype t)
{
	if (leaf != LEAF_COMPLEX || t.code == USMB_DL_BOOL || t.code == USMB_DL_COMPLEX) return 1;
	const char *name = usmb_dl_dtype_name(t);
	usmb_raise(PyExc_TypeError, "asarray: complex numbers do not fit %s; take their .real first",
	           name ? name : "the element type");
	return 0;
}

/* An array on memory of C, for numbers on their way. */
static PyObject *scratch(int32_t ndim, const int64_t *shape, usmb_dl_dtype t)
{
	int64_t bytes = usmb_dense_bytes(ndim, shape, t);
	if (bytes < 0) return NULL;
	void *block = malloc(bytes > 0 ? (size_t)bytes : 1);
	if (!block) return PyErr_NoMemory();
	usmb_cell *cell = usmb_cell_of_block(block, (uint64_t)bytes);
	if (cell) return usmb_array_dense(cell, ndim, shape, t, 0, 0);
	free(block);
	return NULL;
}

/* read_all reads the numbers from begin to end to dst, where they lie as r says. */
static int read_all(PyObject *leaves, Py_ssize_t begin, Py_ssize_t end, const reading *r, char *dst)
{
	for (Py_ssize_t i = begin; i < end; i++) {
		if (read_number(PyTuple_GetItem(leaves, i), r, dst) < 0) return -1;
		dst += r->as.bits / 8;
	}
	return 0;
}

/* The array of a sequence of numbers alone, as t at w; as they were read where w is
   NULL. */
static PyObject *of_numbers(const survey *s, PyObject *leaves, usmb_dl_dtype t, const usmb_where *w)
{
	reading r = reading_for(t);
	/* What needs no conversion is read to where it stays, if C can write there. */
	int there = w && w->host && r.as.code == t.code && r.as.bits == t.bits;
	PyObject *a =
	        there ? usmb_new_array(w, s->ndim, s->shape, t, 0, USMB_WRITTEN) : scratch(s->ndim, s->shape, r.as);
	PyObject *out = NULL;
	if (a && read_all(leaves, 0, PyTuple_Size(leaves), &r, ((usmb_array *)a)->first) == 0)
		out = there || !w ? Py_NewRef(a) : usmb_copy_as((usmb_array *)a, t, w);
	Py_XDECREF(a);
	return out;
}

/* next_part returns the leaves from *at on that are assigned together, and moves *at behind them:
   an array, or all numbers up to the next array, in one axis. */
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

/* Beside the first array in USM; else in host memory. */
static void choose_place(PyObject *leaves, usmb_where *w)
{
	memset(w, 0, sizeof *w);
	w->host = 1;
	for (Py_ssize_t i = 0; i < PyTuple_Size(leaves); i++) {
		PyObject *o = PyTuple_GetItem(leaves, i);
		if (!usmb_is_array(o) || !usmb_array_place((usmb_array *)o)) continue;
		usmb_copy_beside((usmb_array *)o, w);
		return;
	}
}

/* of_arrays returns the array of a sequence with arrays in it. Its leaves lie one behind the other
   in C order. */
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

/* The leaves of o, which nobody else can change any more. */
static PyObject *leaves_of(PyObject *o, survey *s)
{
	memset(s, 0, sizeof *s);
	s->ndim = -1;
	for (int i = 0; i < USMB_DL_MAX_NDIM; i++) s->shape[i] = -1;
	s->leaves = PyList_New(0);
	PyObject *leaves = s->leaves && look(o, 0, s) == 0 ? PyList_AsTuple(s->leaves) : NULL;
	Py_CLEAR(s->leaves);
	return leaves;
}

/* The type for the leaves where none was asked for. */
static int common_type(const survey *s, usmb_dl_dtype *t)
{
	*t = s->typed ? s->type : defaults[LEAF_NONE];
	if (!s->mixed) return 0;
	usmb_raise(PyExc_TypeError,
	           "asarray: no element type is known to hold all of the sequence's; say which with dtype=");
	return -1;
}

/* Whether all leaves are Python's own integers, which can be read twice. */
static int only_ints(PyObject *leaves)
{
	for (Py_ssize_t i = PyTuple_Size(leaves); i-- > 0;)
		if (!PyLong_CheckExact(PyTuple_GetItem(leaves, i))) return 0;
	return 1;
}

PyObject *usmb_from_sequence(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w)
{
	survey s;
	usmb_where host;
	usmb_dl_dtype t;
	PyObject *r = NULL, *leaves = leaves_of(o, &s);
	if (!leaves) return NULL;
	memset(&host, 0, sizeof host);
	host.host = 1;
	int ok = dtype ? (t = *dtype, 0) == 0 : common_type(&s, &t) == 0;
	if (ok && suits(s.leaf, t))
		r = s.arrays ? of_arrays(&s, leaves, t, w) : of_numbers(&s, leaves, t, w ? w : &host);
	/* Beyond int64 there is uint64, as in NumPy. */
	if (!r && ok && !dtype && !s.arrays && s.leaf == LEAF_INT && t.code == USMB_DL_INT &&
	    PyErr_ExceptionMatches(PyExc_OverflowError) && only_ints(leaves)) {
		PyErr_Clear();
		r = of_numbers(&s, leaves, (usmb_dl_dtype){USMB_DL_UINT, 64, 1}, w ? w : &host);
	}
	Py_DECREF(leaves);
	return r;
}

PyObject *usmb_from_numbers(PyObject *o, usmb_dl_dtype t)
{
	survey s;
	PyObject *r = NULL, *leaves = leaves_of(o, &s);
	if (!leaves) return NULL;
	if (suits(s.leaf, t)) r = s.arrays ? of_arrays(&s, leaves, t, NULL) : of_numbers(&s, leaves, t, NULL);
	Py_DECREF(leaves);
	return r;
}
