/* buffer.c: Python's buffer protocol and NumPy's array interface, for memory that the host may
   read; and arrays from the buffers of other objects. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "exchange.h"
#include "order.h"
#include "storage.h"
#include "support.h"

/* Element types and their format characters of module struct in native sizes. */
static const struct {
	uint8_t code, bits;
	const char *format;
} formats[] = {
        {USMB_DL_BOOL, 8, "?"},      {USMB_DL_INT, 8, "b"},        {USMB_DL_INT, 16, "h"},   {USMB_DL_INT, 32, "i"},
        {USMB_DL_INT, 64, "l"},      {USMB_DL_UINT, 8, "B"},       {USMB_DL_UINT, 16, "H"},  {USMB_DL_UINT, 32, "I"},
        {USMB_DL_UINT, 64, "L"},     {USMB_DL_FLOAT, 16, "e"},     {USMB_DL_FLOAT, 32, "f"}, {USMB_DL_FLOAT, 64, "d"},
        {USMB_DL_COMPLEX, 64, "Zf"}, {USMB_DL_COMPLEX, 128, "Zd"},
};

static const char *format_of(usmb_dl_dtype t)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (formats[i].code == t.code && formats[i].bits == t.bits) return formats[i].format;
	return NULL;
}

/* ---- out ---------------------------------------------------------------------------- */

static int buffer_error(const char *why, const char *what)
{
	usmb_raise(PyExc_BufferError, "the array's buffer: %s%s", why, what);
	return -1;
}

static int check_request(usmb_array *a, int flags)
{
	if (!(a->flags & USMB_ARR_READ))
		return buffer_error(
		        "the host cannot read USM device memory; copy it with asnumpy() or to_device(\"host\")", "");
	if (flags & PyBUF_WRITABLE && a->flags & USMB_ARR_READONLY) return buffer_error("the array is read-only", "");
	if (a->itembits < 8) return buffer_error("packed sub-byte elements have no address each", "");
	if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !(a->flags & USMB_ARR_C))
		return buffer_error("the array is not C-contiguous", "");
	if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !(a->flags & USMB_ARR_F))
		return buffer_error("the array is not Fortran-contiguous", "");
	if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !(a->flags & (USMB_ARR_C | USMB_ARR_F)))
		return buffer_error("the array is not contiguous", "");
	if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !(a->flags & USMB_ARR_C))
		return buffer_error("a consumer without strides needs a C-contiguous array", "");
	return 0;
}

int64_t usmb_array_byte_stride(usmb_array *a, int32_t i)
{
	int64_t bytes;
	if (__builtin_mul_overflow(usmb_strides(a)[i], usmb_itemsize(a), &bytes)) return usmb_itemsize(a);
	return bytes;
}

int usmb_array_lend(usmb_array *a, int flags)
{
	usmb_owner_drain();
	if (!usmb_array_alive(a) || check_request(a, flags) < 0) return -1;
	usmb_array_hold(a);
	/* First: work that is submitted during the wait ends before its submitter returns. */
	usmb_cell_observe(a->cell);
	if (usmb_array_wait_keeping(a) == 0 && usmb_array_alive(a) && usmb_array_lent(a) == 0) return 0;
	usmb_array_end_loan(a);
	return -1;
}

void usmb_array_end_loan(usmb_array *a)
{
	usmb_cell_unobserve(a->cell);
	usmb_array_unhold(a);
}

