/* copy.c: copies and conversions of arrays: what is copied where. Go moves the
   elements. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_storage.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

/* Beside src: the same context, device and kind of memory. */
static void beside(usmb_array *src, usmb_where *w)
{
	usmb_place *place = usmb_array_place(src);
	memset(w, 0, sizeof *w);
	w->host = place == NULL;
	if (!place) return;
	w->kind = place->kind;
	w->queue.form = USMB_FORM_QUEUE;
	w->queue.ref = place->queue; /* held by src */
}

PyObject *usmb_copy_as(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w)
{
	usmb_where here;
	usmb_alloc_req req;
	usmb_goerr err;
	usmb_cell *cell = NULL;
	int same = dtype.code == src->dtype.code && dtype.bits == src->dtype.bits;
	if (!w) {
		beside(src, &here);
		w = &here;
	}
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0 || usmb_request(w, &req) < 0 || usmb_array_wait(src) < 0) return NULL;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int r = usmb_go_copy(&req, src, dtype, &cell, &err);
	usmb_py.PyEval_RestoreThread(saved);
	if (r < 0) {
		usmb_raise_go(&err);
		return NULL;
	}
	return usmb_array_dense(cell, src->ndim, usmb_shape(src), dtype, 0, same ? src->flags & USMB_ARR_PADDED : 0);
}

PyObject *usmb_copy_to(usmb_array *src, const usmb_where *w)
{
	return usmb_copy_as(src, src->dtype, w);
}

PyObject *usmb_copy_for(usmb_array *src, const usmb_dl_device *dev)
{
	usmb_place *place = usmb_array_place(src);
	usmb_where w;
	memset(&w, 0, sizeof w);
	if (!dev && (!place || place->dl_error == 0)) return usmb_copy_to(src, NULL);
	if (dev && dev->type == USMB_DL_CPU) {
		w.host = 1;
		return usmb_copy_to(src, &w);
	}
	/* The queue of a root device lies in its platform's default context. */
	int32_t id = dev ? dev->id : place->root;
	void *queue = NULL;
	int code = usmb_sycl_current_queue(id, &queue);
	if (code == USMB_SYCL_ENOLIB && usmb_open_sycl() == 0) code = usmb_sycl_current_queue(id, &queue);
	if (usmb_py.PyErr_Occurred()) return NULL;
	if (code != USMB_SYCL_OK || !queue)
		return usmb_raise(usmb_py.PyExc_BufferError, "no copy on DLPack device (14, %d): %s", id,
		                  usmb_sycl_strerror(code));
	w.queue.form = USMB_FORM_QUEUE;
	w.queue.ref = queue;
	w.kind = place ? place->kind : USMB_USM_DEVICE;
	return usmb_copy_to(src, &w);
}

PyObject *usmb_as_host(usmb_array *src)
{
	int64_t lo, hi;
	if (!src->cell->place) return Py_NewRef(src);
	if (usmb_array_wait(src) < 0) return NULL;
	usmb_array *a = usmb_array_raw(src->ndim);
	if (!a) return NULL;
	usmb_array_range(src, &lo, &hi);
	usmb_cell *cell = usmb_cell_of_object((PyObject *)src, src->first + lo, (uint64_t)(hi - lo), NULL);
	if (!cell) {
		Py_DECREF(a);
		return NULL;
	}
	Py_INCREF(src);
	for (int32_t i = 0; i < 2 * src->ndim; i++) a->dims[i] = src->dims[i];
	usmb_array_settle(a, cell, src->first, src->dtype, src->flags);
	return (PyObject *)a;
}

PyObject *usmb_array_copy(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	return usmb_copy_to((usmb_array *)self, NULL);
}

PyObject *usmb_array_to_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	PyObject *const names[2] = {NULL, usmb_name.stream};
	PyObject *v[2] = {NULL, NULL};
	usmb_array *a = (usmb_array *)self;
	usmb_where w;
	memset(&w, 0, sizeof w);
	usmb_owner_drain();
	if (usmb_args("to_device", args, n, kw, names, 2, 1, 1, v) < 0) return NULL;
	if (v[1] && v[1] != usmb_py.Py_None)
		return usmb_raise(usmb_py.PyExc_ValueError, "to_device waits for its copy, stream must be None");
	if (usmb_parse_device(v[0], &w) < 0) return NULL;
	/* The kind of memory goes along, as long as both sides have kinds. */
	PyObject *r;
	if (usmb_is_at(a, &w)) {
		r = Py_NewRef(self);
	} else {
		if (a->cell->place && !w.host) w.kind = usmb_array_place(a)->kind;
		r = usmb_copy_to(a, &w);
	}
	usmb_where_clear(&w);
	return r;
}

PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused)
{
	usmb_where host;
	usmb_array *a = (usmb_array *)self;
	(void)unused;
	usmb_owner_drain();
	if (!usmb_dl_dtype_typestr(a->dtype)) {
		const char *name = usmb_dl_dtype_name(a->dtype);
		return usmb_raise(usmb_py.PyExc_TypeError,
		                  "NumPy has no element type %s; convert with asarray(x, dtype=\"float32\") first",
		                  name ? name : "like this");
	}
	memset(&host, 0, sizeof host);
	host.host = 1;
	PyObject *numpy = usmb_py.PyImport_ImportModule("numpy");
	PyObject *copy = numpy ? usmb_copy_to(a, &host) : NULL;
	PyObject *r = copy ? usmb_py.PyObject_CallMethod(numpy, "asarray", "O", copy) : NULL;
	Py_XDECREF(copy);
	Py_XDECREF(numpy);
	return r;
}
