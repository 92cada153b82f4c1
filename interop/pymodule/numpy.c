/* numpy.c: Array as an argument of NumPy: __array__, __array_function__, asnumpy, and the element types that
   NumPy has from ml_dtypes. */

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "storage.h"
#include "support.h"

/* Calls a function of the package's module _numpy; *f caches it. */
static PyObject *call_python(PyObject **f, const char *function, PyObject *const *args, Py_ssize_t n)
{
	return usmb_call_python(f, "usmbridge._numpy", function, args, n);
}

/* ---- out ------------------------------------------------------------------------ */

/* Returns an ndarray of the elements of a. The host copies memory that it cannot read and elements that
   share bytes; other memory is copied as copy says (see usmb_parse_copy). A copy that the caller did not ask
   for is read-only, because writes to it would not reach a. */
static PyObject *ndarray_of(usmb_array *a, PyObject *dtype, int copy)
{
	static PyObject *function;
	PyObject *o;
	int fresh = 1;
	if (a->itembits < 8) {
		o = usmb_copy_padded(a, &usmb_on_host);
		if (o && copy != 1) ((usmb_array *)o)->flags |= USMB_ARR_READONLY;
	} else if (!(a->flags & USMB_ARR_READ)) {
		o = usmb_copy_to(a, &usmb_on_host);
	} else {
		/* A view, because an array that is released meanwhile refuses NumPy. */
		o = usmb_array_alone(a);
		fresh = 0;
	}
	if (!o) return NULL;
	PyObject *args[3] = {o, dtype ? dtype : Py_None,
	                     copy == 0             ? Py_False
	                     : copy == 1 && !fresh ? Py_True
	                                           : Py_None};
	PyObject *n = call_python(&function, "ndarray", args, 3);
	Py_DECREF(o);
	return n;
}

PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	return ndarray_of((usmb_array *)self, NULL, 1);
}

PyObject *usmb_array_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[2] = {usmb_name.dtype, usmb_name.copy};
	PyObject *v[2] = {NULL, NULL};
	usmb_array *a = (usmb_array *)self;
	int copy;
	usmb_owner_drain();
	if (usmb_args("__array__", args, n, kw, names, 2, 0, 2, v) < 0 || (copy = usmb_parse_copy(v[1])) < 0)
		return NULL;
	if (!(a->flags & USMB_ARR_READ))
		return usmb_raise(PyExc_TypeError, "the host cannot read USM device memory, so NumPy can have no view "
		                                   "of this Array; a.asnumpy() is a copy on the host");
	if (copy == 0 && a->itembits < 8) {
		usmb_no_copy(PyExc_ValueError, "a view of packed elements");
		return NULL;
	}
	return ndarray_of(a, v[0], copy);
}

PyObject *usmb_array_ufunc(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static PyObject *function;
	PyObject *v[2] = {args, kwargs ? kwargs : Py_None};
	(void)self;
	usmb_owner_drain();
	return call_python(&function, "array_ufunc", v, 2);
}

PyObject *usmb_numpy_text(PyObject *self, int number)
{
	static PyObject *functions[2];
	PyObject *numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"); /* borrowed */
	if (!usmb_given(numpy) || !usmb_dl_dtype_typestr(((usmb_array *)self)->dtype)) return NULL;
	PyObject *text = call_python(&functions[number], number ? "number" : "text", &self, 1);
	if (text && !PyUnicode_Check(text)) Py_CLEAR(text);
	return text;
}

/* NumPy's dtype for t. If NumPy, or ml_dtypes for its types, is not installed or has no such type, it is
   our own. */
static PyObject *public_dtype(usmb_dl_dtype t)
{
	const char *name = usmb_dl_dtype_name(t), *typestr = usmb_dl_dtype_typestr(t);
	PyObject *numpy = PyImport_ImportModule("numpy"), *type = NULL, *dtype = NULL;
	if (numpy && typestr) {
		type = PyUnicode_FromString(typestr);
	} else if (numpy && name) {
		PyObject *ml = PyImport_ImportModule("ml_dtypes");
		type = ml ? PyObject_GetAttrString(ml, name) : NULL;
		Py_XDECREF(ml);
	}
	if (type) dtype = PyObject_CallMethod(numpy, "dtype", "(O)", type);
	Py_XDECREF(type);
	Py_XDECREF(numpy);
	return dtype || usmb_ignore_exception() < 0 ? dtype : usmb_dtype_object(t);
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

PyObject *usmb_numpy_made(PyObject **f, const char *function, PyObject *o, int may_copy, const usmb_dl_dtype *want)
{
	int have = have_numpy();
	PyObject *type = have > 0 ? (want ? usmb_dtype_object(*want) : Py_NewRef(Py_None)) : NULL;
	PyObject *args[3] = {o, may_copy ? Py_True : Py_False, type};
	PyObject *made = type ? call_python(f, function, args, 3) : NULL;
	Py_XDECREF(type);
	return made;
}