int usmb_array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	usmb_array *a = (usmb_array *)self;
	view->obj = NULL;
	if (usmb_array_lend(a, flags) < 0) return -1;
	const char *format = flags & PyBUF_FORMAT ? format_of(a->dtype) : NULL;
	if (flags & PyBUF_FORMAT && !format) {
		const char *name = usmb_dl_dtype_name(a->dtype);
		usmb_array_end_loan(a);
		return buffer_error("the buffer protocol has no format for ", name ? name : "this element type");
	}
	Py_ssize_t *strides = NULL;
	if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES && a->ndim > 0) {
		strides = PyMem_Malloc((size_t)a->ndim * sizeof *strides);
		if (!strides) {
			usmb_array_end_loan(a);
			PyErr_NoMemory();
			return -1;
		}
		for (int32_t i = 0; i < a->ndim; i++) strides[i] = (Py_ssize_t)usmb_array_byte_stride(a, i);
	}
	view->buf = a->first;
	view->len = (Py_ssize_t)usmb_nbytes(a);
	view->itemsize = (Py_ssize_t)usmb_itemsize(a);
	view->readonly = (a->flags & USMB_ARR_READONLY) != 0;
	view->ndim = flags & PyBUF_ND ? a->ndim : 1; /* without a shape: a run of bytes */
	view->format = (char *)format;
	view->shape = flags & PyBUF_ND && a->ndim > 0 ? (Py_ssize_t *)usmb_shape(a) : NULL;
	view->strides = strides;
	view->suboffsets = NULL;
	view->internal = strides;
	view->obj = Py_NewRef(self);
	return 0;
}

void usmb_array_releasebuffer(PyObject *self, Py_buffer *view)
{
	PyMem_Free(view->internal);
	view->internal = NULL;
	usmb_array_end_loan((usmb_array *)self);
}

static PyObject *byte_strides(usmb_array *a)
{
	int64_t v[USMB_DL_MAX_NDIM];
	if (a->flags & USMB_ARR_C) Py_RETURN_NONE;
	for (int32_t i = 0; i < a->ndim; i++) v[i] = usmb_array_byte_stride(a, i);
	return usmb_tuple_i64(v, a->ndim);
}

PyObject *usmb_array_interface(PyObject *self, void *closure)
{
	usmb_array *a = (usmb_array *)self;
	const char *typestr = usmb_dl_dtype_typestr(a->dtype);
	(void)closure;
	usmb_owner_drain();
	if (!(a->flags & USMB_ARR_READ))
		return usmb_raise(PyExc_AttributeError,
		                  "this Array has no __array_interface__: the host cannot read USM device memory");
	if (!typestr) {
		const char *name = usmb_dl_dtype_name(a->dtype);
		return usmb_raise(PyExc_AttributeError,
		                  "this Array has no __array_interface__: there is no type string for %s",
		                  name ? name : "its element type");
	}
	if (usmb_array_wait(a) < 0 || usmb_array_lent(a) < 0) return NULL;
	PyObject *dict = Py_BuildValue("{s(KO)sNsNsss[(ss)]si}", "data", (unsigned long long)(uintptr_t)a->first,
	                               a->flags & USMB_ARR_READONLY ? Py_True : Py_False, "strides", byte_strides(a),
	                               "shape", usmb_tuple_i64(usmb_shape(a), a->ndim), "typestr", typestr, "descr", "",
	                               typestr, "version", 3);
	if (dict) usmb_array_show(a);
	return dict;
}

/* ---- in ------------------------------------------------------------------------------ */

/* Reports whether the elements have the other byte order. */
static int is_swapped(const Py_buffer *view)
{
	return view->format && (*view->format == '>' || *view->format == '!') && view->itemsize != 1;
}

/* Reads a format without its byte order. */
static int parse_format(const char *format, Py_ssize_t itemsize, usmb_dl_dtype *out)
{
	const char *f = format ? format : "B";
	if (*f && strchr("@=<>!|", *f)) f++;
	if (f[0] == '1' && f[1]) f++; /* a count */
	int complex = *f == 'Z';
	if (complex) f++;
	char c = *f;
	if (!c || f[1] || (complex && !strchr("efd", c))) return -1;
	out->lanes = 1;
	out->bits = (uint8_t)(itemsize * 8);
	if (complex || c == 'F' || c == 'D')
		out->code = USMB_DL_COMPLEX;
	else if (c == '?')
		out->code = USMB_DL_BOOL;
	else if (strchr("bhilqn", c))
		out->code = USMB_DL_INT;
	else if (strchr("BHILQNc", c))
		out->code = USMB_DL_UINT;
	else if (strchr("efd", c))
		out->code = USMB_DL_FLOAT;
	else
		return -1;
	return itemsize >= 1 && itemsize <= 16 && format_of(*out) ? 0 : -1;
}

