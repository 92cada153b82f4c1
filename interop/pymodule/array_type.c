/* array_type.c: the type Array of Python: its attributes, methods and texts. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "docstrings.h"
#include "usmb_array.h"
#include "usmb_arrow.h"
#include "usmb_assign.h"
#include "usmb_buffer.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_device.h"
#include "usmb_dtype.h"
#include "usmb_element.h"
#include "usmb_export.h"
#include "usmb_index.h"
#include "usmb_module.h"
#include "usmb_numpy.h"
#include "usmb_operators.h"
#include "usmb_pickle.h"
#include "usmb_retype.h"
#include "usmb_storage.h"
#include "usmb_suai.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

/* ---- attributes -------------------------------------------------------------- */

#define ARRAY(self) ((usmb_array *)(self))
/* What a released array has no more, and what holds one meanwhile. */
#define HELD(type, failed, call) \
	if (!usmb_array_alive(ARRAY(self))) return failed; \
	usmb_array_hold(ARRAY(self)); \
	type result = call; \
	usmb_array_let(ARRAY(self)); \
	return result
#define GETTER(name) \
	static PyObject *read_##name(PyObject *self); \
	static PyObject *get_##name(PyObject *self, void *closure __attribute__((unused))) \
	{ \
		HELD(PyObject *, NULL, read_##name(self)); \
	} \
	static PyObject *read_##name(PyObject *self)

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
	return usmb_dtype_object(a->dtype);
}

GETTER(typestr)
{
	usmb_array *a = ARRAY(self);
	const char *s = usmb_dl_dtype_typestr(a->dtype);
	if (!s) Py_RETURN_NONE;
	return PyUnicode_InternFromString(s);
}

GETTER(ndim)
{
	usmb_array *a = ARRAY(self);
	return PyLong_FromLong(a->ndim);
}

GETTER(size)
{
	usmb_array *a = ARRAY(self);
	return PyLong_FromLongLong(a->nelem);
}

GETTER(itemsize)
{
	usmb_array *a = ARRAY(self);
	return PyLong_FromLongLong(usmb_itemsize(a));
}

GETTER(nbytes)
{
	usmb_array *a = ARRAY(self);
	return PyLong_FromLongLong(usmb_nbytes(a));
}

GETTER(readonly)
{
	usmb_array *a = ARRAY(self);
	return PyBool_FromLong(a->flags & USMB_ARR_READONLY);
}

GETTER(usm_type)
{
	usmb_array *a = ARRAY(self);
	static const char *const names[] = {NULL, "device", "shared", "host"};
	usmb_place *place = usmb_array_place(a);
	if (!place || place->kind < 1 || place->kind > 3) Py_RETURN_NONE;
	return PyUnicode_InternFromString(names[place->kind]);
}

GETTER(interprocess)
{
	usmb_array *a = ARRAY(self);
	int audience = a->flags & USMB_ARR_PEERS_READ ? USMB_AUDIENCE_READ : USMB_AUDIENCE_WRITE;
	/* Memory that came another way may be such memory too: Go knows. */
	if (!(a->flags & USMB_ARR_INTERPROCESS)) audience = usmb_py_in_child() ? 0 : usmb_go_audience(a->cell);
	if (audience == USMB_AUDIENCE_READ) return PyUnicode_InternFromString("readonly");
	return PyBool_FromLong(audience != USMB_AUDIENCE_NONE);
}

GETTER(device)
{
	usmb_array *a = ARRAY(self);
	return usmb_device_of_place(usmb_array_place(a));
}

GETTER(sycl_queue)
{
	usmb_array *a = ARRAY(self);
	if (!a->cell->place) Py_RETURN_NONE;
	return a->queue ? Py_NewRef(a->queue) : usmb_public_queue(a->cell->place);
}

GETTER(sycl_device)
{
	usmb_array *a = ARRAY(self);
	if (!a->cell->place) Py_RETURN_NONE;
	PyObject *queue = get_sycl_queue(self, NULL);
	PyObject *device = queue ? PyObject_GetAttrString(queue, "sycl_device") : NULL;
	Py_XDECREF(queue);
	return device;
}

