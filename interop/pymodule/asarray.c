/* asarray.c: the array of any object. */
#include "usmb_array.h"
#include "usmb_arrow.h"
#include "usmb_asarray.h"
#include "usmb_buffer.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_dtype.h"
#include "usmb_import.h"
#include "usmb_numpy.h"
#include "usmb_storage.h"
#include "usmb_suai.h"
#include "usmb_support.h"

/* Why one way failed, set aside while another is tried. */
struct failure {
	PyObject *type, *value, *trace;
};

static void set_aside(struct failure *f)
{
	PyErr_Fetch(&f->type, &f->value, &f->trace);
}

/* The other way's answer r; where it has none, why the first one failed is told, unless the
   other failed too and is to tell (told). */
static PyObject *settle(struct failure *f, PyObject *r, int told)
{
	if (!r && !(told && PyErr_Occurred())) {
		PyErr_Restore(f->type, f->value, f->trace);
		return NULL;
	}
	Py_XDECREF(f->type);
	Py_XDECREF(f->value);
	Py_XDECREF(f->trace);
	return r;
}

/* The answer of a protocol; where it failed and o is an ndarray of one of ml_dtypes'
   types, which no protocol of NumPy's can say, by that. */
static PyObject *or_ml(PyObject *o, PyObject *answer)
{
	struct failure f;
	if (answer || !(PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)))
		return answer;
	set_aside(&f);
	return settle(&f, usmb_import_ml(o), 1);
}

/* The answer of DLPack; where o may not say it so and has a buffer, by that: read-only
   arrays of NumPy before 2.1, whose tensors have no such flag. */
static PyObject *or_buffer(PyObject *o, PyObject *answer)
{
	struct failure f;
	if (answer || !PyErr_ExceptionMatches(PyExc_BufferError) || !PyObject_CheckBuffer(o)) return answer;
	set_aside(&f);
	return settle(&f, usmb_import_buffer(o), 0);
}

/* The answer of DLPack; where it failed and o speaks Arrow too, by that: pyarrow has
   __dlpack__ for each of its arrays, and knows no tensors, no slices with nulls before
   them, and no booleans there. */
static PyObject *or_arrow(PyObject *o, PyObject *answer, int may_copy)
{
	struct failure f;
	if (answer || !(PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
	                PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_NotImplementedError)))
		return answer;
	set_aside(&f);
	return settle(&f, usmb_import_arrow(o, may_copy), 1);
}

/* The array of n, an ndarray that NumPy has made of another object, or NULL; takes n. */
static PyObject *of_ndarray(PyObject *n)
{
	PyObject *a = n ? or_buffer(n, or_ml(n, usmb_import_object(n))) : NULL;
	Py_XDECREF(n);
	return a;
}

/* Imports an object without a buffer by NumPy's array protocols or Arrow's C data interface.
   The array protocols go first: they have the shape of the elements. Arrow has a column of
   them, which Pillow's images pad to four bytes for each pixel. But __array__ may copy: it is
   asked for a view, then Arrow is, and only then for a copy. */
static PyObject *take_column(PyObject *o, int may_copy)
{
	struct failure f;
	int arrow = !PyList_Check(o) && !PyTuple_Check(o), has = usmb_numpy_protocol(o);
	if (has < 0) return NULL;
	if (has == USMB_NUMPY_SHARES) return of_ndarray(usmb_numpy_asarray(o));
	if (has == USMB_NUMPY_NONE) return arrow ? usmb_import_arrow(o, may_copy) : NULL;
	PyObject *a = of_ndarray(usmb_numpy_view(o));
	if (a || !PyErr_ExceptionMatches(PyExc_Exception)) return a;
	set_aside(&f);
	a = arrow ? usmb_import_arrow(o, 0) : NULL;
	int failed = !a && usmb_clear_exception() == 0;
	a = settle(&f, a, 1);
	if (!failed || !may_copy) return a;
	PyErr_Clear();
	return of_ndarray(usmb_numpy_asarray(o));
}

/* Imports o by the first protocol that it has: SUAI, DLPack (with the fallbacks of the
   or_ functions), the buffer protocol, take_column's. NULL without an exception if it has none
   of them. may_copy: whether elements that cannot be shared may be copied. typed: whether the
   caller makes elements of a given type: numbers that have a buffer, NumPy's scalars, are then
   read as numbers, whose range is checked. */
