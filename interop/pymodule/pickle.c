/* pickle.c: pickles of arrays. A pickle has the bytes, their layout and their place. With
   protocol 5 the bytes are a buffer, which may travel beside the pickle; it is the array's own
   memory if the host may read that. */
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "module.h"
#include "order.h"
#include "storage.h"
#include "support.h"

static const usmb_dl_dtype bytes_type = {USMB_DL_UINT, 8, 1};

/* The n bytes from the first element on. */
static PyObject *as_bytes(usmb_array *a, int64_t n)
{
	int64_t one = 1;
	return usmb_array_view_as(a, bytes_type, a->flags & USMB_ARR_READONLY, a->first, 1, &n, &one);
}

/* ---- out ------------------------------------------------------------------------- */

/* A copy that the host can read: in host USM of the same context, to which the device copies
   directly, or on the host backend if the device has no host USM. */
static PyObject *staged(usmb_array *a)
{
	usmb_where w;
	if (a->cell->place) {
		usmb_copy_beside(a, &w);
		w.kind = USMB_USM_HOST;
		PyObject *copy = usmb_copy_to(a, &w);
		if (copy || !PyErr_ExceptionMatches(PyExc_ValueError)) return copy;
		PyErr_Clear(); /* the device has no host USM */
	}
	return usmb_copy_to(a, &usmb_on_host);
}

/* The array if its elements are contiguous in C or Fortran order, else a copy. */
static usmb_array *contiguous(usmb_array *a)
{
	if (a->flags & (USMB_ARR_C | USMB_ARR_F)) return (usmb_array *)Py_NewRef(a);
	return (usmb_array *)staged(a);
}

/* Its bytes, which the host must be able to read, after pending work. */
static PyObject *readable_bytes(usmb_array *row)
{
	PyObject *bytes = as_bytes(row, usmb_nbytes(row));
	if (!bytes || usmb_array_wait(row) < 0) {
		Py_XDECREF(bytes);
		return NULL;
	}
	if (row->flags & USMB_ARR_READ) return bytes;
	PyObject *copy = staged((usmb_array *)bytes);
	Py_DECREF(bytes);
	return copy;
}

static PyObject *pickle_buffer(PyObject *bytes)
{
	PyObject *pickle = PyImport_ImportModule("pickle");
	PyObject *r = pickle ? PyObject_CallMethod(pickle, "PickleBuffer", "(O)", bytes) : NULL;
	Py_XDECREF(pickle);
	return r;
}

/* The arguments of _unpickle for a. */
static PyObject *arguments(usmb_array *a, usmb_array *row, PyObject *payload, const char *name)
{
	usmb_place *place = usmb_array_place(a);
	PyObject *shape = usmb_tuple_i64(usmb_shape(a), a->ndim);
	PyObject *r = NULL;
	if (shape)
		r = Py_BuildValue("(OsOsizzi)", payload, name, shape, row->flags & USMB_ARR_C ? "C" : "F",
		                  (row->flags & USMB_ARR_PADDED) != 0, place ? usmb_kind_names[place->kind & 3] : NULL,
		                  place ? place->filter : NULL, (a->flags & USMB_ARR_READONLY) != 0);
	Py_XDECREF(shape);
	return r;
}

static PyObject *module_function(const char *name)
{
	PyObject *module = PyImport_ImportModule("usmbridge");
	PyObject *f = module ? PyObject_GetAttrString(module, name) : NULL;
	Py_XDECREF(module);
	return f;
}

PyObject *usmb_array_reduce(PyObject *self, PyObject *protocol)
{
	usmb_array *a = (usmb_array *)self;
	const char *name = usmb_dl_dtype_name(a->dtype);
	int64_t version;
	usmb_owner_drain();
	if (usmb_parse_dim(protocol, &version, "__reduce_ex__") < 0) return NULL;
	if (!name) return usmb_raise(PyExc_TypeError, "an element type without a name cannot be pickled");
	usmb_array *row = contiguous(a);
	PyObject *bytes = row ? readable_bytes(row) : NULL, *payload = NULL, *r = NULL;
	if (bytes && version >= 5)
		payload = pickle_buffer(bytes);
	else if (bytes)
		payload = PyBytes_FromStringAndSize(((usmb_array *)bytes)->first, (Py_ssize_t)usmb_nbytes(row));
	PyObject *args = payload ? arguments(a, row, payload, name) : NULL;
	PyObject *function = args ? module_function("_unpickle") : NULL;
	if (function) r = PyTuple_Pack(2, function, args);
	Py_XDECREF(function);
	Py_XDECREF(args);
	Py_XDECREF(payload);
	Py_XDECREF(bytes);
	Py_XDECREF(row);
	return r;
}

/* ---- in -------------------------------------------------------------------------- */

/* The description of the bytes in a pickle. */
typedef struct {
	usmb_dl_dtype dtype;
	int64_t shape[USMB_DL_MAX_NDIM];
	int64_t nbytes;
	int32_t ndim;
	int fortran, padded, readonly;
	usmb_where w;
} recipe;

