/* sequence.c: arrays from numbers and nested sequences of numbers. Python's numbers
   are read as bool, int64, uint64, float64 or complex128; what else they become is
   Go's conversion. */
#include <stdlib.h>
#include <string.h>

#include "usmb_array.h"
#include "usmb_asarray.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_storage.h"
#include "usmb_support.h"

/* Kinds of Python numbers, the later ones holding the earlier. */
enum { LEAF_NONE, LEAF_BOOL, LEAF_INT, LEAF_FLOAT, LEAF_COMPLEX };

typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM];
	int32_t ndim; /* -1 until a leaf or an empty sequence was seen */
	int leaf;     /* LEAF_* of all leaves so far */
} survey;

static int is_sequence(PyObject *o)
{
	return PyList_Check(o) || PyTuple_Check(o) ||
	       (usmb_py.PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o) && !usmb_is_array(o));
}

static int leaf_of(PyObject *o)
{
	char type[64];
	if (PyBool_Check(o)) return LEAF_BOOL;
	if (PyLong_Check(o)) return LEAF_INT;
	if (PyFloat_Check(o)) return LEAF_FLOAT;
	if (PyComplex_Check(o)) return LEAF_COMPLEX;
	if (usmb_py.PyIndex_Check(o)) return LEAF_INT;
	if (usmb_py.PyNumber_Check(o)) return LEAF_FLOAT;
	usmb_raise(usmb_py.PyExc_TypeError,
	           "asarray takes objects with __sycl_usm_array_interface__, __dlpack__ or a buffer, numbers, and "
	           "nested sequences of numbers, not %s",
	           usmb_type_name(o, type, sizeof type));
	return -1;
}

static int uneven(int32_t depth)
{
	usmb_raise(usmb_py.PyExc_ValueError, "asarray: the sequences at depth %d differ in length or nesting", depth);
	return -1;
}

static int look(PyObject *o, int32_t depth, survey *s)
{
	if (!is_sequence(o)) {
		int leaf = leaf_of(o);
		if (leaf < 0) return -1;
		if (leaf > s->leaf) s->leaf = leaf;
		if (s->ndim < 0) s->ndim = depth;
		return s->ndim == depth ? 0 : uneven(depth);
	}
	if (depth == USMB_DL_MAX_NDIM || (s->ndim >= 0 && depth >= s->ndim)) {
		if (depth < USMB_DL_MAX_NDIM) return uneven(depth);
		usmb_raise(usmb_py.PyExc_ValueError, "asarray: sequences nested deeper than %d", USMB_DL_MAX_NDIM);
		return -1;
	}
	PyObject *fast = usmb_py.PySequence_Tuple(o);
	if (!fast) return -1;
	Py_ssize_t n = usmb_py.PyTuple_Size(fast);
	int bad = 0;
	if (s->shape[depth] < 0)
		s->shape[depth] = n;
	else if (s->shape[depth] != n)
		bad = uneven(depth);
	if (n == 0 && s->ndim < 0) s->ndim = depth + 1;
	for (Py_ssize_t i = 0; i < n && !bad; i++) bad = look(usmb_py.PyTuple_GetItem(fast, i), depth + 1, s);
	Py_DECREF(fast);
	return bad ? -1 : 0;
}

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
static int read_int(PyObject *o, const reading *r, int64_t *out)
{
	int above = 0;
	int64_t v = usmb_py.PyLong_AsLongLongAndOverflow(o, &above);
	if (v == -1 && !above && usmb_py.PyErr_Occurred()) return -1;
	int fits = !above && (v < 0 ? v >= r->lo : (uint64_t)v <= r->hi);
	if (above > 0 && r->hi > INT64_MAX) {
		PyObject *i = usmb_py.PyNumber_Index(o);
		v = i ? (int64_t)usmb_py.PyLong_AsUnsignedLongLong(i) : 0;
		Py_XDECREF(i);
		fits = !usmb_py.PyErr_Occurred();
		usmb_py.PyErr_Clear();
	}
	*out = v;
	if (fits) return 0;
	usmb_raise(usmb_py.PyExc_OverflowError, "a Python integer is out of bounds for %s", r->name);
	return -1;
}

