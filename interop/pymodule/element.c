/* element.c: elements as Python's numbers: item, tolist, int() and its sisters. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_element.h"
#include "usmb_storage.h"
#include "usmb_support.h"

/* ---- reading ------------------------------------------------------------------- */

/* The type that holds every value of t and that C reads: t itself, where C has it. */
static usmb_dl_dtype readable_type(usmb_dl_dtype t)
{
	int whole = t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64;
	switch (t.code) {
	case USMB_DL_BOOL: return t;
	case USMB_DL_INT:
	case USMB_DL_UINT:
		if (!whole) t.bits = 64;
		return t;
	case USMB_DL_COMPLEX:
		if (t.bits != 64) t.bits = 128;
		return t;
	case USMB_DL_FLOAT:
		if (t.bits != 32) t.bits = 64;
		return t;
	}
	return (usmb_dl_dtype){USMB_DL_FLOAT, 64, 1};
}

/* a with its elements where C reads them, and work on them done: a itself, or a copy
   in plain host memory, which Go converts. */
static usmb_array *readable(usmb_array *a)
{
	usmb_dl_dtype t = readable_type(a->dtype);
	usmb_where host;
	if (a->flags & USMB_ARR_READ && t.code == a->dtype.code && t.bits == a->itembits)
		return usmb_array_wait(a) < 0 ? NULL : (usmb_array *)Py_NewRef(a);
	memset(&host, 0, sizeof host);
	host.host = 1;
	return (usmb_array *)usmb_copy_as(a, t, &host);
}

static PyObject *read_int(const char *p, uint8_t bits)
{
	uint64_t v = 0;
	memcpy(&v, p, bits / 8);
	return PyLong_FromLongLong((int64_t)(v << (64 - bits)) >> (64 - bits));
}

static PyObject *read_uint(const char *p, uint8_t bits)
{
	uint64_t v = 0;
	memcpy(&v, p, bits / 8);
	return PyLong_FromUnsignedLongLong(v);
}

static double read_real(const char *p, int bits)
{
	float f;
	double d;
	if (bits == 32) {
		memcpy(&f, p, sizeof f);
		return (double)f;
	}
	memcpy(&d, p, sizeof d);
	return d;
}

/* The element of a readable type at p. */
static PyObject *number_at(const char *p, usmb_dl_dtype t)
{
	switch (t.code) {
	case USMB_DL_BOOL: return PyBool_FromLong(*p);
	case USMB_DL_INT: return read_int(p, t.bits);
	case USMB_DL_UINT: return read_uint(p, t.bits);
	case USMB_DL_COMPLEX:
		return PyComplex_FromDoubles(read_real(p, t.bits / 2), read_real(p + t.bits / 16, t.bits / 2));
	}
	return PyFloat_FromDouble(read_real(p, t.bits));
}

/* ---- one element ---------------------------------------------------------------- */

/* The number at a position, counted in elements from the first. Packed elements are
   read from the whole byte before. */
static PyObject *number_of(usmb_array *a, int64_t position)
{
	int64_t group = a->itembits >= 8 ? 1 : 8 / (int64_t)(a->itembits & -a->itembits);
	int64_t before = ((position % group) + group) % group, one = 1;
	int64_t n = before + 1;
	char *first = a->first + (position - before) * (int64_t)a->itembits / 8;
	usmb_array *few = (usmb_array *)usmb_array_view(a, first, 1, &n, &one);
	usmb_array *read = few ? readable(few) : NULL;
	PyObject *v = read ? number_at(read->first + before * (read->itembits / 8), read->dtype) : NULL;
	Py_XDECREF(read);
	Py_XDECREF(few);
	return v;
}

/* The number of an array of one element, which is asked for by the name of what. */
static PyObject *only_number(PyObject *self, const char *what)
{
	usmb_array *a = (usmb_array *)self;
	usmb_owner_drain();
	if (a->nelem == 1) return number_of(a, 0);
	return usmb_raise(PyExc_TypeError,
	                  "%s is of an array of one element, this one has %lld; take one by its index, or use "
	                  "numpy.asarray(a), where the host may read it, or a.asnumpy()",
	                  what, (long long)a->nelem);
}

/* The same, handed to convert. */
static PyObject *converted(PyObject *self, const char *what, PyObject *(*convert)(PyObject *))
{
	PyObject *v = only_number(self, what);
	PyObject *r = v ? convert(v) : NULL;
	Py_XDECREF(v);
	return r;
}

PyObject *usmb_array_int(PyObject *self)
{
	return converted(self, "int()", PyNumber_Long);
}

PyObject *usmb_array_float(PyObject *self)
{
	return converted(self, "float()", PyNumber_Float);
}

