/* import.c: from_dlpack: arrays of others by DLPack, without copying. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_export.h"
#include "usmb_import.h"
#include "usmb_storage.h"
#include "usmb_support.h"
#include "usmb_syclref.h"
#include "usmb_tensor.h"
#include "usmb_typeinfo.h"

static PyObject *refuse_device(const usmb_dl_tensor *t)
{
	const char *name = usmb_dl_device_name(t->device.type);
	return usmb_raise(
	        PyExc_BufferError,
	        "from_dlpack: the tensor is on device (%d, %d)%s%s; only kDLCPU (1) and kDLOneAPI (14) can be taken "
	        "without a copy: ask its owner for a copy on the host",
	        t->device.type, t->device.id, name ? " " : "", name ? name : "");
}

/* The array of a snapshot that is sound and on a device of ours. */
static PyObject *array_of(void *managed, int versioned, usmb_dl_snapshot *s)
{
	usmb_array *a = usmb_array_raw(s->t.ndim);
	if (!a) return NULL;
	usmb_cell *cell = usmb_tensor_cell(managed, versioned, s);
	if (!cell) {
		Py_DECREF(a);
		return NULL;
	}
	for (int32_t i = 0; i < s->t.ndim; i++) {
		usmb_shape(a)[i] = s->shape[i];
		usmb_strides(a)[i] = s->strides[i];
	}
	uint32_t extra = (s->flags & USMB_DL_FLAG_READ_ONLY ? USMB_ARR_READONLY : 0) |
	                 (s->flags & USMB_DL_FLAG_SUBBYTE_PADDED ? USMB_ARR_PADDED : 0);
	usmb_array_settle_as(a, cell, s->t.dtype, extra, &s->span);
	return (PyObject *)a;
}

/* Whether the tensors of o (NULL: unknown) without flags may be written to. They cannot
   say so: jax gives immutable arrays in them. Ours, and those of types that refuse to
   give read-only memory in this form, may. */
static int writable_legacy(const void *managed, PyObject *o)
{
	if (usmb_dl_is_own(managed, 0)) return 1;
	const usmb_typeinfo *info = o && !PyCapsule_CheckExact(o) ? usmb_typeinfo_of(o) : NULL;
	if (!info) PyErr_Clear();
	return info &&
	       (info->kind == USMB_KIND_LEGACY || info->kind == USMB_KIND_WRITABLE || info->kind == USMB_KIND_TORCH);
}

/* usmb_import_managed of a tensor that o gave. */
static PyObject *import_from(void *managed, int versioned, PyObject *o)
{
	usmb_dl_snapshot s;
	char text[512];
	if (!managed) return usmb_raise(PyExc_BufferError, "from_dlpack: NULL is no tensor");
	int code = usmb_dl_read_managed(managed, versioned, &s);
	if (__builtin_expect(code == USMB_DL_OK, 1)) {
		if (!versioned && !writable_legacy(managed, o)) s.flags |= USMB_DL_FLAG_READ_ONLY;
		int known = s.t.device.type == USMB_DL_CPU || s.t.device.type == USMB_DL_ONEAPI;
		return known ? array_of(managed, versioned, &s) : refuse_device(&s.t);
	}
	return usmb_raise(PyExc_BufferError, "from_dlpack: %s", usmb_dl_explain_snapshot(code, &s, text, sizeof text));
}

PyObject *usmb_import_managed(void *managed, int versioned)
{
	return import_from(managed, versioned, NULL);
}

/* ctx: the object that is asked. */
static PyObject *take_array(void *managed, int versioned, void *ctx)
{
	return import_from(managed, versioned, ctx);
}

/* Ours, by view: its facts are settled. What DLPack cannot describe stays out,
   as it would between strangers. */
static PyObject *import_own(usmb_array *a)
{
	usmb_dl_device dev;
	if (!usmb_array_alive(a) || usmb_array_check_aligned(a) < 0 || usmb_array_device(a, &dev) < 0) return NULL;
	return usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
}

/* Types with an exchange API name the queue that they work on, and neither that API nor
   their __dlpack__ needs to wait for it: the work on it so far becomes pending work of the
   array o. */
