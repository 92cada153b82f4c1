/* array.c: the type Array: life, attributes, views. */
#include <string.h>

#include "usmb_pymod.h"

PyTypeObject *usmb_array_type;

/* Freed arrays of few dimensions, kept for the next ones: most arrays live for
   one hand-over only. Guarded by the GIL. */
enum { KEEP_NDIM = 4, KEEP_MAX = 64 };
static usmb_array *kept[KEEP_MAX];
static int nkept;

usmb_array *usmb_array_raw(int32_t ndim)
{
	usmb_array *a;
	if (ndim <= KEEP_NDIM && nkept > 0) {
		a = kept[--nkept];
	} else {
		int32_t room = ndim < KEEP_NDIM ? KEEP_NDIM : ndim;
		a = usmb_py.PyObject_Malloc(sizeof *a + 2 * (size_t)room * sizeof(int64_t));
		if (!a) {
			usmb_py.PyErr_NoMemory();
			return NULL;
		}
	}
	usmb_py.PyObject_Init((PyObject *)a, usmb_array_type);
	a->ob_base.ob_size = 2 * ndim;
	a->cell = NULL;
	a->ndim = ndim;
	return a;
}

static void array_dealloc(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (a->cell) usmb_cell_drop_gil(a->cell);
	usmb_owner_drain();
	if (a->ndim <= KEEP_NDIM && nkept < KEEP_MAX)
		kept[nkept++] = a;
	else
		usmb_py.PyObject_Free(a);
	Py_DECREF(type);
}

uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags)
{
	if (dtype.bits < 8 && (flags & USMB_ARR_PADDED)) return 8;
	return dtype.bits;
}

void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran)
{
	int64_t step = 1;
	for (int32_t k = 0; k < ndim; k++) {
		int32_t i = fortran ? k : ndim - 1 - k;
		strides[i] = step;
		if (shape[i] > 0) step *= shape[i];
	}
}

/* Strides of modes that have one element do not matter; an array without
   elements is contiguous in every order. Products are unsigned: they wrap in arrays
   without elements only, where they mean nothing. */
static uint32_t contiguity(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	uint32_t flags = USMB_ARR_C | USMB_ARR_F;
	uint64_t c = 1, f = 1;
	for (int32_t i = ndim - 1; i >= 0; i--) {
		if (shape[i] == 0) return USMB_ARR_C | USMB_ARR_F;
		if (shape[i] != 1 && (uint64_t)strides[i] != c) flags &= ~(uint32_t)USMB_ARR_C;
		c *= (uint64_t)shape[i];
	}
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] != 1 && (uint64_t)strides[i] != f) flags &= ~(uint32_t)USMB_ARR_F;
		f *= (uint64_t)shape[i];
	}
	return flags;
}

static uint32_t memory_flags(const usmb_cell *cell, uint32_t extra)
{
	uint32_t cellflags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	uint32_t flags = extra & (USMB_ARR_READONLY | USMB_ARR_PADDED);
	if (cellflags & USMB_CELL_READONLY) flags |= USMB_ARR_READONLY;
	if (!cell->place)
		flags |= USMB_ARR_HOST | USMB_ARR_READ;
	else if (((usmb_place *)cell->place)->host_readable)
		flags |= USMB_ARR_READ;
	return flags;
}

void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra, const usmb_dl_span *span)
{
	uint32_t flags = memory_flags(cell, extra);
	if (span->contig & USMB_DL_C_CONTIGUOUS) flags |= USMB_ARR_C;
	if (span->contig & USMB_DL_F_CONTIGUOUS) flags |= USMB_ARR_F;
	a->cell = cell;
	a->first = span->first;
	a->dtype = dtype;
	a->flags = flags;
	a->nelem = span->nelem;
	a->itembits = span->itembits;
}

