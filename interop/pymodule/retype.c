/* retype.c: the elements as another type: view on the same bytes, astype by
   conversion; and the array without leave to write. */
#include "usmb_array.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_dtype.h"
#include "usmb_retype.h"
#include "usmb_storage.h"
#include "usmb_support.h"

static int cannot(usmb_array *a, usmb_dl_dtype t, const char *why)
{
	const char *from = usmb_dl_dtype_name(a->dtype), *to = usmb_dl_dtype_name(t);
	usmb_raise(PyExc_ValueError, "view of %s elements as %s: %s; astype converts, copy() makes them lie in a row",
	           from ? from : "these", to ? to : "others", why);
	return -1;
}

/* The layout of a, counted in elements of t, whose size is another one: the last axis
   is cut anew, the others keep their bytes. */
static int recount(usmb_array *a, usmb_dl_dtype t, int64_t *shape, int64_t *strides)
{
	int64_t have = a->itembits, want = t.bits;
	int32_t last = a->ndim - 1;
	if (last < 0) return cannot(a, t, "a 0-d array has no axis to cut anew for elements of another size");
	int64_t n = usmb_shape(a)[last], bits;
	if (n != 1 && a->nelem != 0 && usmb_strides(a)[last] != 1)
		return cannot(a, t, "the elements of the last axis do not lie in a row");
	if (__builtin_mul_overflow(n, have, &bits) || bits % want != 0)
		return cannot(a, t, "the last axis is no whole number of elements of the new size");
	for (int32_t i = 0; i < last; i++) {
		int64_t step;
		shape[i] = usmb_shape(a)[i];
		int unused = shape[i] == 1 || a->nelem == 0;
		int over = __builtin_mul_overflow(usmb_strides(a)[i], have, &step);
		if (!unused && (over || step % want != 0))
			return cannot(a, t, "the steps of an axis are no whole numbers of elements of the new size");
		strides[i] = over ? 1 : step / want;
	}
	shape[last] = bits / want;
	strides[last] = 1;
	return 0;
}

/* Whether Go could count from the start of the memory to a->first in elements of t. */
static int counts(usmb_array *a, usmb_dl_dtype t)
{
	return (uint64_t)(a->first - (char *)a->cell->data) * 8 % t.bits == 0;
}

PyObject *usmb_array_retype(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[1] = {usmb_name.dtype};
	PyObject *v[1] = {NULL};
	usmb_array *a = (usmb_array *)self;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	usmb_dl_dtype t;
	usmb_owner_drain();
	if (usmb_args("view", args, n, kw, names, 1, 1, 1, v) < 0) return NULL;
	if (!usmb_given(v[0]))
		return usmb_raise(PyExc_TypeError, "view takes an element type; a[...] is a view as it is");
	if (usmb_parse_dtype(v[0], NULL, &t) < 0) return NULL;
	int same = t.code == a->dtype.code && t.bits == a->dtype.bits;
	if (same || t.bits == a->itembits)
		return usmb_array_view_as(a, t, same ? a->flags : 0, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
	/* Padded elements are seen as others that are padded, where those are as narrow. */
	if (a->dtype.bits < 8 && a->flags & USMB_ARR_PADDED && t.bits == a->dtype.bits)
		return usmb_array_view_as(a, t, a->flags, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
	if (recount(a, t, shape, strides) < 0) return NULL;
	if (!counts(a, t)) return usmb_array_rooted(a, t, 0, usmb_array_place(a), a->ndim, shape, strides);
	return usmb_array_view_as(a, t, 0, a->first, a->ndim, shape, strides);
}

PyObject *usmb_array_astype(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[2] = {usmb_name.dtype, usmb_name.copy};
	PyObject *v[2] = {NULL, NULL};
	usmb_array *a = (usmb_array *)self;
	usmb_dl_dtype t;
	int copy = 1;
	usmb_owner_drain();
	if (usmb_args("astype", args, n, kw, names, 2, 1, 1, v) < 0 || usmb_parse_dtype(v[0], "float64", &t) < 0)
		return NULL;
	if (v[1] && (copy = PyObject_IsTrue(v[1])) < 0) return NULL;
	if (!copy && t.code == a->dtype.code && t.bits == a->dtype.bits) return Py_NewRef(self);
	return usmb_copy_as(a, t, NULL);
}

PyObject *usmb_array_as_readonly(PyObject *self, PyObject *unused)
{
	usmb_array *a = (usmb_array *)self;
	(void)unused;
	usmb_owner_drain();
	return usmb_array_view_as(a, a->dtype, a->flags | USMB_ARR_READONLY, a->first, a->ndim, usmb_shape(a),
	                          usmb_strides(a));
}
