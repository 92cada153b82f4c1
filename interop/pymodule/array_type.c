/* array_type.c: the Python type Array: its attributes, methods, operators and conversions of
   elements to numbers. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "module.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

/* ==== Elements as Python numbers ============================================================== */

/* ---- reading ------------------------------------------------------------------- */

/* The type that holds every value of t and that C can read: t itself if C has it. */
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

/* The array itself if C can read its elements, else a copy in host memory, which Go converts. Waits
   for work on it. */
static usmb_array *readable(usmb_array *a)
{
	usmb_dl_dtype t = readable_type(a->dtype);
	if (a->flags & USMB_ARR_READ && t.code == a->dtype.code && t.bits == a->itembits)
		return usmb_array_wait(a) < 0 ? NULL : (usmb_array *)Py_NewRef(a);
	return (usmb_array *)usmb_copy_as(a, t, &usmb_on_host);
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

/* Reads the element at p, of a readable type. */
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

/* Reads the number at a position in elements from the first. For packed elements the position can
   start within a byte. */
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

/* The number in an array of one element; otherwise an exception of that kind that names the operation. */
static PyObject *only_number(PyObject *self, const char *what, PyObject *kind)
{
	usmb_array *a = (usmb_array *)self;
	usmb_owner_drain();
	if (a->nelem == 1) return number_of(a, 0);
	return usmb_raise(kind,
	                  "%s needs an array of one element, this one has %lld; index it, or use numpy.asarray(a) if "
	                  "the host can read it, or a.asnumpy()",
	                  what, (long long)a->nelem);
}

/* The same, converted by convert. */
static PyObject *converted(PyObject *self, const char *what, PyObject *(*convert)(PyObject *))
{
	PyObject *v = only_number(self, what, PyExc_TypeError);
	PyObject *r = v ? convert(v) : NULL;
	Py_XDECREF(v);
	return r;
}

static PyObject *array_int(PyObject *self)
{
	return converted(self, "int()", PyNumber_Long);
}

static PyObject *array_float(PyObject *self)
{
	return converted(self, "float()", PyNumber_Float);
}

static PyObject *as_complex(PyObject *v)
{
	return PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, v, NULL);
}

static PyObject *array_complex(PyObject *self, PyObject *unused)
{
	(void)unused;
	return converted(self, "complex()", as_complex);
}

static PyObject *array_index(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	const char *name = usmb_dl_dtype_name(a->dtype);
	if (a->ndim == 0 && (a->dtype.code == USMB_DL_INT || a->dtype.code == USMB_DL_UINT))
		return only_number(self, "an index", PyExc_TypeError);
	return usmb_raise(PyExc_TypeError,
	                  "only an integer array of 0 dimensions is an index, this one has elements of type %s and %d "
	                  "dimensions; int(a) reads the only element",
	                  name ? name : "another library", a->ndim);
}