static PyObject *take(PyObject *o, int may_copy, int typed)
{
	if (usmb_is_array(o)) return usmb_array_alive((usmb_array *)o) ? Py_NewRef(o) : NULL;
	PyObject *v = usmb_import_memory(o);
	if (v || PyErr_Occurred()) return v;
	v = usmb_optional_attr(o, usmb_name.__sycl_usm_array_interface__);
	if (v) {
		PyObject *r = usmb_import_suai(o, v);
		Py_DECREF(v);
		return r;
	}
	if (PyErr_Occurred()) return NULL;
	v = usmb_optional_attr(o, usmb_name.__dlpack__);
	if (v) {
		Py_DECREF(v);
		return or_arrow(o, or_buffer(o, or_ml(o, usmb_import_object(o))), may_copy);
	}
	if (PyErr_Occurred()) return NULL;
	if (PyCapsule_CheckExact(o)) return usmb_import_object(o);
	/* A number is one without its buffer too: the scalars of ml_dtypes give none. */
	int number = PyNumber_Check(o) && !PySequence_Check(o);
	if (number && (typed || !PyObject_CheckBuffer(o))) return NULL;
	if (!PyObject_CheckBuffer(o)) return take_column(o, may_copy);
	PyObject *a = or_ml(o, usmb_import_buffer(o));
	if (!number) return a;
	/* The value of a number is in its buffer only if that has no axes: NumPy's datetime64 shows
	   its bytes. Otherwise the number is read as one. */
	if (!a) PyErr_Clear();
	if (a && ((usmb_array *)a)->ndim != 0) Py_CLEAR(a);
	return a;
}

PyObject *usmb_take_memory(PyObject *o)
{
	return take(o, 1, 0);
}

int usmb_is_exporter(PyObject *o)
{
	PyObject *const names[] = {usmb_name.__sycl_usm_array_interface__, usmb_name.__dlpack__,
	                           usmb_name.__array_interface__, usmb_name.__array__, usmb_name.__arrow_c_array__};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		PyObject *v = PyObject_GetAttr((PyObject *)Py_TYPE(o), names[i]);
		if (!v) PyErr_Clear();
		Py_XDECREF(v);
		if (v) return 1;
	}
	return 0;
}

PyObject *usmb_take_object(PyObject *o)
{
	char type[64];
	PyObject *r = take(o, 0, 0);
	if (!r && !PyErr_Occurred())
		usmb_raise(
		        PyExc_TypeError,
		        "%s has neither __sycl_usm_array_interface__ nor __dlpack__ nor a buffer nor __arrow_c_array__ "
		        "nor __array__",
		        usmb_type_name(o, type, sizeof type));
	return r;
}

static int no_copy(const char *why)
{
	usmb_raise(PyExc_ValueError, "asarray: copy=False, but %s takes a copy; leave copy out to allow it", why);
	return -1;
}

/* The memory of src as it is asked for: itself where that will do. */
static PyObject *adapt_held(usmb_array *src, const usmb_dl_dtype *dtype, const usmb_where *w, int copy)
{
	int retype = dtype && (dtype->code != src->dtype.code || dtype->bits != src->dtype.bits);
	int there = !w || usmb_is_at(src, w);
	usmb_where room;
	if (!retype && copy != 1) {
		if (there) return usmb_stay(src, w);
		if (w->host && src->flags & USMB_ARR_READ) return usmb_as_host(src);
	}
	if (copy == 0) {
		no_copy(retype ? "another element type" : "another place");
		return NULL;
	}
	return usmb_copy_as(src, retype ? *dtype : src->dtype, there ? usmb_near(src, w, &room) : w);
}

static PyObject *adapt(usmb_array *src, const usmb_dl_dtype *dtype, const usmb_where *w, int copy)
{
	if (usmb_array_begin(src) < 0) return NULL;
	PyObject *a = adapt_held(src, dtype, w, copy);
	usmb_array_let(src);
	return a;
}

/* Memory where o has some, else a sequence of numbers. */
static PyObject *asarray(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w, int copy)
{
	PyObject *a = take(o, copy != 0, dtype != NULL), *r;
	if (a) {
		r = adapt((usmb_array *)a, dtype, w, copy);
		Py_DECREF(a);
		return r;
	}
	r = PyErr_Occurred() ? NULL : usmb_from_sequence(o, dtype, w);
	if (r && copy == 0 && no_copy("making an array of Python numbers") < 0) Py_CLEAR(r);
	return r;
}

PyObject *usmb_array_of(PyObject *o)
{
	return asarray(o, NULL, NULL, 2);
}

PyObject *usmb_array_of_value(PyObject *o, usmb_dl_dtype t)
{
	PyObject *a = take(o, 1, 1);
	return a || PyErr_Occurred() ? a : usmb_from_numbers(o, t);
}

PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[5] = {NULL, usmb_name.dtype, usmb_name.usm_type, usmb_name.device, usmb_name.copy};
	PyObject *v[5] = {NULL, NULL, NULL, NULL, NULL};
	usmb_dl_dtype dtype;
	usmb_where w;
	int copy = 2;
	(void)m;
	usmb_owner_drain();
	if (usmb_args("asarray", args, n, kw, names, 5, 1, 1, v) < 0) return NULL;
	if (usmb_given(v[4]) && (copy = PyObject_IsTrue(v[4])) < 0) return NULL;
	if (usmb_given(v[1]) && usmb_parse_dtype(v[1], NULL, &dtype) < 0) return NULL;
	PyObject *a = NULL;
	if (usmb_parse_where(v[2], NULL, v[3], &w) == 0) {
		int placed = w.kind || usmb_has_device(&w);
		a = asarray(v[0], usmb_given(v[1]) ? &dtype : NULL, placed ? &w : NULL, copy);
	}
	usmb_where_clear(&w);
	return a;
}