/* The Array that exported a buffer, a new reference; NULL if another object exported it. */
static PyObject *own_of(PyObject *buffer)
{
	Py_buffer view;
	if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) return NULL;
	PyObject *own = view.obj && usmb_is_array(view.obj) ? Py_NewRef(view.obj) : NULL;
	PyBuffer_Release(&view);
	return own;
}

/* Whether elements of dtype can start at the first byte of a: it must be aligned, or for packed
   elements, a whole number of elements after the start of the memory. */
static int may_begin(usmb_array *a, usmb_dl_dtype dtype)
{
	if (dtype.bits >= 8) return (uintptr_t)a->first % (dtype.bits / 8) == 0;
	return (uint64_t)(a->first - (char *)a->cell->data) * 8 % dtype.bits == 0;
}

/* A copy at w of the bytes of a buffer, which a describes; w NULL: at the place of a. In a forked
   child the memory comes from Python, because Go and SYCL cannot be called there. */
static PyObject *copied_bytes(PyObject *buffer, usmb_array *a, const usmb_where *w)
{
	if (!usmb_py_in_child()) return usmb_copy_to(a, w);
	PyObject *bytes = PyByteArray_FromObject(buffer);
	PyObject *out = bytes ? usmb_import_buffer(bytes) : NULL;
	Py_XDECREF(bytes);
	return out;
}

/* The bytes at the place that the recipe requests: those of the buffer if possible. */
static PyObject *placed_bytes(PyObject *buffer, const recipe *r)
{
	PyObject *own = own_of(buffer);
	if (!own && PyErr_Occurred()) return NULL;
	usmb_array *a = (usmb_array *)(own ? own : usmb_import_buffer(buffer));
	if (!a) return NULL;
	PyObject *out = NULL;
	if (a->ndim != 1 || a->itembits != 8 || a->nelem != r->nbytes || !(a->flags & USMB_ARR_C)) {
		usmb_raise(PyExc_ValueError, "the pickled array has %lld bytes, its buffer has another size",
		           (long long)r->nbytes);
	} else if (!usmb_is_at(a, &r->w)) {
		out = copied_bytes(buffer, a, &r->w);
	} else {
		/* bytes objects are immutable, so a writable array needs a copy. */
		int apart = PyBytes_Check(buffer) && !r->readonly;
		out = apart || !may_begin(a, r->dtype) ? copied_bytes(buffer, a, NULL) : Py_NewRef(a);
	}
	Py_DECREF(a);
	return out;
}

static PyObject *rebuild(PyObject *buffer, const recipe *r)
{
	int64_t strides[USMB_DL_MAX_NDIM];
	usmb_array *bytes = (usmb_array *)placed_bytes(buffer, r);
	if (!bytes) return NULL;
	usmb_fill_strides(r->ndim, r->shape, strides, r->fortran);
	uint32_t extra = (r->padded ? USMB_ARR_PADDED : 0) | (r->readonly ? USMB_ARR_READONLY : 0);
	PyObject *a = usmb_array_view_as(bytes, r->dtype, extra, bytes->first, r->ndim, r->shape, strides);
	Py_DECREF(bytes);
	return a;
}

static int parse_recipe(PyObject *const *args, recipe *r)
{
	if (usmb_parse_dtype(args[1], NULL, &r->dtype) < 0) return -1;
	r->ndim = usmb_parse_dims(args[2], r->shape, "_unpickle");
	if (r->ndim < 0) return -1;
	r->fortran = PyUnicode_Check(args[3]) && PyUnicode_CompareWithASCIIString(args[3], "F") == 0;
	if ((r->padded = PyObject_IsTrue(args[4])) < 0) return -1;
	if ((r->readonly = PyObject_IsTrue(args[7])) < 0) return -1;
	usmb_dl_dtype stored = r->dtype;
	if (r->padded && stored.bits < 8) stored = bytes_type;
	r->nbytes = usmb_dense_bytes(r->ndim, r->shape, stored);
	if (r->nbytes < 0) return -1;
	if (usmb_py_in_child()) { /* host memory in all cases: see copied_bytes */
		r->w.host = 1;
		return 0;
	}
	if (usmb_parse_where(args[5], NULL, args[6], &r->w) < 0) return -1;
	if (!r->w.kind && usmb_given(args[6])) {
		usmb_raise(PyExc_ValueError, "_unpickle: a device without usm_type");
		return -1;
	}
	r->w.host = !r->w.kind;
	return 0;
}

PyObject *usmb_py_unpickle(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
	recipe r;
	(void)m;
	usmb_owner_drain();
	if (n != 8)
		return usmb_raise(PyExc_TypeError, "_unpickle takes the buffer, element type, shape, order, padding, "
		                                   "usm_type, device and readonly flag of a pickled array");
	memset(&r, 0, sizeof r);
	PyObject *a = parse_recipe(args, &r) == 0 ? rebuild(args[0], &r) : NULL;
	usmb_where_clear(&r.w);
	return a;
}