GETTER(sycl_context)
{
	usmb_array *a = ARRAY(self);
	if (!a->cell->place) Py_RETURN_NONE;
	return usmb_public_context(a->cell->place);
}

/* NumPy's operators leave those with an Array to it, whose refusal has words. */
GETTER(priority)
{
	(void)self;
	return PyFloat_FromDouble(1000.0);
}

GETTER(pointer)
{
	usmb_array *a = ARRAY(self);
	return PyLong_FromVoidPtr(a->first);
}

static Py_ssize_t array_length(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	if (!usmb_array_alive(a)) return -1;
	if (a->ndim > 0) return (Py_ssize_t)usmb_shape(a)[0];
	usmb_raise(PyExc_TypeError, "len() of a 0-d array");
	return -1;
}

static PyObject *item_at(PyObject *self, Py_ssize_t i)
{
	if (((usmb_array *)self)->ndim == 0) return usmb_raise(PyExc_TypeError, "iteration over a 0-d array");
	PyObject *index = PyLong_FromSsize_t(i);
	if (!index) return NULL;
	PyObject *r = usmb_array_subscript(self, index);
	Py_DECREF(index);
	return r;
}

static PyObject *array_item(PyObject *self, Py_ssize_t i)
{
	HELD(PyObject *, NULL, item_at(self, i));
}

/* ---- release ------------------------------------------------------------------- */

/* The same for what other files do with an array: NAME becomes alive_NAME. */
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
ALIVE_FAST_KW(usmb_array_astype)
ALIVE_FAST_KW(usmb_array_retype)
ALIVE_FAST_KW(usmb_array_numpy)
ALIVE_FAST(usmb_array_transpose)
ALIVE_FAST(usmb_array_item)
ALIVE_FAST(usmb_array_function)
ALIVE_TWO(usmb_array_dlpack_device, PyObject *)
ALIVE_TWO(usmb_array_copy, PyObject *)
ALIVE_TWO(usmb_array_asnumpy, PyObject *)
ALIVE_TWO(usmb_array_as_readonly, PyObject *)
ALIVE_TWO(usmb_array_fill, PyObject *)
ALIVE_TWO(usmb_array_tolist, PyObject *)
ALIVE_TWO(usmb_array_complex, PyObject *)
ALIVE_TWO(usmb_array_T, void *)
ALIVE_TWO(usmb_array_mT, void *)
ALIVE_TWO(usmb_array_suai, void *)
ALIVE_TWO(usmb_array_interface, void *)
ALIVE_TWO(usmb_array_subscript, PyObject *)
ALIVE_TWO(usmb_array_reduce, PyObject *)
ALIVE_ONE(usmb_array_int)
ALIVE_ONE(usmb_array_float)
ALIVE_ONE(usmb_array_index)

static int alive_usmb_array_bool(PyObject *self)
{
	HELD(int, -1, usmb_array_bool(self));
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
	PyObject *shape = usmb_tuple_i64(usmb_shape(a), a->ndim);
	PyObject *dtype = usmb_dtype_object(a->dtype);
	usmb_place *place = usmb_array_place(a);
	static const char *const kinds[] = {"", "device", "shared", "host"};
	PyObject *r = NULL;
	/* An extent of 0 shows in the brackets only where it is the one there is. */
	int empty = a->nelem == 0 && a->ndim > 1;
	if (shape && dtype && body && empty && place)
		r = PyUnicode_FromFormat("Array([], shape=%S, dtype=%U, device=%s, usm_type=%s)", shape, dtype,
		                         place->filter, kinds[place->kind & 3]);
	else if (shape && dtype && body && empty)
		r = PyUnicode_FromFormat("Array([], shape=%S, dtype=%U, device=host)", shape, dtype);
	else if (shape && dtype && place)
		r = PyUnicode_FromFormat(body ? "Array(%V, dtype=%U, device=%s, usm_type=%s)"
		                              : "<Array%V at memory of a fork, dtype=%U, device=%s, usm_type=%s>",
		                         body, "", dtype, place->filter, kinds[place->kind & 3]);
	else if (shape && dtype)
		r = PyUnicode_FromFormat("Array(%V, dtype=%U, device=host)", body, "", dtype);
	Py_XDECREF(shape);
	Py_XDECREF(dtype);
	return r;
}