static int read_number(PyObject *o, const reading *r, char *dst)
{
	double d[2];
	int64_t i;
	switch (r->as.code) {
	case USMB_DL_BOOL: *dst = (char)usmb_py.PyObject_IsTrue(o); return *dst < 0 ? -1 : 0;
	case USMB_DL_FLOAT:
		d[0] = usmb_py.PyFloat_AsDouble(o);
		memcpy(dst, d, sizeof *d);
		return d[0] == -1.0 && usmb_py.PyErr_Occurred() ? -1 : 0;
	case USMB_DL_COMPLEX:
		d[0] = usmb_py.PyComplex_RealAsDouble(o);
		d[1] = usmb_py.PyComplex_ImagAsDouble(o);
		memcpy(dst, d, sizeof d);
		return d[0] == -1.0 && usmb_py.PyErr_Occurred() ? -1 : 0;
	default:
		if (read_int(o, r, &i) < 0) return -1;
		memcpy(dst, &i, sizeof i);
		return 0;
	}
}

static int fill(PyObject *o, int32_t depth, const survey *s, const reading *r, char **dst)
{
	if (depth == s->ndim) {
		if (read_number(o, r, *dst) < 0) return -1;
		*dst += r->as.bits / 8;
		return 0;
	}
	PyObject *fast = usmb_py.PySequence_Tuple(o);
	if (!fast) return -1;
	int bad = usmb_py.PyTuple_Size(fast) != s->shape[depth] ? uneven(depth) : 0;
	for (Py_ssize_t i = 0; i < s->shape[depth] && !bad; i++)
		bad = fill(usmb_py.PyTuple_GetItem(fast, i), depth + 1, s, r, dst);
	Py_DECREF(fast);
	return bad ? -1 : 0;
}

/* The array API's default types. */
static usmb_dl_dtype default_dtype(int leaf)
{
	static const usmb_dl_dtype types[] = {
	        [LEAF_NONE] = {USMB_DL_FLOAT, 64, 1},       [LEAF_BOOL] = {USMB_DL_BOOL, 8, 1},
	        [LEAF_INT] = {USMB_DL_INT, 64, 1},          [LEAF_FLOAT] = {USMB_DL_FLOAT, 64, 1},
	        [LEAF_COMPLEX] = {USMB_DL_COMPLEX, 128, 1},
	};
	return types[leaf];
}

/* Whether numbers of a kind become elements of a type without losing a fraction
   or an imaginary part: else TypeError. */
static int suits(int leaf, usmb_dl_dtype t, const char *name)
{
	if (t.code == USMB_DL_BOOL || t.code == USMB_DL_COMPLEX) return 1;
	if (leaf == LEAF_COMPLEX)
		usmb_raise(usmb_py.PyExc_TypeError, "asarray: complex numbers do not fit %s; take their .real first",
		           name);
	else if (leaf == LEAF_FLOAT && (t.code == USMB_DL_INT || t.code == USMB_DL_UINT))
		usmb_raise(usmb_py.PyExc_TypeError,
		           "asarray: floating-point numbers do not become %s without a conversion of your own", name);
	else
		return 1;
	return 0;
}

/* An array on memory of C, for the numbers on their way. */
static PyObject *scratch(const survey *s, usmb_dl_dtype t)
{
	int64_t bytes = usmb_dense_bytes(s->ndim, s->shape, t);
	if (bytes < 0) return NULL;
	void *block = malloc(bytes > 0 ? (size_t)bytes : 1);
	if (!block) return usmb_py.PyErr_NoMemory();
	usmb_cell *cell = usmb_cell_of_block(block, (uint64_t)bytes);
	if (cell) return usmb_array_dense(cell, s->ndim, s->shape, t, 0, 0);
	free(block);
	return NULL;
}

PyObject *usmb_from_sequence(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w)
{
	survey s;
	usmb_where host;
	s.ndim = -1;
	s.leaf = LEAF_NONE;
	for (int i = 0; i < USMB_DL_MAX_NDIM; i++) s.shape[i] = -1;
	if (look(o, 0, &s) < 0) return NULL;
	usmb_dl_dtype t = dtype ? *dtype : default_dtype(s.leaf);
	reading r = reading_for(t);
	if (!suits(s.leaf, t, r.name)) return NULL;
	memset(&host, 0, sizeof host);
	host.host = 1;
	if (!w) w = &host;
	/* What needs no conversion is read to where it stays, if C can write there. */
	int there = w->host && r.as.code == t.code && r.as.bits == t.bits;
	PyObject *a = there ? usmb_new_array(w, s.ndim, s.shape, t, 0, 0) : scratch(&s, r.as);
	if (!a) return NULL;
	char *dst = ((usmb_array *)a)->first;
	PyObject *out = NULL;
	if (fill(o, 0, &s, &r, &dst) == 0) out = there ? Py_NewRef(a) : usmb_copy_as((usmb_array *)a, t, w);
	Py_DECREF(a);
	return out;
}
