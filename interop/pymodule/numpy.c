/* numpy.c: Array as an argument of NumPy: __array__, __array_function__, asnumpy, and the element types that
   NumPy has from ml_dtypes. */
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "storage.h"
#include "support.h"

/* ---- out ------------------------------------------------------------------------ */

static const char *name_of(usmb_dl_dtype t)
{
	const char *name = usmb_dl_dtype_name(t);
	return name ? name : "this element type";
}

/* The scalar type of ml_dtypes for t, which is not a type of NumPy. */
static PyObject *ml_type(usmb_dl_dtype t)
{
	const char *name = usmb_dl_dtype_name(t);
	PyObject *ml = name ? PyImport_ImportModule("ml_dtypes") : NULL;
	PyObject *type = ml ? PyObject_GetAttrString(ml, name) : NULL;
	int missing = PyErr_Occurred() &&
	              (PyErr_ExceptionMatches(PyExc_ImportError) || PyErr_ExceptionMatches(PyExc_AttributeError));
	if (!type && (missing || !name)) {
		PyErr_Clear();
		usmb_raise(PyExc_TypeError,
		           "NumPy has no element type %s, and %s; install a newer one, or convert: "
		           "asarray(a, dtype=\"%s\").asnumpy()",
		           name_of(t),
		           ml ? "the ml_dtypes here has none either" : "ml_dtypes, which has, is not installed",
		           t.code == USMB_DL_COMPLEX ? "complex64" : "float32");
	}
	Py_XDECREF(ml);
	return type;
}

/* The same memory as unsigned integers of the element size. */
static PyObject *as_integers(usmb_array *a)
{
	usmb_dl_dtype t = {USMB_DL_UINT, (uint8_t)a->itembits, 1};
	return usmb_array_view_as(a, t, 0, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
}

/* The ndarray on the memory of a, which the host can read. Elements that share bytes are unpacked
   into new memory, and *fresh is set. */
static PyObject *ndarray_of(usmb_array *a, int *fresh)
{
	/* An array that was released meanwhile refuses NumPy; a view of it does not. */
	if (a->flags & USMB_ARR_RELEASED) {
		PyObject *view = usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
		PyObject *n = view ? ndarray_of((usmb_array *)view, fresh) : NULL;
		Py_XDECREF(view);
		return n;
	}
	*fresh = 0;
	PyObject *numpy = PyImport_ImportModule("numpy"), *r = NULL;
	if (!numpy) return NULL;
	if (usmb_dl_dtype_typestr(a->dtype)) {
		r = PyObject_CallMethod(numpy, "asarray", "O", a);
		Py_DECREF(numpy);
		return r;
	}
	PyObject *type = ml_type(a->dtype), *whole = NULL;
	if (type && a->itembits < 8) {
		*fresh = 1;
		whole = usmb_copy_padded(a, &usmb_on_host);
	} else if (type) {
		whole = Py_NewRef(a);
	}
	PyObject *integers = whole ? as_integers((usmb_array *)whole) : NULL;
	PyObject *raw = integers ? PyObject_CallMethod(numpy, "asarray", "O", integers) : NULL;
	if (raw) r = PyObject_CallMethod(raw, "view", "O", type);
	Py_XDECREF(raw);
	Py_XDECREF(integers);
	Py_XDECREF(whole);
	Py_XDECREF(type);
	Py_DECREF(numpy);
	return r;
}

PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused)
{
	usmb_array *a = (usmb_array *)self;
	PyObject *there = NULL;
	int fresh;
	(void)unused;
	usmb_owner_drain();
	if (!(a->flags & USMB_ARR_READ)) {
		there = usmb_copy_to(a, &usmb_on_host);
		if (!there) return NULL;
	}
	PyObject *r = ndarray_of(there ? (usmb_array *)there : a, &fresh);
	if (r && !there && !fresh) {
		PyObject *copy = PyObject_CallMethodObjArgs(r, usmb_name.copy, NULL);
		Py_DECREF(r);
		r = copy;
	}
	Py_XDECREF(there);
	return r;
}

