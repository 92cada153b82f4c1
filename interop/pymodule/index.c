/* index.c: subscripts: basic indexing, assignment to elements, reshape and transpose. Views are
   computed by arithmetic alone. */
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "order.h"
#include "module.h"
#include "storage.h"
#include "support.h"

typedef usmb_region builder; /* a region under construction */

static int add_mode(builder *b, int64_t extent, int64_t stride)
{
	if (b->ndim == USMB_DL_MAX_NDIM) {
		usmb_raise(PyExc_IndexError, "the view would have more than %d dimensions", USMB_DL_MAX_NDIM);
		return -1;
	}
	b->shape[b->ndim] = extent;
	b->strides[b->ndim++] = stride;
	return 0;
}

static int apply_int(builder *b, usmb_array *a, PyObject *key)
{
	Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
	if (i == -1 && PyErr_Occurred()) return -1;
	int64_t n = usmb_shape(a)[b->axis];
	if (i < -n || i >= n) {
		usmb_raise(PyExc_IndexError, "index %lld is out of bounds for axis %d with size %lld", (long long)i,
		           b->axis, (long long)n);
		return -1;
	}
	if (i < 0) i += n;
	/* Without elements the stride is arbitrary and not used. */
	if (a->nelem > 0) b->offset += i * usmb_strides(a)[b->axis];
	b->axis++;
	return 0;
}

static int apply_slice(builder *b, usmb_array *a, PyObject *key)
{
	Py_ssize_t start, stop, step;
	if (PySlice_Unpack(key, &start, &stop, &step) < 0) return -1;
	int64_t stride = usmb_strides(a)[b->axis];
	Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)usmb_shape(a)[b->axis], &start, &stop, step);
	/* An empty slice must not move the address out of the memory. */
	if (n > 0 && a->nelem > 0) b->offset += start * stride;
	int64_t wide;
	if (__builtin_mul_overflow(stride, (int64_t)step, &wide)) wide = stride;
	b->axis++;
	return add_mode(b, n, n > 1 ? wide : stride);
}

static int apply_rest(builder *b, usmb_array *a, int32_t count)
{
	while (count-- > 0) {
		if (add_mode(b, usmb_shape(a)[b->axis], usmb_strides(a)[b->axis]) < 0) return -1;
		b->axis++;
	}
	return 0;
}

/* The number of axes that the keys use; -1 if they are invalid. */
static int32_t consumed(PyObject *const *keys, Py_ssize_t n, int32_t ndim)
{
	int32_t used = 0, ellipses = 0;
	for (Py_ssize_t i = 0; i < n; i++) {
		if (keys[i] == Py_Ellipsis)
			ellipses++;
		else if (keys[i] != Py_None)
			used++;
	}
	if (ellipses > 1) {
		usmb_raise(PyExc_IndexError, "an index can have only one ellipsis");
		return -1;
	}
	if (used > ndim) {
		usmb_raise(PyExc_IndexError, "too many indices: the array has %d dimensions, %d were indexed", ndim,
		           used);
		return -1;
	}
	return used;
}

static int apply_key(builder *b, usmb_array *a, PyObject *key, int32_t rest)
{
	char type[64];
	if (key == Py_Ellipsis) return apply_rest(b, a, rest);
	if (key == Py_None) return add_mode(b, 1, 0);
	if (PySlice_Check(key)) return apply_slice(b, a, key);
	if (!PyBool_Check(key) && PyIndex_Check(key)) return apply_int(b, a, key);
	usmb_raise(PyExc_IndexError,
	           "only integers, slices, Ellipsis, None, and integer and boolean arrays index an Array, not %s",
	           usmb_type_name(key, type, sizeof type));
	return -1;
}

static int region_of(usmb_array *a, PyObject *key, usmb_region *b)
{
	PyObject *keys[2 * USMB_DL_MAX_NDIM + 1];
	Py_ssize_t n = 1;
	keys[0] = key;
	if (PyTuple_Check(key)) {
		n = PyTuple_Size(key);
		if (n > 2 * USMB_DL_MAX_NDIM + 1) {
			usmb_raise(PyExc_IndexError, "too many indices: %lld", (long long)n);
			return -1;
		}
		for (Py_ssize_t i = 0; i < n; i++) keys[i] = PyTuple_GetItem(key, i);
	}
	int32_t used = consumed(keys, n, a->ndim);
	if (used < 0) return -1;
	b->ndim = b->axis = 0;
	b->offset = 0;
	for (Py_ssize_t i = 0; i < n; i++)
		if (apply_key(b, a, keys[i], a->ndim - used) < 0) return -1;
	return apply_rest(b, a, a->ndim - b->axis);
}