void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra)
{
	uint32_t flags = memory_flags(cell, extra) | contiguity(a->ndim, usmb_shape(a), usmb_strides(a));
	uint64_t n = 1; /* see contiguity */
	for (int32_t i = 0; i < a->ndim; i++) n *= (uint64_t)usmb_shape(a)[i];
	a->cell = cell;
	a->first = first;
	a->dtype = dtype;
	a->flags = flags;
	a->nelem = (int64_t)n;
	a->itembits = usmb_item_bits(dtype, flags);
}

PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	usmb_array *a = usmb_array_raw(ndim);
	if (!a) return NULL;
	if (ndim > 0) {
		memcpy(usmb_shape(a), shape, (size_t)ndim * sizeof *shape);
		memcpy(usmb_strides(a), strides, (size_t)ndim * sizeof *strides);
	}
	usmb_cell_retain(src->cell);
	usmb_array_settle(a, src->cell, first, src->dtype, src->flags);
	return (PyObject *)a;
}

void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi)
{
	int64_t down = 0, up = 0;
	*lo = *hi = 0;
	if (a->nelem == 0) return;
	for (int32_t i = 0; i < a->ndim; i++) {
		int64_t reach = (usmb_shape(a)[i] - 1) * usmb_strides(a)[i];
		if (reach < 0)
			down += reach;
		else
			up += reach;
	}
	int64_t bits = a->itembits;
	*lo = (down * bits) >> 3; /* packed elements: down to the whole byte */
	*hi = ((up + 1) * bits + 7) / 8;
}

int usmb_array_wait(usmb_array *a)
{
	void *event = usmb_pending_copy(a->cell);
	void *producer = usmb_owned_by_python(a->cell) ? usmb_cell_producer(a->cell) : NULL;
	if (!event && !producer) return 0;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int code = event ? usmb_sycl_wait_event(event) : USMB_SYCL_OK;
	if (event) {
		usmb_sycl_event_delete(event);
		usmb_pending_done(a->cell);
	}
	if (code == USMB_SYCL_OK && producer) code = usmb_sycl_wait_queue(producer);
	usmb_py.PyEval_RestoreThread(saved);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(usmb_py.PyExc_RuntimeError, "waiting for pending work on the array's memory: %s",
	           usmb_sycl_strerror(code));
	return -1;
}

/* ---- attributes -------------------------------------------------------------- */

PyObject *usmb_tuple_i64(const int64_t *v, Py_ssize_t n)
{
	PyObject *t = usmb_py.PyTuple_New(n);
	if (!t) return NULL;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *x = usmb_py.PyLong_FromLongLong(v[i]);
		if (!x) {
			Py_DECREF(t);
			return NULL;
		}
		usmb_py.PyTuple_SetItem(t, i, x);
	}
	return t;
}

#define GETTER(name) static PyObject *get_##name(PyObject *self, void *closure __attribute__((unused)))
#define ARRAY(self) ((usmb_array *)(self))

GETTER(shape)
{
	usmb_array *a = ARRAY(self);
	return usmb_tuple_i64(usmb_shape(a), a->ndim);
}

GETTER(strides)
{
	usmb_array *a = ARRAY(self);
	return usmb_tuple_i64(usmb_strides(a), a->ndim);
}

GETTER(dtype)
{
	usmb_array *a = ARRAY(self);
	const char *name = usmb_dl_dtype_name(a->dtype);
	if (name) return usmb_py.PyUnicode_InternFromString(name);
	return usmb_py.PyUnicode_FromFormat("code%dbits%d", a->dtype.code, a->dtype.bits);
}

GETTER(typestr)
{
	usmb_array *a = ARRAY(self);
	const char *s = usmb_dl_dtype_typestr(a->dtype);
	if (!s) USMB_PY_RETURN_NONE;
	return usmb_py.PyUnicode_InternFromString(s);
}

GETTER(ndim)
{
	usmb_array *a = ARRAY(self);
	return usmb_py.PyLong_FromLong(a->ndim);
}