/* ---- __array__ -------------------------------------------------------------------- */

static PyObject *not_readable(void)
{
	return usmb_raise(PyExc_TypeError, "the host cannot read USM device memory, so NumPy can have no view "
	                                   "of this Array; a.asnumpy() is a copy on the host");
}

/* Converts r, an ndarray, to dtype, and copies it if required; takes over r. copy: 0 never, 1
   always, 2 if needed. */
static PyObject *as_asked(PyObject *r, PyObject *dtype, int copy, int fresh)
{
	PyObject *had = usmb_given(dtype) ? PyObject_GetAttr(r, usmb_name.dtype) : NULL;
	PyObject *equal = had ? PyObject_RichCompare(had, dtype, Py_EQ) : NULL;
	int same = !usmb_given(dtype) ? 1 : equal ? PyObject_IsTrue(equal) : -1;
	Py_XDECREF(equal);
	Py_XDECREF(had);
	PyObject *out = NULL;
	if (same == 0 && (copy != 0 || usmb_no_copy(PyExc_ValueError, "another element type") == 0))
		out = PyObject_CallMethod(r, "astype", "O", dtype);
	else if (same == 1 && copy == 1 && !fresh)
		out = PyObject_CallMethodObjArgs(r, usmb_name.copy, NULL);
	else if (same == 1)
		out = Py_NewRef(r);
	Py_DECREF(r);
	return out;
}

PyObject *usmb_array_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[2] = {usmb_name.dtype, usmb_name.copy};
	PyObject *v[2] = {NULL, NULL};
	usmb_array *a = (usmb_array *)self;
	int copy, fresh;
	usmb_owner_drain();
	if (usmb_args("__array__", args, n, kw, names, 2, 0, 2, v) < 0 || (copy = usmb_parse_copy(v[1])) < 0)
		return NULL;
	if (!(a->flags & USMB_ARR_READ)) return not_readable();
	if (copy == 0 && a->itembits < 8) {
		usmb_no_copy(PyExc_ValueError, "a view of packed elements");
		return NULL;
	}
	PyObject *r = ndarray_of(a, &fresh);
	return r ? as_asked(r, v[0], copy, fresh) : NULL;
}

/* ---- __array_function__ ------------------------------------------------------------- */

static PyObject *call_python(PyObject **f, const char *function, PyObject *const *args, Py_ssize_t n)
{
	return usmb_call_python(f, "usmbridge._numpy", function, args, n);
}

PyObject *usmb_array_ufunc(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static PyObject *function;
	PyObject *v[2] = {args, kwargs ? kwargs : Py_None};
	(void)self;
	usmb_owner_drain();
	return call_python(&function, "array_ufunc", v, 2);
}

PyObject *usmb_numpy_text(PyObject *self)
{
	static PyObject *function;
	PyObject *numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"); /* borrowed */
	if (!usmb_given(numpy) || !usmb_dl_dtype_typestr(((usmb_array *)self)->dtype)) return NULL;
	PyObject *text = call_python(&function, "text", &self, 1);
	if (text && !PyUnicode_Check(text)) Py_CLEAR(text);
	return text;
}

/* NumPy's dtype for t, or NULL without an exception if there is none: NumPy, or ml_dtypes for its
   types, is not installed or is too old. */
