/* sequence.c: arrays from numbers and nested sequences of numbers. */
#include <string.h>

#include "usmb_pymod.h"

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

static int fill(PyObject *o, int32_t depth, const survey *s, usmb_dl_dtype dtype, char **dst)
{
	if (depth == s->ndim) {
		if (usmb_store_number(o, dtype, *dst) < 0) return -1;
		*dst += dtype.bits / 8;
		return 0;
	}
	PyObject *fast = usmb_py.PySequence_Tuple(o);
	if (!fast) return -1;
	int bad = usmb_py.PyTuple_Size(fast) != s->shape[depth] ? uneven(depth) : 0;
	for (Py_ssize_t i = 0; i < s->shape[depth] && !bad; i++)
		bad = fill(usmb_py.PyTuple_GetItem(fast, i), depth + 1, s, dtype, dst);
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

PyObject *usmb_from_sequence(PyObject *o, const usmb_dl_dtype *dtype)
{
	survey s;
	s.ndim = -1;
	s.leaf = LEAF_NONE;
	for (int i = 0; i < USMB_DL_MAX_NDIM; i++) s.shape[i] = -1;
	if (look(o, 0, &s) < 0) return NULL;
	usmb_dl_dtype t = dtype ? *dtype : default_dtype(s.leaf);
	const char *name = usmb_dl_dtype_name(t);
	if (!usmb_convertible(t))
		return usmb_raise(usmb_py.PyExc_TypeError, "asarray cannot make %s elements of Python numbers",
		                  name ? name : "these");
	if (s.leaf == LEAF_FLOAT && (t.code == USMB_DL_INT || t.code == USMB_DL_UINT))
		return usmb_raise(usmb_py.PyExc_TypeError,
		                  "asarray: floating-point numbers do not become %s without a conversion of your own",
		                  name);
	usmb_where host;
	memset(&host, 0, sizeof host);
	host.host = 1;
	PyObject *a = usmb_new_array(&host, s.ndim, s.shape, t, 0, 0);
	if (!a) return NULL;
	char *dst = ((usmb_array *)a)->first;
	if (fill(o, 0, &s, t, &dst) == 0) return a;
	Py_DECREF(a);
	return NULL;
}