GETTER(size)
{
	usmb_array *a = ARRAY(self);
	return usmb_py.PyLong_FromLongLong(a->nelem);
}

GETTER(itemsize)
{
	usmb_array *a = ARRAY(self);
	return usmb_py.PyLong_FromLongLong(usmb_itemsize(a));
}

GETTER(nbytes)
{
	usmb_array *a = ARRAY(self);
	return usmb_py.PyLong_FromLongLong(usmb_nbytes(a));
}

GETTER(readonly)
{
	usmb_array *a = ARRAY(self);
	USMB_PY_RETURN_BOOL(a->flags & USMB_ARR_READONLY);
}

GETTER(usm_type)
{
	usmb_array *a = ARRAY(self);
	static const char *const names[] = {NULL, "device", "shared", "host"};
	usmb_place *place = usmb_array_place(a);
	if (!place || place->kind < 1 || place->kind > 3) USMB_PY_RETURN_NONE;
	return usmb_py.PyUnicode_InternFromString(names[place->kind]);
}

GETTER(device)
{
	usmb_array *a = ARRAY(self);
	return usmb_device_of(a);
}

GETTER(sycl_device)
{
	usmb_array *a = ARRAY(self);
	if (!a->cell->place) USMB_PY_RETURN_NONE;
	PyObject *queue = usmb_public_queue(a->cell->place);
	PyObject *device = queue ? usmb_py.PyObject_GetAttrString(queue, "sycl_device") : NULL;
	Py_XDECREF(queue);
	return device;
}

GETTER(sycl_queue)
{
	usmb_array *a = ARRAY(self);
	if (!a->cell->place) USMB_PY_RETURN_NONE;
	return usmb_public_queue(a->cell->place);
}

GETTER(sycl_context)
{
	usmb_array *a = ARRAY(self);
	if (!a->cell->place) USMB_PY_RETURN_NONE;
	return usmb_public_context(a->cell->place);
}

GETTER(pointer)
{
	usmb_array *a = ARRAY(self);
	return usmb_py.PyLong_FromVoidPtr(a->first);
}

static Py_ssize_t array_length(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	if (a->ndim > 0) return (Py_ssize_t)usmb_shape(a)[0];
	usmb_raise(usmb_py.PyExc_TypeError, "len() of a 0-d array");
	return -1;
}

static PyObject *array_item(PyObject *self, Py_ssize_t i)
{
	if (((usmb_array *)self)->ndim == 0) return usmb_raise(usmb_py.PyExc_TypeError, "iteration over a 0-d array");
	PyObject *index = usmb_py.PyLong_FromSsize_t(i);
	if (!index) return NULL;
	PyObject *r = usmb_array_subscript(self, index);
	Py_DECREF(index);
	return r;
}

/* ---- the type ------------------------------------------------------------------ */