static PyObject *note_stream(const usmb_dl_exchange_api *api, PyObject *o)
{
	usmb_array *a = (usmb_array *)o;
	void *queue = NULL, *event = NULL;
	usmb_dl_device dev;
	if (!api->current_work_stream) return o;
	if (usmb_array_device(a, &dev) == 0 && api->current_work_stream(dev.type, dev.id, &queue) == 0 && queue &&
	    usmb_sycl_barrier(queue, NULL, 0, &event) == USMB_SYCL_OK)
		usmb_pending_set(a->cell, event);
	if (!PyErr_Occurred()) return o;
	Py_DECREF(o);
	return NULL;
}

/* dpnp's arrays name the queue that works on them, and __dlpack__ waits for
   nothing: the array names it too, and whoever reads here waits for it first. One of
   another context is no queue for this memory. */
static PyObject *note_producer(PyObject *x, PyObject *o)
{
	usmb_array *a = (usmb_array *)o;
	usmb_syclref ref;
	if (!usmb_owned_by_python(a->cell)) return o;
	PyObject *queue = PyObject_GetAttr(x, usmb_name.sycl_queue), *named = NULL;
	if (queue && usmb_syclref_get(queue, &ref, "sycl_queue") == 0) {
		usmb_place *place = usmb_array_place(a);
		if (ref.form == USMB_FORM_QUEUE && usmb_syclref_in_context(&ref, place))
			usmb_queue_of(&ref, place, &named);
		usmb_syclref_release(&ref, 0);
	}
	Py_XDECREF(queue);
	PyErr_Clear();
	usmb_array_name_queue(a, named);
	return o;
}

PyObject *usmb_import_object(PyObject *x)
{
	if (usmb_is_array(x)) return import_own((usmb_array *)x);
	PyObject *o = usmb_tensor_take(x, take_array, x);
	if (!o || !((usmb_array *)o)->cell->place || PyCapsule_CheckExact(x)) return o;
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info) {
		Py_DECREF(o);
		return NULL;
	}
	if (info->api) return note_stream(info->api, o);
	return info->kind == USMB_KIND_TENSOR || info->kind == USMB_KIND_DPNP_ARRAY ? note_producer(x, o) : o;
}

/* ---- device= and copy= ---------------------------------------------------------------- */

/* Brings a to where w says, if anything is said there; takes a. */
static PyObject *settle_request(PyObject *a, const usmb_where *w, int has_device, int copy)
{
	usmb_array *src = (usmb_array *)a;
	PyObject *r = NULL;
	usmb_where room;
	int there = !has_device || usmb_is_at(src, w);
	if (there && copy != 1) {
		r = usmb_stay(src, has_device ? w : NULL);
		Py_DECREF(a);
		return r;
	}
	if (!there && copy != 1 && w->host && src->flags & USMB_ARR_READ) {
		r = usmb_as_host(src);
	} else if (copy == 0) {
		usmb_raise(PyExc_BufferError, "from_dlpack: the memory is on another device than the one asked "
		                              "for, and copy=False forbids a copy");
	} else {
		r = usmb_copy_to(src, there ? usmb_near(src, w, &room) : w);
	}
	Py_DECREF(a);
	return r;
}

PyObject *usmb_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	PyObject *const names[3] = {NULL, usmb_name.device, usmb_name.copy};
	PyObject *v[3] = {NULL, NULL, NULL};
	(void)module;
	usmb_owner_drain();
	if (n == 1 && !kwnames) return usmb_import_object(args[0]);
	if (usmb_args("from_dlpack", args, n, kwnames, names, 3, 1, 1, v) < 0) return NULL;
	usmb_where w;
	memset(&w, 0, sizeof w);
	int copy = 2, has_device = v[1] && v[1] != Py_None;
	if (v[2] && v[2] != Py_None && (copy = PyObject_IsTrue(v[2])) < 0) return NULL;
	if (has_device && usmb_parse_device(v[1], &w) < 0) return NULL;
	PyObject *r = NULL;
	int far = has_device && w.host ? usmb_tensor_is_far(v[0]) : 0;
	if (far >= 0) {
		PyObject *a = far ? usmb_tensor_take_on_host(v[0], v[2], take_array, v[0]) : usmb_import_object(v[0]);
		r = a && !far ? settle_request(a, &w, has_device, copy) : a;
	}
	usmb_where_clear(&w);
	return r;
}