static PyObject *as_complex(PyObject *v)
{
	double re = PyComplex_RealAsDouble(v);
	if (re == -1.0 && PyErr_Occurred()) return NULL;
	double im = PyComplex_ImagAsDouble(v);
	return im == -1.0 && PyErr_Occurred() ? NULL : PyComplex_FromDoubles(re, im);
}

PyObject *usmb_array_complex(PyObject *self, PyObject *unused)
{
	(void)unused;
	return converted(self, "complex()", as_complex);
}

PyObject *usmb_array_index(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	const char *name = usmb_dl_dtype_name(a->dtype);
	if (a->ndim == 0 && (a->dtype.code == USMB_DL_INT || a->dtype.code == USMB_DL_UINT))
		return only_number(self, "an index");
	return usmb_raise(PyExc_TypeError,
	                  "only an integer array of 0 dimensions is an index, this one has elements of type %s and %d "
	                  "dimensions; int(a) reads the only element",
	                  name ? name : "another library", a->ndim);
}

int usmb_array_bool(PyObject *self)
{
	PyObject *v = only_number(self, "bool()");
	int r = v ? PyObject_IsTrue(v) : -1;
	Py_XDECREF(v);
	return r;
}

/* ---- item ---------------------------------------------------------------------- */

static int in_range(int64_t *i, int64_t n, const char *what)
{
	if (*i < -n || *i >= n) {
		usmb_raise(PyExc_IndexError, "item: index %lld is out of bounds for %s %lld", (long long)*i, what,
		           (long long)n);
		return -1;
	}
	if (*i < 0) *i += n;
	return 0;
}

/* The position of an index that counts through the array in C order. */
static int flat_position(usmb_array *a, int64_t i, int64_t *position)
{
	*position = 0;
	if (in_range(&i, a->nelem, "size") < 0) return -1;
	for (int32_t k = a->ndim - 1; k >= 0; k--) {
		*position += i % usmb_shape(a)[k] * usmb_strides(a)[k];
		i /= usmb_shape(a)[k];
	}
	return 0;
}

static int position_at(usmb_array *a, const int64_t *index, Py_ssize_t n, int64_t *position)
{
	*position = 0;
	if (n != a->ndim) {
		usmb_raise(PyExc_ValueError, "item: %lld indices for an array of %d dimensions", (long long)n, a->ndim);
		return -1;
	}
	for (int32_t k = 0; k < a->ndim; k++) {
		int64_t i = index[k];
		if (in_range(&i, usmb_shape(a)[k], "an axis of size") < 0) return -1;
		if (a->nelem > 0) *position += i * usmb_strides(a)[k];
	}
	return 0;
}

PyObject *usmb_array_item(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	usmb_array *a = (usmb_array *)self;
	int64_t index[USMB_DL_MAX_NDIM], position = 0;
	usmb_owner_drain();
	if (n == 0 && a->nelem == 1) return number_of(a, 0);
	if (n == 0)
		return usmb_raise(PyExc_ValueError,
		                  "item() takes an index where the array has other than one element; this one has %lld",
		                  (long long)a->nelem);
	int count = 0, flat = n == 1 && PyIndex_Check(args[0]);
	if (n == 1) {
		count = flat ? usmb_parse_dim(args[0], index, "item") : usmb_parse_dims(args[0], index, "item");
		if (count < 0) return NULL;
	} else {
		for (; count < n && count < USMB_DL_MAX_NDIM; count++)
			if (usmb_parse_dim(args[count], &index[count], "item") < 0) return NULL;
	}
	int bad = flat ? flat_position(a, index[0], &position) : position_at(a, index, n == 1 ? count : n, &position);
	return bad ? NULL : number_of(a, position);
}

/* ---- tolist -------------------------------------------------------------------- */

static PyObject *list_of(usmb_array *a, const char *p, int32_t axis)
{
	if (axis == a->ndim) return number_at(p, a->dtype);
	int64_t n = usmb_shape(a)[axis], step = 0;
	/* Without elements strides may be anything, and lead nowhere. */
	if (a->nelem > 0) step = usmb_strides(a)[axis] * (a->itembits / 8);
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (int64_t i = 0; list && i < n; i++) {
		PyObject *v = list_of(a, p + i * step, axis + 1);
		if (v)
			PyList_SetItem(list, (Py_ssize_t)i, v);
		else
			Py_CLEAR(list);
	}
	return list;
}

PyObject *usmb_array_tolist(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	usmb_array *read = readable((usmb_array *)self);
	PyObject *list = read ? list_of(read, read->first, 0) : NULL;
	Py_XDECREF(read);
	return list;
}