/* Converts the strides of a view to elements; -1 if they are not multiples of the element size. */
static int element_strides(const Py_buffer *view, int64_t *strides)
{
	for (int i = 0; i < view->ndim; i++) {
		if (view->strides[i] % view->itemsize != 0) return -1;
		strides[i] = view->strides[i] / view->itemsize;
	}
	return 0;
}

static PyObject *array_of_view(Py_buffer *view, int swapped)
{
	usmb_dl_dtype dtype;
	if (parse_format(view->format, view->itemsize, &dtype) < 0 || is_swapped(view) != swapped)
		return usmb_raise(PyExc_TypeError,
		                  "a buffer with format \"%s\" of %lld bytes is unsupported; native booleans, "
		                  "integers, floats and complex numbers are supported",
		                  view->format ? view->format : "", (long long)view->itemsize);
	if (view->suboffsets || view->ndim < 0 || view->ndim > USMB_DL_MAX_NDIM || (view->ndim > 1 && !view->shape))
		return usmb_raise(PyExc_BufferError,
		                  "a buffer of pointers, of more than %d dimensions, or of dimensions without extents "
		                  "is unsupported",
		                  USMB_DL_MAX_NDIM);
	usmb_array *a = usmb_array_raw(view->ndim);
	if (!a) return NULL;
	for (int i = 0; i < view->ndim; i++)
		usmb_shape(a)[i] = view->shape ? view->shape[i] : view->len / view->itemsize;
	if (view->strides && element_strides(view, usmb_strides(a)) < 0) {
		Py_DECREF(a);
		return usmb_raise(
		        PyExc_BufferError,
		        "the buffer's strides are not multiples of its item size; make a contiguous copy first");
	}
	int64_t *strides = view->strides ? usmb_strides(a) : NULL;
	usmb_dl_tensor t = {view->buf, {USMB_DL_CPU, 0}, view->ndim, dtype, usmb_shape(a), strides, 0};
	usmb_dl_span span;
	char text[512];
	int code = usmb_dl_check(&t, 0, usmb_strides(a), &span);
	usmb_cell *cell = NULL;
	if (code != USMB_DL_OK)
		usmb_raise(PyExc_BufferError, "%s", usmb_dl_explain(code, &t, text, sizeof text));
	else
		cell = usmb_cell_of_buffer(view, (char *)view->buf + span.lo, (uint64_t)(span.hi - span.lo));
	if (!cell) {
		Py_DECREF(a);
		return NULL;
	}
	if (view->readonly) atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	usmb_array_settle_as(a, cell, dtype, view->readonly ? USMB_ARR_READONLY : 0, &span);
	return (PyObject *)a;
}

static PyObject *import_buffer(PyObject *obj, int swapped)
{
	Py_buffer *view = calloc(1, sizeof *view);
	if (!view) return PyErr_NoMemory();
	if (PyObject_GetBuffer(obj, view, PyBUF_FULL_RO) < 0) {
		free(view);
		return NULL;
	}
	PyObject *a = array_of_view(view, swapped);
	if (!a) {
		PyObject *type, *value, *trace;
		PyErr_Fetch(&type, &value, &trace);
		PyBuffer_Release(view);
		free(view);
		PyErr_Restore(type, value, trace);
	}
	return a;
}

PyObject *usmb_import_buffer(PyObject *obj)
{
	return import_buffer(obj, 0);
}

/* _of_swapped(object): an Array on the memory of a buffer of the other byte order, as if it had this machine's. */
PyObject *usmb_py_of_swapped(PyObject *m, PyObject *o)
{
	(void)m;
	return import_buffer(o, 1);
}