static PyObject *held_repr(PyObject *self)
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
		body = PyUnicode_FromString("...");
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
		PyThreadState *saved = PyEval_SaveThread();
		int r = usmb_go_text(&t, (read->flags & USMB_ARR_PADDED) != 0, 6, &text, &err);
		PyEval_RestoreThread(saved);
		if (r < 0) {
			usmb_raise_go(&err);
			goto done;
		}
		body = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
		free(text);
	}
done:
	Py_XDECREF(host);
	PyObject *out = body ? plain_repr(a, body) : NULL;
	Py_XDECREF(body);
	return out;
}

static PyObject *array_repr(PyObject *self)
{
	if (ARRAY(self)->flags & USMB_ARR_RELEASED) return PyUnicode_FromString("<Array, released>");
	/* No error: multiprocessing takes the repr of a result that cannot be sent. */
	if (ARRAY(self)->flags & USMB_ARR_RECEIVED && usmb_py_in_child())
		return PyUnicode_FromString("<Array, memory of another process>");
	HELD(PyObject *, NULL, held_repr(self));
}

/* ---- the type ------------------------------------------------------------------ */

static PyMethodDef methods[] = {
        {"__dlpack__", USMB_PY_CFUNC(alive_usmb_array_dlpack), METH_FASTCALL | METH_KEYWORDS, doc_Array___dlpack__},
        {"__dlpack_device__", USMB_PY_CFUNC(alive_usmb_array_dlpack_device), METH_NOARGS, doc_Array___dlpack_device__},
        {"__arrow_c_array__", USMB_PY_CFUNC(alive_usmb_array_arrow), METH_FASTCALL | METH_KEYWORDS,
	 doc_Array___arrow_c_array__},
        {"__arrow_c_device_array__", USMB_PY_CFUNC(alive_usmb_array_arrow_device), METH_FASTCALL | METH_KEYWORDS,
	 doc_Array___arrow_c_device_array__},
        {"reshape", USMB_PY_CFUNC(alive_usmb_array_reshape), METH_FASTCALL | METH_KEYWORDS, doc_Array_reshape},
        {"transpose", USMB_PY_CFUNC(alive_usmb_array_transpose), METH_FASTCALL, doc_Array_transpose},
        {"copy", USMB_PY_CFUNC(alive_usmb_array_copy), METH_NOARGS, doc_Array_copy},
        {"to_device", USMB_PY_CFUNC(alive_usmb_array_to_device), METH_FASTCALL | METH_KEYWORDS, doc_Array_to_device},
        {"asnumpy", USMB_PY_CFUNC(alive_usmb_array_asnumpy), METH_NOARGS, doc_Array_asnumpy},
        {"astype", USMB_PY_CFUNC(alive_usmb_array_astype), METH_FASTCALL | METH_KEYWORDS, doc_Array_astype},
        {"view", USMB_PY_CFUNC(alive_usmb_array_retype), METH_FASTCALL | METH_KEYWORDS, doc_Array_view},
        {"as_readonly", USMB_PY_CFUNC(alive_usmb_array_as_readonly), METH_NOARGS, doc_Array_as_readonly},
        {"fill", USMB_PY_CFUNC(alive_usmb_array_fill), METH_O, doc_Array_fill},
        {"item", USMB_PY_CFUNC(alive_usmb_array_item), METH_FASTCALL, doc_Array_item},
        {"tolist", USMB_PY_CFUNC(alive_usmb_array_tolist), METH_NOARGS, doc_Array_tolist},
        {"__complex__", USMB_PY_CFUNC(alive_usmb_array_complex), METH_NOARGS, doc_Array___complex__},
        {"__array__", USMB_PY_CFUNC(alive_usmb_array_numpy), METH_FASTCALL | METH_KEYWORDS, doc_Array___array__},
        {"__array_function__", USMB_PY_CFUNC(alive_usmb_array_function), METH_FASTCALL, doc_Array___array_function__},
        {"__copy__", USMB_PY_CFUNC(alive_usmb_array_copy), METH_NOARGS, doc_Array___copy__},
        {"__deepcopy__", USMB_PY_CFUNC(alive_usmb_array_copy), METH_O, doc_Array___deepcopy__},
        {"__reduce_ex__", USMB_PY_CFUNC(alive_usmb_array_reduce), METH_O, doc_Array___reduce_ex__},
        {"release", USMB_PY_CFUNC(array_release), METH_NOARGS, doc_Array_release},
        {"__enter__", USMB_PY_CFUNC(array_enter), METH_NOARGS, doc_Array___enter__},
        {"__exit__", USMB_PY_CFUNC(array_exit), METH_FASTCALL, doc_Array___exit__},
        {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(usmb_array, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"shape", get_shape, NULL, doc_Array_shape, NULL},
        {"strides", get_strides, NULL, doc_Array_strides, NULL},
        {"dtype", get_dtype, NULL, doc_Array_dtype, NULL},
        {"typestr", get_typestr, NULL, doc_Array_typestr, NULL},
        {"ndim", get_ndim, NULL, doc_Array_ndim, NULL},
        {"size", get_size, NULL, doc_Array_size, NULL},
        {"itemsize", get_itemsize, NULL, doc_Array_itemsize, NULL},
        {"nbytes", get_nbytes, NULL, doc_Array_nbytes, NULL},
        {"usm_type", get_usm_type, NULL, doc_Array_usm_type, NULL},
        {"interprocess", get_interprocess, NULL, doc_Array_interprocess, NULL},
        {"device", get_device, NULL, doc_Array_device, NULL},
        {"sycl_queue", get_sycl_queue, NULL, doc_Array_sycl_queue, NULL},
        {"sycl_context", get_sycl_context, NULL, doc_Array_sycl_context, NULL},
        {"sycl_device", get_sycl_device, NULL, doc_Array_sycl_device, NULL},
        {"readonly", get_readonly, NULL, doc_Array_readonly, NULL},
        {"T", alive_usmb_array_T, NULL, doc_Array_T, NULL},
        {"__array_priority__", get_priority, NULL, doc_Array___array_priority__, NULL},
        {"mT", alive_usmb_array_mT, NULL, doc_Array_mT, NULL},
        {"_pointer", get_pointer, NULL, doc_Array__pointer, NULL},
        {"__sycl_usm_array_interface__", alive_usmb_array_suai, NULL, doc_Array___sycl_usm_array_interface__, NULL},
        {"__array_interface__", alive_usmb_array_interface, NULL, doc_Array___array_interface__, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, usmb_array_dealloc},
        {Py_tp_traverse, usmb_array_traverse},
        {Py_tp_clear, usmb_array_clear},
        {Py_tp_members, members},
        {Py_tp_repr, array_repr},
        {Py_tp_richcompare, usmb_array_richcompare},
        {Py_tp_hash, usmb_array_hash},
        {Py_tp_doc, (void *)doc_Array},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {Py_mp_length, array_length},
        {Py_mp_subscript, alive_usmb_array_subscript},
        {Py_mp_ass_subscript, alive_usmb_array_assign},
        {Py_sq_length, array_length},
        {Py_sq_item, array_item},
        {Py_sq_ass_item, alive_usmb_array_assign_item},
        {Py_sq_contains, usmb_array_contains},
        {Py_nb_int, alive_usmb_array_int},
        {Py_nb_float, alive_usmb_array_float},
        {Py_nb_index, alive_usmb_array_index},
        {Py_nb_bool, alive_usmb_array_bool},
        {Py_nb_power, usmb_array_power},
#define X(slot, text) {Py_nb_##slot, usmb_array_##slot},
        USMB_BINARY_OPERATORS(X) USMB_UNARY_OPERATORS(X)
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
	usmb_array_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (!usmb_array_type) return -1;
	return PyModule_AddObjectRef(module, "Array", (PyObject *)usmb_array_type);
}
