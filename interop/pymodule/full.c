/* full.c: new arrays filled with a value or made like others: ones, full and the four *_like
   functions. */
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "module.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

/* Writes value to all of dst, converted and broadcast. */
static int assign_all(usmb_array *dst, PyObject *value)
{
	usmb_region all;
	usmb_array *src = (usmb_array *)usmb_array_of_value(value, dst->dtype);
	usmb_whole(dst, &all);
	int r = src ? usmb_assign_array(dst, &all, src) : -1;
	Py_XDECREF(src);
	return r;
}

/* Makes an array filled with value; if value is NULL, with zeros if zero is set, else undefined. */
static PyObject *make(const usmb_where *w, int32_t ndim, const int64_t *shape, usmb_dl_dtype t, int fortran, int zero,
                      PyObject *value)
{
	PyObject *a = usmb_new_array(w, ndim, shape, t, fortran, zero ? USMB_ZEROS : value ? USMB_WRITTEN : USMB_ANY);
	if (a && value && assign_all((usmb_array *)a, value) < 0) Py_CLEAR(a);
	return a;
}

/* ---- ones, full ------------------------------------------------------------------- */

PyObject *usmb_py_ones(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	usmb_new_args in;
	(void)m;
	usmb_owner_drain();
	if (usmb_parse_new("ones", args, n, kw, NULL, &in) < 0) return NULL;
	PyObject *one = PyLong_FromLong(1), *r = NULL;
	if (one) r = make(&in.w, in.ndim, in.shape, in.t, in.fortran, 0, one);
	Py_XDECREF(one);
	usmb_new_args_clear(&in, r);
	return r;
}

PyObject *usmb_py_full(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	usmb_new_args in;
	PyObject *value = NULL, *r = NULL;
	(void)m;
	usmb_owner_drain();
	if (usmb_parse_new("full", args, n, kw, &value, &in) < 0) return NULL;
	if (in.typed || usmb_type_of_value(value, in.t, &in.t) == 0)
		r = make(&in.w, in.ndim, in.shape, in.t, in.fortran, 0, value);
	usmb_new_args_clear(&in, r);
	return r;
}

/* ---- …_like ----------------------------------------------------------------------- */

enum { ORDER_C, ORDER_F, ORDER_A, ORDER_K };

static int parse_order(PyObject *o, int *order)
{
	static const char *const names[] = {"C", "F", "A", "K"};
	*order = ORDER_K;
	return o ? usmb_parse_choice(o, names, 4, "order must be \"C\", \"F\", \"A\" or \"K\"", order) : 0;
}

/* Whether the result has Fortran order. */
static int like_fortran(usmb_array *a, int order)
{
	if (order == ORDER_A || order == ORDER_K) return a->flags & USMB_ARR_F && !(a->flags & USMB_ARR_C);
	return order == ORDER_F;
}

enum { LIKE_EMPTY, LIKE_ZEROS, LIKE_ONES, LIKE_FULL };

static PyObject *like(const char *func, int what, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	/* Only full_like has fill_value, as its second argument; NULL matches no keyword. */
	PyObject *const names[8] = {NULL,
	                            what == LIKE_FULL ? usmb_name.fill_value : NULL,
	                            usmb_name.dtype,
	                            usmb_name.usm_type,
	                            usmb_name.sycl_queue,
	                            usmb_name.device,
	                            usmb_name.order,
	                            usmb_name.interprocess};
	PyObject *v[8] = {NULL}, *one = NULL, *r = NULL;
	usmb_where w, near;
	usmb_dl_dtype t;
	int shift = what == LIKE_FULL ? 0 : 1, audience, order;
	usmb_owner_drain();
	if (shift && n > 1)
		return usmb_raise(PyExc_TypeError, "%s() takes 1 positional argument, %lld were given", func,
		                  (long long)n);
	if (usmb_args(func, args, n, kw, names, 8, shift ? 1 : 2, shift ? 1 : 2, v) < 0 ||
	    parse_order(v[6], &order) < 0 || usmb_parse_audience(v[7], &audience) < 0)
		return NULL;
	usmb_array *a = (usmb_array *)usmb_array_of(v[0]);
	if (!a) return NULL;
	if (usmb_array_begin(a) < 0) {
		Py_DECREF(a);
		return NULL;
	}
	t = a->dtype;
	if (usmb_given(v[2]) && usmb_parse_dtype(v[2], NULL, &t) < 0) goto done;
	if (usmb_parse_where(v[3], v[4], v[5], &w) == 0) {
		usmb_copy_beside(a, &near);
		int placed = usmb_has_device(&w);
		if (!placed && w.kind && !near.host) near.kind = w.kind;
		int own = !placed && !(w.kind && near.host);
		w.audience = near.audience = audience;
		one = what == LIKE_ONES ? PyLong_FromLong(1) : NULL;
		if (what != LIKE_ONES || one)
			r = make(own ? &near : &w, a->ndim, usmb_shape(a), t, like_fortran(a, order),
			         what == LIKE_ZEROS, what == LIKE_FULL ? v[1] : one);
		if (r && own && a->queue && !((usmb_array *)r)->queue) ((usmb_array *)r)->queue = Py_NewRef(a->queue);
		usmb_syclref_release(&w.queue, r != NULL && placed);
	}
	usmb_where_clear(&w);
	Py_XDECREF(one);
done:
	usmb_array_unhold(a);
	Py_DECREF(a);
	return r;
}

#define LIKE(name, what) \
	PyObject *usmb_py_##name(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw) \
	{ \
		(void)m; \
		return like(#name, what, args, n, kw); \
	}
LIKE(empty_like, LIKE_EMPTY)
LIKE(zeros_like, LIKE_ZEROS)
LIKE(ones_like, LIKE_ONES)
LIKE(full_like, LIKE_FULL)