/* ---- integer and boolean arrays as indices ---------------------------------------- */

/* Whether a key selects elements one by one: a sequence, a boolean, or an array with axes. */
static int selects(PyObject *key)
{
	if (PyLong_CheckExact(key) || PySlice_Check(key) || key == Py_None || key == Py_Ellipsis) return 0;
	if (PyLong_Check(key)) return PyBool_Check(key);
	if (usmb_is_array(key)) return ((usmb_array *)key)->ndim > 0 || ((usmb_array *)key)->dtype.code == USMB_DL_BOOL;
	if (PyList_Check(key)) return 1;
	PyObject *ndim = usmb_optional_attr(key, usmb_name.ndim);
	if (!ndim) return PyErr_Occurred() ? -1 : !PyIndex_Check(key) && PySequence_Check(key) && !PyUnicode_Check(key);
	/* An array of another library, or a scalar of NumPy. */
	int r = PyObject_IsTrue(ndim) || !PyIndex_Check(key);
	if (r == 0) { /* an integer, or a boolean array of 0 dimensions */
		PyObject *integer = PyNumber_Index(key);
		if (!integer) r = PyErr_ExceptionMatches(PyExc_TypeError) ? (PyErr_Clear(), 1) : -1;
		Py_XDECREF(integer);
	}
	Py_DECREF(ndim);
	return r;
}

static int selective(PyObject *key)
{
	int r = 0;
	if (PyLong_CheckExact(key)) return 0;
	if (!PyTuple_Check(key)) return selects(key);
	for (Py_ssize_t i = 0; i < PyTuple_Size(key) && r == 0; i++) r = selects(PyTuple_GetItem(key, i));
	return r;
}

PyObject *usmb_array_subscript(PyObject *self, PyObject *key)
{
	static PyObject *get;
	usmb_array *a = (usmb_array *)self;
	usmb_region b;
	PyObject *args[2] = {self, key};
	int chosen = selective(key);
	if (chosen < 0) return NULL;
	if (chosen) return usmb_call_python(&get, "usmbridge._index", "_get", args, 2);
	if (region_of(a, key, &b) < 0) return NULL;
	int64_t bits = b.offset * a->itembits;
	if (bits % 8 != 0)
		return usmb_raise(
		        PyExc_ValueError, /* IndexError would end an iteration */
		        "a view of packed %d-bit elements must begin at a whole byte; item() reads one, and a "
		        "loop over the array copies each that has no view",
		        a->dtype.bits);
	return usmb_array_view(a, a->first + bits / 8, b.ndim, b.shape, b.strides);
}

/* ---- shapes -------------------------------------------------------------------- */

/* Replaces one -1 by the extent that remains, and checks the number of elements. */
static int complete_shape(usmb_array *a, int32_t ndim, int64_t *shape)
{
	int64_t known = 1;
	int32_t open = -1;
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] == -1 && open < 0) {
			open = i;
		} else if (shape[i] < 0 || __builtin_mul_overflow(known, shape[i], &known)) {
			usmb_raise(PyExc_ValueError, "reshape: invalid extent %lld; at most one can be -1",
			           (long long)shape[i]);
			return -1;
		}
	}
	if (open >= 0 && known > 0 && a->nelem % known == 0) {
		shape[open] = a->nelem / known;
		known = a->nelem;
		open = -1;
	}
	/* The array is empty, but its strides must be valid too. */
	int64_t span = a->itembits;
	for (int32_t i = 0; i < ndim && open < 0; i++)
		if (shape[i] > 0 && __builtin_mul_overflow(span, shape[i], &span)) {
			usmb_raise(PyExc_ValueError, "reshape: the new shape has strides that cannot be addressed");
			return -1;
		}
	if (open < 0 && known == a->nelem) return 0;
	usmb_raise(PyExc_ValueError, "reshape: the array has %lld elements, the new shape holds %lld",
	           (long long)a->nelem, (long long)known);
	return -1;
}