static PyObject *numpy_dtype(usmb_dl_dtype t)
{
	PyObject *numpy = PyImport_ImportModule("numpy");
	PyObject *type = NULL, *dtype = NULL;
	if (numpy && usmb_dl_dtype_typestr(t))
		type = PyUnicode_FromString(usmb_dl_dtype_typestr(t));
	else if (numpy)
		type = ml_type(t);
	if (type) dtype = PyObject_CallMethod(numpy, "dtype", "O", type);
	Py_XDECREF(type);
	Py_XDECREF(numpy);
	if (!dtype && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
	return dtype;
}

static PyObject *public_dtype(usmb_dl_dtype t)
{
	PyObject *o = numpy_dtype(t);
	return o || PyErr_Occurred() ? o : usmb_dtype_object(t);
}

PyObject *usmb_dtype_public(usmb_dl_dtype t)
{
	static usmb_dtype_place made[USMB_DTYPE_PLACES];
	return usmb_dtype_cached(made, t, public_dtype);
}

PyObject *usmb_array_function(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	(void)self;
	static PyObject *function;
	usmb_owner_drain();
	return call_python(&function, "array_function", args, n);
}

/* ---- in --------------------------------------------------------------------------- */

/* Reads the element type of o's dtype and reports whether it is a type of ml_dtypes in this
   machine's byte order. An attribute that raises leaves its exception. */
static int ml_dtype_of(PyObject *o, usmb_dl_dtype *t)
{
	PyObject *dtype = usmb_optional_attr(o, usmb_name.dtype);
	PyObject *name = dtype ? usmb_optional_attr(dtype, usmb_name.name) : NULL;
	const char *s = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	int is = s && usmb_dl_dtype_by_name(s, t) == USMB_DL_OK && !usmb_dl_dtype_typestr(*t) &&
	         usmb_native_order(dtype) > 0;
	Py_XDECREF(name);
	Py_XDECREF(dtype);
	return is;
}

PyObject *usmb_import_ml(PyObject *o)
{
	static const char *const words[] = {"uint8", "uint16", "uint32"};
	usmb_dl_dtype t;
	if (!ml_dtype_of(o, &t)) return NULL;
	int bits = t.bits <= 8 ? 8 : t.bits;
	PyObject *raw = PyObject_CallMethod(o, "view", "s", words[bits / 16]);
	usmb_array *a = raw ? (usmb_array *)usmb_import_object(raw) : NULL;
	PyObject *r = NULL;
	if (a && a->itembits == (uint32_t)bits)
		r = usmb_array_view_as(a, t, t.bits < 8 ? USMB_ARR_PADDED : 0, a->first, a->ndim, usmb_shape(a),
		                       usmb_strides(a));
	else if (a)
		usmb_raise(PyExc_TypeError, "asarray: a view of %s elements as %s is of another size",
		           usmb_dl_dtype_name(t), words[bits / 16]);
	Py_XDECREF(a);
	Py_XDECREF(raw);
	return r;
}

/* Whether NumPy can be imported; -1 with an exception other than ImportError. */
static int have_numpy(void)
{
	PyObject *numpy = PyImport_ImportModule("numpy");
	Py_XDECREF(numpy);
	if (numpy) return 1;
	if (!PyErr_ExceptionMatches(PyExc_ImportError)) return -1;
	PyErr_Clear();
	return 0;
}

int usmb_numpy_protocol(PyObject *o)
{
	PyObject *const names[] = {usmb_name.__array_interface__, usmb_name.__array_struct__, usmb_name.__array__};
	for (int i = 0; i < 3; i++) {
		PyObject *v = usmb_optional_attr(o, names[i]);
		if (!v && PyErr_Occurred()) return -1;
		Py_XDECREF(v);
		if (!v) continue;
		int have = have_numpy();
		return have <= 0 ? have : i < 2 ? USMB_NUMPY_SHARES : USMB_NUMPY_MAY_COPY;
	}
	return USMB_NUMPY_NONE;
}

PyObject *usmb_numpy_view(PyObject *o)
{
	static PyObject *function;
	return call_python(&function, "view", &o, 1);
}

PyObject *usmb_numpy_asarray(PyObject *o)
{
	PyObject *numpy = PyImport_ImportModule("numpy");
	PyObject *r = numpy ? PyObject_CallMethod(numpy, "asarray", "O", o) : NULL;
	Py_XDECREF(numpy);
	return r;
}
