/* array_type.c: the type Array of Python: its attributes, methods and texts. */
#include <stdlib.h>
#include <string.h>

#include "usmb_array.h"
#include "usmb_buffer.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_device.h"
#include "usmb_export.h"
#include "usmb_index.h"
#include "usmb_module.h"
#include "usmb_storage.h"
#include "usmb_suai.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

/* ---- attributes -------------------------------------------------------------- */

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
	return usmb_device_of_place(usmb_array_place(a));
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

/* ---- text ---------------------------------------------------------------------- */

static PyObject *plain_repr(usmb_array *a, PyObject *body)
{
	PyObject *shape = usmb_tuple_i64(usmb_shape(a), a->ndim);
	PyObject *dtype = usmb_py.PyObject_GetAttr((PyObject *)a, usmb_name.dtype);
	usmb_place *place = usmb_array_place(a);
	static const char *const kinds[] = {"", "device", "shared", "host"};
	PyObject *r = NULL;
	if (shape && dtype && place)
		r = usmb_py.PyUnicode_FromFormat(
		        body ? "Array(%V, dtype=%U, device=%s, usm_type=%s)"
			     : "<Array%V at memory of a fork, dtype=%U, device=%s, usm_type=%s>",
		        body, "", dtype, place->filter, kinds[place->kind & 3]);
	else if (shape && dtype)
		r = usmb_py.PyUnicode_FromFormat("Array(%V, dtype=%U, device=host)", body, "", dtype);
	Py_XDECREF(shape);
	Py_XDECREF(dtype);
	return r;
}

static PyObject *array_repr(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	usmb_array *read = a;
	PyObject *host = NULL, *body = NULL;
	usmb_where w;
	usmb_goerr err;
	char *text = NULL;
	err.kind = USMB_ERR_NONE;
	usmb_owner_drain();
	if (usmb_py_in_child()) {
		body = usmb_py.PyUnicode_FromString("...");
	} else {
		memset(&w, 0, sizeof w);
		w.host = 1;
		if (!(a->flags & USMB_ARR_READ) || !usmb_array_aligned(a)) {
			host = usmb_copy_to(a, &w);
			if (!host) return NULL;
			read = (usmb_array *)host;
		}
		if (usmb_array_wait(read) < 0) goto done;
		usmb_dl_tensor t = {read->first,      {USMB_DL_CPU, 0},   read->ndim, read->dtype,
		                    usmb_shape(read), usmb_strides(read), 0};
		PyThreadState *saved = usmb_py.PyEval_SaveThread();
		int r = usmb_go_text(&t, (read->flags & USMB_ARR_PADDED) != 0, 6, &text, &err);
		usmb_py.PyEval_RestoreThread(saved);
		if (r < 0) {
			usmb_raise_go(&err);
			goto done;
		}
		body = usmb_py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
		free(text);
	}
done:
	Py_XDECREF(host);
	PyObject *out = body ? plain_repr(a, body) : NULL;
	Py_XDECREF(body);
	return out;
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
        {Py_tp_dealloc, usmb_array_dealloc},
        {Py_tp_repr, array_repr},
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