/* Strides of a view with the new shape: each run of old axes with one common step is split anew. 0
   if the layout needs a copy. */
static int view_strides(usmb_array *a, int32_t ndim, const int64_t *shape, int64_t *strides)
{
	int64_t os[USMB_DL_MAX_NDIM], ot[USMB_DL_MAX_NDIM];
	int32_t on = 0, oi = 0, ni = 0;
	if (a->nelem == 0 || (a->flags & USMB_ARR_C)) {
		usmb_fill_strides(ndim, shape, strides, 0);
		return 1;
	}
	for (int32_t i = 0; i < a->ndim; i++)
		if (usmb_shape(a)[i] != 1) {
			os[on] = usmb_shape(a)[i];
			ot[on++] = usmb_strides(a)[i];
		}
	while (oi < on && ni < ndim) {
		int32_t oj = oi + 1, nj = ni + 1;
		int64_t op = os[oi], np = shape[ni];
		while (op != np) {
			if (np < op)
				np *= shape[nj++];
			else
				op *= os[oj++];
		}
		for (int32_t k = oi; k < oj - 1; k++)
			if (ot[k] != os[k + 1] * ot[k + 1]) return 0;
		strides[nj - 1] = ot[oj - 1];
		for (int32_t k = nj - 1; k > ni; k--) strides[k - 1] = strides[k] * shape[k];
		oi = oj;
		ni = nj;
	}
	int64_t last = ni > 0 ? strides[ni - 1] : 1;
	for (; ni < ndim; ni++) strides[ni] = last; /* axes of length 1 at the end */
	return 1;
}

PyObject *usmb_array_reshape(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	usmb_array *a = (usmb_array *)self;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	PyObject *slots[2] = {NULL, NULL};
	PyObject *const names[2] = {usmb_name.shape, usmb_name.copy};
	/* reshape(2, 3) is the same as reshape((2, 3)). */
	Py_ssize_t more = n > 1 ? n - 1 : 0;
	if (usmb_args("reshape", args + more, n - more, kwnames, names, 2, 1, 1, slots) < 0) return NULL;
	int ndim = more ? usmb_parse_dim_args(args, n, shape, "reshape") : usmb_parse_dims(slots[0], shape, "reshape");
	int copy = ndim < 0 ? -1 : usmb_parse_copy(slots[1]);
	if (copy < 0 || complete_shape(a, ndim, shape) < 0) return NULL;
	if (copy != 1 && view_strides(a, ndim, shape, strides))
		return usmb_array_view(a, a->first, ndim, shape, strides);
	if (copy == 0)
		return usmb_raise(
		        PyExc_ValueError,
		        "reshape: no view has this shape and copy=False was asked for; leave copy out to get a copy");
	PyObject *dense = usmb_copy_to(a, NULL);
	if (!dense) return NULL;
	usmb_fill_strides(ndim, shape, strides, 0);
	PyObject *r = usmb_array_view((usmb_array *)dense, ((usmb_array *)dense)->first, ndim, shape, strides);
	Py_DECREF(dense);
	return r;
}

static PyObject *permuted(usmb_array *a, const int64_t *axes)
{
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	for (int32_t i = 0; i < a->ndim; i++) {
		shape[i] = usmb_shape(a)[axes[i]];
		strides[i] = usmb_strides(a)[axes[i]];
	}
	return usmb_array_view(a, a->first, a->ndim, shape, strides);
}

PyObject *usmb_array_T(PyObject *self, void *closure)
{
	usmb_array *a = (usmb_array *)self;
	int64_t axes[USMB_DL_MAX_NDIM];
	(void)closure;
	for (int32_t i = 0; i < a->ndim; i++) axes[i] = a->ndim - 1 - i;
	return permuted(a, axes);
}