static PyMethodDef methods[] = {
        {"__dlpack__", USMB_PY_CFUNC(usmb_array_dlpack), METH_FASTCALL | METH_KEYWORDS,
	 "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
	 "A capsule with the array as a DLPack tensor, versioned when max_version[0] >= 1."},
        {"__dlpack_device__", USMB_PY_CFUNC(usmb_array_dlpack_device), METH_NOARGS,
	 "__dlpack_device__()\n--\n\nThe DLPack device: (14, root device index) for USM, (1, 0) for host memory."},
        {"reshape", USMB_PY_CFUNC(usmb_array_reshape), METH_FASTCALL | METH_KEYWORDS,
	 "reshape(shape, *, copy=None)\n--\n\nA view with another shape where the layout allows one, else a copy;\n"
	 "copy=False: ValueError instead of a copy, copy=True: always a copy."},
        {"transpose", USMB_PY_CFUNC(usmb_array_transpose), METH_FASTCALL,
	 "transpose(axes=None)\n--\n\nA view with the axes permuted, reversed by default."},
        {"copy", USMB_PY_CFUNC(usmb_array_copy), METH_NOARGS,
	 "copy()\n--\n\nA C-contiguous, writable copy beside the array (same device and kind of memory)."},
        {"to_device", USMB_PY_CFUNC(usmb_array_to_device), METH_FASTCALL | METH_KEYWORDS,
	 "to_device(device, /, *, stream=None)\n--\n\nThe array on a device; the array itself when it is there "
	 "already."},
        {"asnumpy", USMB_PY_CFUNC(usmb_array_asnumpy), METH_NOARGS,
	 "asnumpy()\n--\n\nA NumPy array with a copy of the elements."},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"shape", get_shape, NULL, "Extents, a tuple.", NULL},
        {"strides", get_strides, NULL, "Steps between neighbours in elements, a tuple.", NULL},
        {"dtype", get_dtype, NULL, "Name of the element type as the array API has it.", NULL},
        {"typestr", get_typestr, NULL, "Type string of the array interfaces; None where there is none.", NULL},
        {"ndim", get_ndim, NULL, "Number of dimensions.", NULL},
        {"size", get_size, NULL, "Number of elements.", NULL},
        {"itemsize", get_itemsize, NULL, "Bytes of one element (1 for packed sub-byte types).", NULL},
        {"nbytes", get_nbytes, NULL, "Bytes of all elements laid side by side.", NULL},
        {"usm_type", get_usm_type, NULL, "\"device\", \"shared\" or \"host\"; None on the host backend.", NULL},
        {"device", get_device, NULL, "The Device that the memory belongs to.", NULL},
        {"sycl_queue", get_sycl_queue, NULL,
	 "A queue on the memory's context and device: a dpctl.SyclQueue where dpctl is loaded, else\na light object "
	 "with _get_capsule(); None on the host backend.",
	 NULL},
        {"sycl_context", get_sycl_context, NULL,
	 "The memory's context, likewise a dpctl.SyclContext; None on the host backend.", NULL},
        {"sycl_device", get_sycl_device, NULL,
	 "The device of the USM: a dpctl.SyclDevice where dpctl is loaded, else a Device; None on\nthe host backend.",
	 NULL},
        {"readonly", get_readonly, NULL, "Whether writing is refused.", NULL},
        {"T", usmb_array_T, NULL, "The array with its axes reversed.", NULL},
        {"_pointer", get_pointer, NULL, "Address of the first element.", NULL},
        {"__sycl_usm_array_interface__", usmb_array_suai, NULL,
	 "The dictionary of the SYCL USM array interface; no such attribute on the host backend.", NULL},
        {"__array_interface__", usmb_array_interface, NULL,
	 "NumPy's array interface, where the host may read the memory.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static const char doc[] =
        "A typed, strided view of reference-counted memory: USM of a SYCL device or plain host memory.\n\n"
        "Made by empty, zeros, asarray, from_dlpack and from_usm_array_interface. Views share the\n"
        "memory and keep it alive.";

static PyType_Slot slots[] = {
        {Py_tp_dealloc, array_dealloc},
        {Py_tp_repr, usmb_array_repr},
        {Py_tp_doc, (void *)doc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {Py_mp_length, array_length},
        {Py_mp_subscript, usmb_array_subscript},
        {Py_sq_length, array_length},
        {Py_sq_item, array_item},
        {Py_bf_getbuffer, usmb_array_getbuffer},
        {Py_bf_releasebuffer, usmb_array_releasebuffer},
        {0, NULL},
};

static PyType_Spec spec = {
        "usmbridge.Array",
        sizeof(usmb_array),
        sizeof(int64_t),
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        slots,
};

int usmb_array_register(PyObject *module)
{
	usmb_array_type = (PyTypeObject *)usmb_py.PyType_FromSpec(&spec);
	if (!usmb_array_type) return -1;
	return usmb_py.PyModule_AddObjectRef(module, "Array", (PyObject *)usmb_array_type);
}
