/* assign.c: writing elements: a[index] = value, fill. What a value becomes in an
   element type is Go's conversion; Python's numbers are checked as NumPy does. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_asarray.h"
#include "usmb_assign.h"
#include "usmb_index.h"
#include "usmb_storage.h"
#include "usmb_support.h"

static void whole(usmb_array *a, usmb_region *part)
{
	part->ndim = part->axis = a->ndim;
	part->offset = 0;
	if (a->ndim > 0) {
		memcpy(part->shape, usmb_shape(a), (size_t)a->ndim * sizeof *part->shape);
		memcpy(part->strides, usmb_strides(a), (size_t)a->ndim * sizeof *part->strides);
	}
}

/* src without the modes of one element that it has in front beyond ndim, which
   assignment passes over. */
static usmb_array *trimmed(usmb_array *src, int32_t ndim)
{
	int32_t skip = 0;
	while (src->ndim - skip > ndim && usmb_shape(src)[skip] == 1) skip++;
	if (skip == 0) return (usmb_array *)Py_NewRef(src);
	return (usmb_array *)usmb_array_view(src, src->first, src->ndim - skip, usmb_shape(src) + skip,
	                                     usmb_strides(src) + skip);
}

int usmb_assign_array(usmb_array *dst, const usmb_region *part, usmb_array *src)
{
	usmb_region where = *part;
	usmb_goerr err;
	int r = -1;
	if (usmb_go_allowed() < 0 || usmb_array_begin(src) < 0) return -1;
	usmb_array *from = trimmed(src, part->ndim);
	usmb_array *to = (usmb_array *)usmb_array_view(dst, dst->first, dst->ndim, usmb_shape(dst), usmb_strides(dst));
	if (from && to && usmb_array_wait(from) == 0 && usmb_array_wait(to) == 0) {
		err.kind = USMB_ERR_NONE;
		PyThreadState *saved = PyEval_SaveThread();
		r = usmb_go_assign(to, &where, from, &err);
		PyEval_RestoreThread(saved);
		if (r < 0) usmb_raise_go(&err);
	}
	Py_XDECREF(from);
	Py_XDECREF(to);
	usmb_array_let(src);
	return r;
}

int usmb_assign_all(usmb_array *dst, PyObject *value)
{
	usmb_region all;
	usmb_array *src = (usmb_array *)usmb_array_of_value(value, dst->dtype);
	whole(dst, &all);
	int r = src ? usmb_assign_array(dst, &all, src) : -1;
	Py_XDECREF(src);
	return r;
}

static int writable(usmb_array *a)
{
	if (!(a->flags & USMB_ARR_READONLY)) return 0;
	usmb_raise(PyExc_ValueError, "the array is read-only: assignment has no place to write to; copy() it first");
	return -1;
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
	if (writable(a) < 0 || usmb_array_region(a, key, &part) < 0) return -1;
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
	whole(a, &all);
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