PyObject *usmb_array_transpose(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	usmb_array *a = (usmb_array *)self;
	int64_t axes[USMB_DL_MAX_NDIM];
	uint64_t seen = 0;
	if (n == 0 || (n == 1 && args[0] == Py_None)) return usmb_array_T(self, NULL);
	int count = usmb_parse_dim_args(args, n, axes, "transpose");
	if (count < 0) return NULL;
	if (count != a->ndim)
		return usmb_raise(PyExc_ValueError, "transpose: %d axes given, the array has %d", count, a->ndim);
	for (int i = 0; i < count; i++) {
		if (axes[i] < 0) axes[i] += a->ndim;
		if (axes[i] < 0 || axes[i] >= a->ndim || (seen >> axes[i] & 1))
			return usmb_raise(PyExc_ValueError, "transpose: the axes must name each of 0..%d once",
			                  a->ndim - 1);
		seen |= UINT64_C(1) << axes[i];
	}
	return permuted(a, axes);
}

/* ==== Assignment ============================================================================== */

/* Go converts the elements; Python numbers are range-checked as NumPy does. */

static int writable(usmb_array *a)
{
	if (!(a->flags & USMB_ARR_READONLY)) return 0;
	usmb_raise(PyExc_ValueError, "the array is read-only; copy() it to write");
	return -1;
}

/* The value is converted as for slices, and lies beside the array. */
static PyObject *value_beside(usmb_array *a, PyObject *value)
{
	usmb_array *src = (usmb_array *)usmb_array_of_value(value, a->dtype);
	if (!src) return NULL;
	int same = src->dtype.code == a->dtype.code && src->dtype.bits == a->dtype.bits &&
	           src->cell->place == a->cell->place;
	usmb_where w;
	usmb_copy_beside(a, &w);
	PyObject *r = same ? Py_NewRef(src) : usmb_copy_as(src, a->dtype, &w);
	/* A view or a copy that only this assignment has. */
	if (r && same) {
		PyObject *view = usmb_array_view(src, src->first, src->ndim, usmb_shape(src), usmb_strides(src));
		Py_DECREF(r);
		r = view;
	}
	if (r && usmb_array_wait(src) < 0) Py_CLEAR(r);
	if (r) usmb_array_name_queue((usmb_array *)r, a->queue ? Py_NewRef(a->queue) : NULL);
	Py_DECREF(src);
	return r;
}

static int assign_selected(PyObject *self, PyObject *key, PyObject *value)
{
	static PyObject *set;
	PyObject *beside = value_beside((usmb_array *)self, value);
	PyObject *args[3] = {self, key, beside};
	PyObject *none = beside ? usmb_call_python(&set, "usmbridge._index", "_set", args, 3) : NULL;
	Py_XDECREF(beside);
	Py_XDECREF(none);
	return none ? 0 : -1;
}

int usmb_array_assign(PyObject *self, PyObject *key, PyObject *value)
{
	usmb_array *a = (usmb_array *)self;
	usmb_region part;
	usmb_owner_drain();
	if (!value) {
		usmb_raise(PyExc_ValueError, "elements of an array cannot be deleted");
		return -1;
	}
	if (writable(a) < 0) return -1;
	int chosen = selective(key);
	if (chosen) return chosen < 0 ? -1 : assign_selected(self, key, value);
	if (region_of(a, key, &part) < 0) return -1;
	usmb_array *src = (usmb_array *)usmb_array_of_value(value, a->dtype);
	int r = src ? usmb_assign_array(a, &part, src) : -1;
	Py_XDECREF(src);
	return r;
}

int usmb_array_assign_item(PyObject *self, Py_ssize_t i, PyObject *value)
{
	PyObject *key = PyLong_FromSsize_t(i);
	int r = key ? usmb_array_assign(self, key, value) : -1;
	Py_XDECREF(key);
	return r;
}

PyObject *usmb_array_fill(PyObject *self, PyObject *value)
{
	usmb_array *a = (usmb_array *)self;
	usmb_region all;
	usmb_owner_drain();
	if (writable(a) < 0) return NULL;
	usmb_array *src = (usmb_array *)usmb_array_of_value(value, a->dtype);
	int r = -1;
	usmb_whole(a, &all);
	if (src && src->ndim == 0)
		r = usmb_assign_array(a, &all, src);
	else if (src)
		usmb_raise(PyExc_ValueError,
		           "fill takes one number or a 0-d array, not one of %d dimensions; a[...] = x broadcasts",
		           src->ndim);
	Py_XDECREF(src);
	if (r < 0) return NULL;
	Py_RETURN_NONE;
}