static int array_bool(PyObject *self)
{
	PyObject *v = only_number(self, "bool()", PyExc_ValueError);
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

/* The position of the element with index i in C order. */
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

static int position_at(usmb_array *a, const int64_t *index, int n, int64_t *position)
{
	*position = 0;
	if (n != a->ndim) {
		usmb_raise(PyExc_ValueError, "item: %d indices for an array of %d dimensions", n, a->ndim);
		return -1;
	}
	for (int32_t k = 0; k < a->ndim; k++) {
		int64_t i = index[k];
		if (in_range(&i, usmb_shape(a)[k], "an axis of size") < 0) return -1;
		if (a->nelem > 0) *position += i * usmb_strides(a)[k];
	}
	return 0;
}

static PyObject *array_item(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	usmb_array *a = (usmb_array *)self;
	int64_t index[USMB_DL_MAX_NDIM], position = 0;
	usmb_owner_drain();
	if (n == 0 && a->nelem == 1) return number_of(a, 0);
	if (n == 0)
		return usmb_raise(PyExc_ValueError,
		                  "item() needs an index unless the array has one element; this one has %lld",
		                  (long long)a->nelem);
	int flat = n == 1 && PyIndex_Check(args[0]);
	int count = flat ? usmb_parse_dim(args[0], index, "item") : usmb_parse_dim_args(args, n, index, "item");
	if (count < 0) return NULL;
	int bad = flat ? flat_position(a, index[0], &position) : position_at(a, index, count, &position);
	return bad ? NULL : number_of(a, position);
}

/* ---- tobytes and format() --------------------------------------------------------- */

static PyObject *array_tobytes(PyObject *self, PyObject *unused)
{
	usmb_array *a = (usmb_array *)self;
	(void)unused;
	usmb_owner_drain();
	int direct = a->flags & USMB_ARR_READ && a->flags & USMB_ARR_C;
	usmb_array *dense = direct ? (usmb_array *)Py_NewRef(a) : (usmb_array *)usmb_copy_to(a, &usmb_on_host);
	PyObject *r = NULL;
	if (dense && usmb_array_wait(dense) == 0)
		r = PyBytes_FromStringAndSize(dense->first, (Py_ssize_t)usmb_nbytes(dense));
	Py_XDECREF(dense);
	return r;
}

static PyObject *array_format(PyObject *self, PyObject *spec)
{
	if (((usmb_array *)self)->ndim == 0) {
		PyObject *v = number_of((usmb_array *)self, 0);
		PyObject *r = v ? PyObject_CallMethod(v, "__format__", "(O)", spec) : NULL;
		Py_XDECREF(v);
		return r;
	}
	if (PyUnicode_Check(spec) && PyUnicode_GetLength(spec) == 0) return PyObject_Str(self);
	return usmb_raise(PyExc_TypeError,
	                  "format() takes a format of numbers for an array of 0 dimensions, this one has %d; index it",
	                  ((usmb_array *)self)->ndim);
}

/* ---- tolist -------------------------------------------------------------------- */

static PyObject *list_of(usmb_array *a, const char *p, int32_t axis)
{
	if (axis == a->ndim) return number_at(p, a->dtype);
	int64_t n = usmb_shape(a)[axis], step = 0;
	/* Without elements the stride is arbitrary and not used. */
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

static PyObject *array_tolist(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	usmb_array *read = readable((usmb_array *)self);
	PyObject *list = read ? list_of(read, read->first, 0) : NULL;
	Py_XDECREF(read);
	return list;
}

/* ==== Other element types ===================================================================== */

static int cannot(usmb_array *a, usmb_dl_dtype t, const char *why)
{
	const char *from = usmb_dl_dtype_name(a->dtype), *to = usmb_dl_dtype_name(t);
	usmb_raise(PyExc_ValueError,
	           "view of %s elements as %s: %s; astype() converts, copy() makes the elements contiguous",
	           from ? from : "these", to ? to : "others", why);
	return -1;
}

/* Computes the layout of a in elements of t, which has another size: the last axis is split anew,
   the others keep their steps in bytes. */
static int recount(usmb_array *a, usmb_dl_dtype t, int64_t *shape, int64_t *strides)
{
	int64_t have = a->itembits, want = t.bits;
	int32_t last = a->ndim - 1;
	if (last < 0) return cannot(a, t, "a 0-d array has no axis for elements of another size");
	int64_t n = usmb_shape(a)[last], bits;
	if (n != 1 && a->nelem != 0 && usmb_strides(a)[last] != 1)
		return cannot(a, t, "the elements of the last axis are not contiguous");
	if (__builtin_mul_overflow(n, have, &bits) || bits % want != 0)
		return cannot(a, t, "the last axis is not a whole number of elements of the new size");
	for (int32_t i = 0; i < last; i++) {
		int64_t step;
		shape[i] = usmb_shape(a)[i];
		int unused = shape[i] == 1 || a->nelem == 0;
		int over = __builtin_mul_overflow(usmb_strides(a)[i], have, &step);
		if (!unused && (over || step % want != 0))
			return cannot(a, t, "the steps of an axis are not whole numbers of elements of the new size");
		strides[i] = over ? 1 : step / want;
	}
	shape[last] = bits / want;
	strides[last] = 1;
	return 0;
}

/* The method view. */
static PyObject *array_retype(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[1] = {usmb_name.dtype};
	PyObject *v[1] = {NULL};
	usmb_array *a = (usmb_array *)self;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	usmb_dl_dtype t;
	usmb_owner_drain();
	if (usmb_args("view", args, n, kw, names, 1, 0, 1, v) < 0) return NULL;
	t = a->dtype;
	if (usmb_given(v[0]) && usmb_parse_dtype(v[0], NULL, &t) < 0) return NULL;
	int same = t.code == a->dtype.code && t.bits == a->dtype.bits;
	if (same || t.bits == a->itembits)
		return usmb_array_view_as(a, t, same ? a->flags : 0, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
	/* Padded elements can be viewed as another padded type of the same width. */
	if (a->dtype.bits < 8 && a->flags & USMB_ARR_PADDED && t.bits == a->dtype.bits)
		return usmb_array_view_as(a, t, a->flags, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
	if (recount(a, t, shape, strides) < 0) return NULL;
	if (!usmb_array_counts(a, t.bits))
		return usmb_array_rooted(a, t, 0, usmb_array_place(a), a->ndim, shape, strides);
	return usmb_array_view_as(a, t, 0, a->first, a->ndim, shape, strides);
}

static PyObject *array_astype(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
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

static PyObject *array_as_readonly(PyObject *self, PyObject *unused)
{
	usmb_array *a = (usmb_array *)self;
	(void)unused;
	usmb_owner_drain();
	return usmb_array_view_as(a, a->dtype, a->flags | USMB_ARR_READONLY, a->first, a->ndim, usmb_shape(a),
	                          usmb_strides(a));
}

/* ==== Operators =============================================================================== */

/* usmbridge.array_api computes them: it gives the memory to dpnp or NumPy. usmbridge._operators has the rules for
   operands of other libraries. */

/* Calls a function of array_api; *f caches it. */
static PyObject *api(PyObject **f, const char *function, PyObject *a)
{
	return usmb_call_python(f, "usmbridge.array_api", function, &a, 1);
}

/* The same for a function of _operators. */
static PyObject *operate(PyObject **f, const char *function, PyObject *a, PyObject *b)
{
	PyObject *args[2] = {a, b};
	return usmb_call_python(f, "usmbridge._operators", function, args, 2);
}

/* Whether _operators decides about an operator with o and an Array: for numbers, sequences, and objects that
   have memory or operators of NumPy's kind. Any other object, such as None or a string, is unrelated. -1 with
   an exception. */
static int is_operand(PyObject *o)
{
	PyObject *const names[] = {usmb_name.__sycl_usm_array_interface__,
	                           usmb_name.__dlpack__,
	                           usmb_name.__array_ufunc__,
	                           usmb_name.__array_priority__,
	                           usmb_name.__array__,
	                           usmb_name.__array_interface__,
	                           usmb_name.__array_struct__};
	if (usmb_is_array(o) || PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o)) return 1;
	if (o == Py_None || PyUnicode_Check(o) || PyBytes_Check(o)) return 0;
	if (PyType_GetFlags(Py_TYPE(o)) & Py_TPFLAGS_SEQUENCE || PyObject_CheckBuffer(o)) return 1;
	return usmb_type_has(o, names, sizeof names / sizeof *names);
}

static PyObject *binary(PyObject **f, const char *function, PyObject *a, PyObject *b)
{
	int both = is_operand(a);
	if (both > 0) both = is_operand(b);
	if (both < 0) return NULL;
	return both ? operate(f, function, a, b) : Py_NewRef(Py_NotImplemented);
}

/* ---- comparison ----------------------------------------------------------------- */

static PyObject *array_richcompare(PyObject *self, PyObject *other, int op)
{
	static PyObject *found[6];
	static const char *const names[] = {"_op_less",      "_op_less_equal", "_op_equal",
	                                    "_op_not_equal", "_op_greater",    "_op_greater_equal"};
	return binary(&found[op], names[op], self, other);
}

static int array_contains(PyObject *self, PyObject *other)
{
	static PyObject *f;
	int operand = is_operand(other);
	if (operand <= 0) return operand;
	PyObject *any = operate(&f, "_contains", self, other);
	int r = any ? PyObject_IsTrue(any) : -1;
	Py_XDECREF(any);
	return r;
}

/* ---- arithmetic ------------------------------------------------------------------ */

/* Python's operators, as X(slot, name in array_api). */
#define BINARY_OPERATORS(X) \
	X(add, "add") \
	X(subtract, "subtract") \
	X(multiply, "multiply") \
	X(true_divide, "divide") \
	X(floor_divide, "floor_divide") \
	X(remainder, "remainder") \
	X(matrix_multiply, "matmul") \
	X(lshift, "bitwise_left_shift") \
	X(rshift, "bitwise_right_shift") \
	X(and, "bitwise_and") \
	X(or, "bitwise_or") \
	X(xor, "bitwise_xor")
#define UNARY_OPERATORS(X) \
	X(negative, "negative") \
	X(positive, "positive") \
	X(absolute, "abs") \
	X(invert, "bitwise_invert")

/* The same for an operator that writes to a. It never returns NotImplemented: Python would then bind a's name to
   the result of b's operator. */
static PyObject *in_place(PyObject **f, const char *function, PyObject *a, PyObject *b)
{
	char name[64];
	int operand = is_operand(b);
	if (operand < 0) return NULL;
	if (operand) return operate(f, function, a, b);
	return usmb_raise(PyExc_TypeError, "%s: an Array cannot be changed by an operand of type %s", function + 4,
	                  usmb_type_name(b, name, sizeof name));
}

#define X(slot, function) \
	static PyObject *array_##slot(PyObject *a, PyObject *b) \
	{ \
		static PyObject *f; \
		return binary(&f, "_op_" function, a, b); \
	} \
	static PyObject *array_inplace_##slot(PyObject *a, PyObject *b) \
	{ \
		static PyObject *f; \
		return in_place(&f, "_in_" function, a, b); \
	}
BINARY_OPERATORS(X)
#undef X

#define X(slot, function) \
	static PyObject *array_##slot(PyObject *a) \
	{ \
		static PyObject *f; \
		return api(&f, function, a); \
	}
UNARY_OPERATORS(X)
#undef X

static PyObject *array_divmod(PyObject *a, PyObject *b)
{
	static PyObject *f;
	return binary(&f, "_op_divmod", a, b);
}

/* pow(a, b, modulus) has no counterpart in the array API. */
static PyObject *array_power(PyObject *a, PyObject *b, PyObject *modulus)
{
	static PyObject *f;
	return modulus == Py_None ? binary(&f, "_op_pow", a, b) : Py_NewRef(Py_NotImplemented);
}

static PyObject *array_inplace_power(PyObject *a, PyObject *b, PyObject *modulus)
{
	static PyObject *f;
	if (modulus != Py_None) return usmb_raise(PyExc_TypeError, "pow: an Array takes no modulus");
	return in_place(&f, "_in_pow", a, b);
}

static PyObject *array_namespace(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	static PyObject *f;
	PyObject *const names[1] = {usmb_name.api_version};
	PyObject *v[1] = {NULL};
	(void)self;
	if (usmb_args("__array_namespace__", args, n, kw, names, 1, 0, 0, v) < 0) return NULL;
	return api(&f, "_namespace", v[0] ? v[0] : Py_None);
}

/* ==== Attributes, methods, the type =========================================================== */

/* ---- attributes -------------------------------------------------------------- */

#define ARRAY(self) ((usmb_array *)(self))
/* Fails for a released array, else holds it during a call. */
#define HELD(type, failed, call) \
	if (!usmb_array_alive(ARRAY(self))) return failed; \
	usmb_array_hold(ARRAY(self)); \
	type result = call; \
	usmb_array_unhold(ARRAY(self)); \
	return result
/* The getter of an attribute of the array a; its body follows. */
#define GETTER(name) \
	static PyObject *read_##name(usmb_array *a); \
	static PyObject *get_##name(PyObject *self, void *closure __attribute__((unused))) \
	{ \
		HELD(PyObject *, NULL, read_##name(ARRAY(self))); \
	} \
	static PyObject *read_##name(usmb_array *a __attribute__((unused)))
/* The same for an attribute that is an expression. */
#define ATTRIBUTE(name, expression) \
	GETTER(name) \
	{ \
		return expression; \
	}

ATTRIBUTE(shape, usmb_tuple_i64(usmb_shape(a), a->ndim))
ATTRIBUTE(strides, usmb_tuple_i64(usmb_strides(a), a->ndim))
ATTRIBUTE(dtype, usmb_dtype_public(a->dtype))

GETTER(typestr)
{
	const char *s = usmb_dl_dtype_typestr(a->dtype);
	if (!s) Py_RETURN_NONE;
	return PyUnicode_InternFromString(s);
}

ATTRIBUTE(ndim, PyLong_FromLong(a->ndim))
ATTRIBUTE(size, PyLong_FromLongLong(a->nelem))
ATTRIBUTE(itemsize, PyLong_FromLongLong(usmb_itemsize(a)))
ATTRIBUTE(nbytes, PyLong_FromLongLong(usmb_nbytes(a)))
ATTRIBUTE(readonly, PyBool_FromLong(a->flags &USMB_ARR_READONLY))
/* The flags that usmbridge._methods shows, and 8: the elements are aligned. */
ATTRIBUTE(flags, PyLong_FromLong((long)(a->flags & 7) + 8 * usmb_array_aligned(a)))
ATTRIBUTE(observed, PyBool_FromLong(usmb_cell_observed(a->cell)))
/* The queue of the memory, for other memory beside it. */
GETTER(queue)
{
	if (!a->cell->place) Py_RETURN_NONE;
	if (usmb_go_allowed() < 0) return NULL;
	return a->queue ? Py_NewRef(a->queue) : usmb_place_queue(a->cell->place);
}

/* A view for _peer. */
GETTER(alone)
{
	PyObject *view = usmb_array_alone(a);
	if (view) ARRAY(view)->flags |= USMB_ARR_OURS;
	return view;
}

/* What sycl_queue returns, for our own functions: it does not count as shown. */
GETTER(on)
{
	if (!a->cell->place) Py_RETURN_NONE;
	if (usmb_go_allowed() < 0) return NULL;
	return a->queue ? Py_NewRef(a->queue) : usmb_public_queue(a->cell->place);
}

ATTRIBUTE(peer, usmb_array_allowed(a) < 0 ? NULL : Py_NewRef(a->peer ? a->peer : Py_None))

static int set_peer(PyObject *self, PyObject *value, void *closure)
{
	usmb_array *a = (usmb_array *)self;
	PyObject *old = a->peer;
	(void)closure;
	a->peer = value ? Py_NewRef(value) : NULL;
	Py_XDECREF(old);
	return 0;
}

ATTRIBUTE(base, Py_NewRef(a->root ? (PyObject *)a->root : Py_None))

GETTER(usm_type)
{
	usmb_place *place = usmb_array_place(a);
	if (!place || place->kind < 1 || place->kind > 3) Py_RETURN_NONE;
	return PyUnicode_InternFromString(usmb_kind_names[place->kind]);
}

GETTER(interprocess)
{
	int audience = a->flags & USMB_ARR_PEERS_READ ? USMB_AUDIENCE_READ : USMB_AUDIENCE_WRITE;
	/* Imported memory may have been made by Go for other processes: ask Go. */
	if (!(a->flags & USMB_ARR_INTERPROCESS)) audience = usmb_py_in_child() ? 0 : usmb_go_audience(a->cell);
	if (audience == USMB_AUDIENCE_READ) return PyUnicode_InternFromString("readonly");
	return PyBool_FromLong(audience != USMB_AUDIENCE_NONE);
}

ATTRIBUTE(device, usmb_device_of_place(usmb_array_place(a)))

GETTER(sycl_queue)
{
	if (!a->cell->place) Py_RETURN_NONE;
	if (usmb_go_allowed() < 0 || usmb_array_seen_on_queue(a) < 0) return NULL;
	return a->queue ? Py_NewRef(a->queue) : usmb_public_queue(a->cell->place);
}

GETTER(sycl_device)
{
	if (!a->cell->place) Py_RETURN_NONE;
	PyObject *queue = read_sycl_queue(a);
	PyObject *device = queue ? PyObject_GetAttrString(queue, "sycl_device") : NULL;
	Py_XDECREF(queue);
	return device;
}

GETTER(sycl_context)
{
	if (!a->cell->place) Py_RETURN_NONE;
	if (usmb_go_allowed() < 0 || usmb_array_seen_on_queue(a) < 0) return NULL;
	return usmb_public_context(a->cell->place);
}

GETTER(pointer)
{
	int32_t unused;
	if (usmb_array_address_shown(a) < 0) return NULL;
	/* A consumer that has the address alone may be of CUDA. */
	if (a->cell->place && !usmb_py_in_child()) (void)usmb_cuda_show(a->cell->place, &unused);
	return PyLong_FromVoidPtr(a->first);
}

ATTRIBUTE(priority, PyFloat_FromDouble(1000.0)) /* dask.array compares those of tensordot's operands */

static Py_ssize_t array_length(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	if (!usmb_array_alive(a)) return -1;
	if (a->ndim > 0) return (Py_ssize_t)usmb_shape(a)[0];
	usmb_raise(PyExc_TypeError, "len() of a 0-d array");
	return -1;
}

/* Whether a row begins within a byte, so that there can be no view of it. */
static int splits_byte(usmb_array *a, int64_t i)
{
	return a->itembits < 8 && a->nelem > 0 && i * usmb_strides(a)[0] * a->itembits % 8 != 0;
}

/* Returns a read-only copy of a row that begins within a byte, with each element in a byte. */
static PyObject *row_copy(usmb_array *a, int64_t i)
{
	int64_t shape[USMB_DL_MAX_NDIM], begin = i;
	while (splits_byte(a, begin)) begin--; /* the first row does not */
	memcpy(shape, usmb_shape(a), (size_t)a->ndim * sizeof *shape);
	shape[0] = i - begin + 1;
	char *first = a->first + begin * usmb_strides(a)[0] * a->itembits / 8;
	usmb_array *rows = (usmb_array *)usmb_array_view(a, first, a->ndim, shape, usmb_strides(a));
	usmb_array *copy = rows ? (usmb_array *)usmb_copy_padded(rows, NULL) : NULL;
	PyObject *row = NULL;
	if (copy)
		row = usmb_array_view_as(copy, a->dtype, USMB_ARR_PADDED | USMB_ARR_READONLY,
		                         copy->first + (i - begin) * usmb_strides(copy)[0], a->ndim - 1, shape + 1,
		                         usmb_strides(copy) + 1);
	Py_XDECREF(copy);
	Py_XDECREF(rows);
	return row;
}

/* The item of a sequence, for iteration and reversed(). Iteration must not end early, so this function returns a
   copy where a subscript raises an exception. */
static PyObject *item_at(PyObject *self, Py_ssize_t i)
{
	usmb_array *a = (usmb_array *)self;
	if (a->ndim == 0) return usmb_raise(PyExc_TypeError, "iteration over a 0-d array");
	if (i >= 0 && i < usmb_shape(a)[0] && splits_byte(a, i)) return row_copy(a, i);
	PyObject *index = PyLong_FromSsize_t(i);
	if (!index) return NULL;
	PyObject *r = usmb_array_subscript(self, index);
	Py_DECREF(index);
	return r;
}

static PyObject *array_iter(PyObject *self)
{
	if (!usmb_array_alive(ARRAY(self))) return NULL;
	if (ARRAY(self)->ndim > 0) return PySeqIter_New(self);
	return usmb_raise(PyExc_TypeError, "iteration over a 0-d array");
}

static PyObject *array_item_at(PyObject *self, Py_ssize_t i)
{
	HELD(PyObject *, NULL, item_at(self, i));
}

/* ---- release ------------------------------------------------------------------- */

static PyObject *array_use(PyObject *self, PyObject *unused)
{
	(void)unused;
	HELD(PyObject *, NULL, usmb_array_use(ARRAY(self)) < 0 ? NULL : Py_NewRef(Py_None));
}

static PyObject *array_end_use(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_array_hold(ARRAY(self)); /* it may be released meanwhile */
	int r = usmb_array_end_use(ARRAY(self));
	usmb_array_unhold(ARRAY(self));
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *array_reach(PyObject *self, PyObject *unused)
{
	(void)unused;
	const usmb_place *place = usmb_array_place(ARRAY(self));
	PyObject *on_cuda = place && usmb_place_is_cuda(place) ? Py_True : Py_False;
	HELD(PyObject *, NULL, usmb_array_allowed(ARRAY(self)) < 0 ? NULL : Py_NewRef(on_cuda));
}

static PyObject *array_settle(PyObject *self, PyObject *unused)
{
	(void)unused;
	HELD(PyObject *, NULL, usmb_array_settle_queue(ARRAY(self)) < 0 ? NULL : Py_NewRef(Py_None));
}

/* Wraps functions of other files by HELD: f becomes alive_f. */
#define ALIVE_FAST_KW(f) \
	static PyObject *alive_##f(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw) \
	{ \
		HELD(PyObject *, NULL, f(self, args, n, kw)); \
	}
#define ALIVE_FAST(f) \
	static PyObject *alive_##f(PyObject *self, PyObject *const *args, Py_ssize_t n) \
	{ \
		HELD(PyObject *, NULL, f(self, args, n)); \
	}
#define ALIVE_TWO(f, type) \
	static PyObject *alive_##f(PyObject *self, type arg) \
	{ \
		HELD(PyObject *, NULL, f(self, arg)); \
	}
#define ALIVE_ONE(f) \
	static PyObject *alive_##f(PyObject *self) \
	{ \
		HELD(PyObject *, NULL, f(self)); \
	}
ALIVE_FAST_KW(usmb_array_dlpack)
ALIVE_FAST_KW(usmb_array_arrow)
ALIVE_FAST_KW(usmb_array_arrow_device)
ALIVE_FAST_KW(usmb_array_reshape)
ALIVE_FAST_KW(usmb_array_to_device)
ALIVE_FAST_KW(array_astype)
ALIVE_FAST_KW(array_retype)
ALIVE_FAST_KW(usmb_array_numpy)
ALIVE_FAST(usmb_array_transpose)
ALIVE_FAST(array_item)
ALIVE_FAST(usmb_array_function)
ALIVE_TWO(usmb_array_dlpack_device, PyObject *)
ALIVE_TWO(usmb_array_copy, PyObject *)
ALIVE_TWO(usmb_array_asnumpy, PyObject *)
ALIVE_TWO(array_as_readonly, PyObject *)
ALIVE_TWO(usmb_array_fill, PyObject *)
ALIVE_TWO(array_tolist, PyObject *)
ALIVE_TWO(array_tobytes, PyObject *)
ALIVE_TWO(array_format, PyObject *)
ALIVE_TWO(array_complex, PyObject *)
ALIVE_TWO(usmb_array_T, void *)
ALIVE_TWO(usmb_array_suai, void *)
ALIVE_TWO(usmb_array_interface, void *)
ALIVE_TWO(usmb_array_cuda, void *)
ALIVE_TWO(usmb_array_cuda_interface, void *)
ALIVE_TWO(usmb_array_subscript, PyObject *)
ALIVE_TWO(usmb_array_reduce, PyObject *)
ALIVE_ONE(array_int)
ALIVE_ONE(array_float)
ALIVE_ONE(array_index)

static int alive_array_bool(PyObject *self)
{
	HELD(int, -1, array_bool(self));
}

static int alive_usmb_array_assign(PyObject *self, PyObject *key, PyObject *value)
{
	HELD(int, -1, usmb_array_assign(self, key, value));
}

static int alive_usmb_array_assign_item(PyObject *self, Py_ssize_t i, PyObject *value)
{
	HELD(int, -1, usmb_array_assign_item(self, i, value));
}

static PyObject *array_release(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	usmb_array_release(ARRAY(self));
	Py_RETURN_NONE;
}

static PyObject *array_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	return usmb_array_alive(ARRAY(self)) ? Py_NewRef(self) : NULL;
}

static PyObject *array_exit(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	(void)args;
	(void)n;
	return array_release(self, NULL);
}

/* ---- text ---------------------------------------------------------------------- */

static PyObject *plain_repr(usmb_array *a, PyObject *body)
{
	usmb_place *place = usmb_array_place(a);
	const char *device = place ? place->filter : "host", *comma = place ? ", usm_type=" : "";
	const char *kind = place ? usmb_kind_names[place->kind & 3] : "";
	PyObject *shape = usmb_tuple_i64(usmb_shape(a), a->ndim);
	PyObject *dtype = usmb_dtype_object(a->dtype), *r = NULL;
	/* Show the shape unless the brackets do. */
	if (shape && dtype && a->nelem == 0 && a->ndim > 1)
		r = PyUnicode_FromFormat("Array([], shape=%S, dtype=%U, device=%s%s%s)", shape, dtype, device, comma,
		                         kind);
	else if (shape && dtype)
		r = PyUnicode_FromFormat("Array(%U, dtype=%U, device=%s%s%s)", body, dtype, device, comma, kind);
	Py_XDECREF(shape);
	Py_XDECREF(dtype);
	return r;
}

static PyObject *held_repr(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	PyObject *body = NULL;
	char *text = NULL;
	usmb_owner_drain();
	if (usmb_py_in_child()) {
		body = PyUnicode_FromString("...");
	} else if ((body = usmb_numpy_text(self, 0)) == NULL && !PyErr_Occurred() && usmb_array_wait(a) == 0) {
		USMB_GO(usmb_go_text(a, &text, &err));
		if (r == 0) body = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
		free(text);
	}
	PyObject *out = body ? plain_repr(a, body) : NULL;
	Py_XDECREF(body);
	return out;
}

static PyObject *array_repr(PyObject *self)
{
	if (ARRAY(self)->flags & USMB_ARR_RELEASED) return PyUnicode_FromString("<Array, released>");
	/* No error: multiprocessing calls repr() for a result that cannot be sent. */
	if (ARRAY(self)->flags & USMB_ARR_RECEIVED && usmb_py_in_child())
		return PyUnicode_FromString("<Array, memory of another process>");
	HELD(PyObject *, NULL, held_repr(self));
}

static PyObject *held_str(PyObject *self)
{
	PyObject *text = usmb_numpy_text(self, 1);
	if (text || PyErr_Occurred()) return text;
	PyObject *v = number_of(ARRAY(self), 0);
	text = v ? PyObject_Str(v) : NULL;
	Py_XDECREF(v);
	return text;
}

/* An Array of 0 dimensions is printed as its number. */
static PyObject *array_str(PyObject *self)
{
	if (ARRAY(self)->ndim > 0 || ARRAY(self)->flags & USMB_ARR_RELEASED || usmb_py_in_child())
		return array_repr(self);
	HELD(PyObject *, NULL, held_str(self));
}

/* ---- the type ------------------------------------------------------------------ */

static PyMethodDef methods[] = {
        {"__dlpack__", USMB_PY_CFUNC(alive_usmb_array_dlpack), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"__dlpack_device__", USMB_PY_CFUNC(alive_usmb_array_dlpack_device), METH_NOARGS, NULL},
        {"__arrow_c_array__", USMB_PY_CFUNC(alive_usmb_array_arrow), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"__arrow_c_device_array__", USMB_PY_CFUNC(alive_usmb_array_arrow_device), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"reshape", USMB_PY_CFUNC(alive_usmb_array_reshape), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"transpose", USMB_PY_CFUNC(alive_usmb_array_transpose), METH_FASTCALL, NULL},
        {"copy", USMB_PY_CFUNC(alive_usmb_array_copy), METH_NOARGS, NULL},
        {"to_device", USMB_PY_CFUNC(alive_usmb_array_to_device), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"asnumpy", USMB_PY_CFUNC(alive_usmb_array_asnumpy), METH_NOARGS, NULL},
        {"astype", USMB_PY_CFUNC(alive_array_astype), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"view", USMB_PY_CFUNC(alive_array_retype), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"as_readonly", USMB_PY_CFUNC(alive_array_as_readonly), METH_NOARGS, NULL},
        {"fill", USMB_PY_CFUNC(alive_usmb_array_fill), METH_O, NULL},
        {"item", USMB_PY_CFUNC(alive_array_item), METH_FASTCALL, NULL},
        {"tolist", USMB_PY_CFUNC(alive_array_tolist), METH_NOARGS, NULL},
        {"tobytes", USMB_PY_CFUNC(alive_array_tobytes), METH_NOARGS, NULL},
        {"__format__", USMB_PY_CFUNC(alive_array_format), METH_O, NULL},
        {"__array_namespace__", USMB_PY_CFUNC(array_namespace), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"__array_ufunc__", USMB_PY_CFUNC(usmb_array_ufunc), METH_VARARGS | METH_KEYWORDS, NULL},
        {"__complex__", USMB_PY_CFUNC(alive_array_complex), METH_NOARGS, NULL},
        {"__array__", USMB_PY_CFUNC(alive_usmb_array_numpy), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"__array_function__", USMB_PY_CFUNC(alive_usmb_array_function), METH_FASTCALL, NULL},
        {"__copy__", USMB_PY_CFUNC(alive_usmb_array_copy), METH_NOARGS, NULL},
        {"__deepcopy__", USMB_PY_CFUNC(alive_usmb_array_copy), METH_O, NULL},
        {"__reduce_ex__", USMB_PY_CFUNC(alive_usmb_array_reduce), METH_O, NULL},
        {"_use", USMB_PY_CFUNC(array_use), METH_NOARGS, NULL},
        {"_end_use", USMB_PY_CFUNC(array_end_use), METH_NOARGS, NULL},
        {"_reach", USMB_PY_CFUNC(array_reach), METH_NOARGS, NULL},
        {"_settle", USMB_PY_CFUNC(array_settle), METH_NOARGS, NULL},
        {"release", USMB_PY_CFUNC(array_release), METH_NOARGS, NULL},
        {"__enter__", USMB_PY_CFUNC(array_enter), METH_NOARGS, NULL},
        {"__exit__", USMB_PY_CFUNC(array_exit), METH_FASTCALL, NULL},
        {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(usmb_array, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"shape", get_shape, NULL, NULL, NULL},
        {"strides", get_strides, NULL, NULL, NULL},
        {"dtype", get_dtype, NULL, NULL, NULL},
        {"typestr", get_typestr, NULL, NULL, NULL},
        {"ndim", get_ndim, NULL, NULL, NULL},
        {"size", get_size, NULL, NULL, NULL},
        {"itemsize", get_itemsize, NULL, NULL, NULL},
        {"nbytes", get_nbytes, NULL, NULL, NULL},
        {"usm_type", get_usm_type, NULL, NULL, NULL},
        {"interprocess", get_interprocess, NULL, NULL, NULL},
        {"device", get_device, NULL, NULL, NULL},
        {"sycl_queue", get_sycl_queue, NULL, NULL, NULL},
        {"sycl_context", get_sycl_context, NULL, NULL, NULL},
        {"sycl_device", get_sycl_device, NULL, NULL, NULL},
        {"readonly", get_readonly, NULL, NULL, NULL},
        {"_flags", get_flags, NULL, NULL, NULL},
        {"_observed", get_observed, NULL, NULL, NULL},
        {"_queue", get_queue, NULL, NULL, NULL},
        {"_on", get_on, NULL, NULL, NULL},
        {"_alone", get_alone, NULL, NULL, NULL},
        {"_peer", get_peer, set_peer, NULL, NULL},
        {"base", get_base, NULL, NULL, NULL},
        {"T", alive_usmb_array_T, NULL, NULL, NULL},
        {"__array_priority__", get_priority, NULL, NULL, NULL},
        {"_pointer", get_pointer, NULL, NULL, NULL},
        {"__sycl_usm_array_interface__", alive_usmb_array_suai, NULL, NULL, NULL},
        {"__array_interface__", alive_usmb_array_interface, NULL, NULL, NULL},
        {"cuda", alive_usmb_array_cuda, NULL, NULL, NULL},
        {"__cuda_array_interface__", alive_usmb_array_cuda_interface, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, usmb_array_dealloc},
        {Py_tp_traverse, usmb_array_traverse},
        {Py_tp_clear, usmb_array_clear},
        {Py_tp_members, members},
        {Py_tp_repr, array_repr},
        {Py_tp_str, array_str},
        {Py_tp_richcompare, array_richcompare}, /* and no Py_tp_hash: CPython sets __hash__ to None */
        {Py_tp_doc, NULL},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {Py_mp_length, array_length},
        {Py_mp_subscript, alive_usmb_array_subscript},
        {Py_mp_ass_subscript, alive_usmb_array_assign},
        {Py_sq_length, array_length},
        {Py_sq_item, array_item_at},
        {Py_sq_ass_item, alive_usmb_array_assign_item},
        {Py_sq_contains, array_contains},
        {Py_nb_int, alive_array_int},
        {Py_nb_float, alive_array_float},
        {Py_nb_index, alive_array_index},
        {Py_nb_bool, alive_array_bool},
        {Py_tp_iter, array_iter},
        {Py_nb_divmod, array_divmod},
        {Py_nb_power, array_power},
        {Py_nb_inplace_power, array_inplace_power},
#define X(slot, function) {Py_nb_##slot, array_##slot},
        BINARY_OPERATORS(X) UNARY_OPERATORS(X)
#undef X
#define X(slot, function) {Py_nb_inplace_##slot, array_inplace_##slot},
                BINARY_OPERATORS(X)
#undef X
                        {Py_bf_getbuffer, usmb_array_getbuffer},
        {Py_bf_releasebuffer, usmb_array_releasebuffer},
        {0, NULL},
};

static PyType_Spec spec = {
        "usmbridge.Array",
        sizeof(usmb_array),
        sizeof(int64_t),
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        slots,
};

int usmb_array_register(PyObject *module)
{
	usmb_array_type = usmb_new_type(&spec);
	if (!usmb_array_type) return -1;
	return PyModule_AddObjectRef(module, "Array", (PyObject *)usmb_array_type);
}
