/* copy.c: copies of arrays, within a device and between devices and the host. */
#include <stdlib.h>
#include <string.h>

#include "usmb_pymod.h"

/* ---- strided gather in host memory ------------------------------------------------------ */

static void gather_run(char *dst, const char *src, int64_t n, int64_t step, int64_t width)
{
	if (step == width) {
		memcpy(dst, src, (size_t)(n * width));
		return;
	}
	switch (width) {
	case 1:
		for (; n > 0; n--, src += step) *dst++ = *src;
		return;
	case 4:
		for (; n > 0; n--, src += step, dst += 4) memcpy(dst, src, 4);
		return;
	case 8:
		for (; n > 0; n--, src += step, dst += 8) memcpy(dst, src, 8);
		return;
	default:
		for (; n > 0; n--, src += step, dst += width) memcpy(dst, src, (size_t)width);
	}
}

/* The elements in C order; src is the address of element [0, ..., 0]. */
static void gather(char *dst, const char *src, usmb_array *a)
{
	int64_t index[USMB_DL_MAX_NDIM] = {0}, width = usmb_itemsize(a);
	int32_t last = a->ndim - 1;
	if (a->nelem == 0) return;
	if (a->ndim == 0) {
		memcpy(dst, src, (size_t)width);
		return;
	}
	int64_t run = usmb_shape(a)[last], step = usmb_strides(a)[last] * width;
	for (;;) {
		gather_run(dst, src, run, step, width);
		dst += run * width;
		int32_t i = last - 1;
		for (; i >= 0; i--) {
			src += usmb_strides(a)[i] * width;
			if (++index[i] < usmb_shape(a)[i]) break;
			src -= usmb_strides(a)[i] * width * usmb_shape(a)[i];
			index[i] = 0;
		}
		if (i < 0) return;
	}
}

/* The same for packed elements of less than a byte, bit by bit. */
static void gather_bits(uint8_t *dst, const uint8_t *src, usmb_array *a)
{
	int64_t index[USMB_DL_MAX_NDIM] = {0}, at = 0, bits = a->itembits;
	memset(dst, 0, (size_t)usmb_nbytes(a));
	for (int64_t k = 0; k < a->nelem; k++) {
		for (int64_t b = 0; b < bits; b++) {
			int64_t s = at * bits + b, d = k * bits + b, byte = s >= 0 ? s / 8 : -((7 - s) / 8);
			if (src[byte] >> (s - byte * 8) & 1) dst[d / 8] |= (uint8_t)(1 << d % 8);
		}
		for (int32_t i = a->ndim - 1; i >= 0; i--) {
			at += usmb_strides(a)[i];
			if (++index[i] < usmb_shape(a)[i]) break;
			at -= usmb_strides(a)[i] * usmb_shape(a)[i];
			index[i] = 0;
		}
	}
}

static void gather_any(char *dst, const char *src, usmb_array *a)
{
	if (a->itembits < 8)
		gather_bits((uint8_t *)dst, (const uint8_t *)src, a);
	else
		gather(dst, src, a);
}

/* ---- through SYCL ------------------------------------------------------------------------ */

/* Copies and waits; the work pending on the source comes first. */
static int transfer(void *queue, void *dst, const void *src, int64_t bytes, usmb_cell *after)
{
	if (bytes == 0) return USMB_SYCL_OK;
	void *event = NULL, *dep = after ? usmb_pending_copy(after) : NULL;
	int code = usmb_sycl_memcpy(queue, dst, src, (size_t)bytes, dep ? &dep : NULL, dep ? 1 : 0, &event);
	if (code == USMB_SYCL_OK) code = usmb_sycl_wait_event(event);
	usmb_sycl_event_delete(event);
	usmb_sycl_event_delete(dep);
	return code;
}

/* Device memory to dense host memory; the whole range that the elements span
   is fetched when they are not dense. */
static int fetch(char *dst, usmb_array *a)
{
	void *queue = usmb_array_place(a)->queue;
	if (a->flags & USMB_ARR_C && a->itembits >= 8) return transfer(queue, dst, a->first, usmb_nbytes(a), a->cell);
	int64_t lo, hi;
	usmb_array_range(a, &lo, &hi);
	char *stage = malloc(hi - lo > 0 ? (size_t)(hi - lo) : 1);
	if (!stage) return USMB_SYCL_ENOMEM;
	int code = transfer(queue, stage, a->first + lo, hi - lo, a->cell);
	if (code == USMB_SYCL_OK) gather_any(dst, stage - lo, a);
	free(stage);
	return code;
}

/* To dst, dense and in C order, from a; without the GIL. */
static int copy_dense(usmb_array *dst, usmb_array *a)
{
	int64_t bytes = usmb_nbytes(a);
	usmb_place *to = usmb_array_place(dst), *from = usmb_array_place(a);
	int dense = a->flags & USMB_ARR_C && a->itembits >= 8;
	if (dst->flags & USMB_ARR_READ) {
		if (!(a->flags & USMB_ARR_READ)) return fetch(dst->first, a);
		if (dense)
			memcpy(dst->first, a->first, (size_t)bytes);
		else
			gather_any(dst->first, a->first, a);
		return USMB_SYCL_OK;
	}
	if (dense && (!from || usmb_sycl_context_equal(to->context, from->context)))
		return transfer(to->queue, dst->first, a->first, bytes, from ? a->cell : NULL);
	char *stage = malloc(bytes > 0 ? (size_t)bytes : 1);
	if (!stage) return USMB_SYCL_ENOMEM;
	int code = USMB_SYCL_OK;
	if (a->flags & USMB_ARR_READ)
		gather_any(stage, a->first, a);
	else
		code = fetch(stage, a);
	if (code == USMB_SYCL_OK) code = transfer(to->queue, dst->first, stage, bytes, NULL);
	free(stage);
	return code;
}

int usmb_copy_elements(usmb_array *dst, usmb_array *src)
{
	if (src->nelem == 0) return 0;
	if (usmb_array_wait(src) < 0) return -1;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int code = copy_dense(dst, src);
	usmb_py.PyEval_RestoreThread(saved);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(code == USMB_SYCL_ENOMEM ? usmb_py.PyExc_MemoryError : usmb_py.PyExc_RuntimeError,
	           "copying %lld bytes: %s", (long long)usmb_nbytes(src), usmb_sycl_strerror(code));
	return -1;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static PyObject *copy_into(usmb_array *src, const usmb_where *w)
{
	usmb_dl_dtype dtype = src->dtype, store = dtype;
	/* Padded sub-byte elements take a byte each. */
	if (src->itembits != dtype.bits) store = (usmb_dl_dtype){USMB_DL_UINT, (uint8_t)src->itembits, 1};
	PyObject *o = usmb_new_array(w, src->ndim, usmb_shape(src), store, 0, 0);
	if (!o) return NULL;
	usmb_array *a = (usmb_array *)o;
	a->dtype = dtype;
	a->flags |= src->flags & USMB_ARR_PADDED;
	if (usmb_copy_elements(a, src) == 0) return o;
	Py_DECREF(o);
	return NULL;
}

PyObject *usmb_copy_to(usmb_array *src, const usmb_where *w)
{
	usmb_where here;
	if (w) return copy_into(src, w);
	memset(&here, 0, sizeof here);
	usmb_place *place = usmb_array_place(src);
	if (!place) {
		here.host = 1;
		return copy_into(src, &here);
	}
	here.kind = place->kind;
	here.queue.form = USMB_FORM_QUEUE;
	here.queue.ref = place->queue; /* held by src */
	return copy_into(src, &here);
}

PyObject *usmb_copy_for(usmb_array *src, const usmb_dl_device *dev)
{
	usmb_place *place = usmb_array_place(src);
	usmb_where w;
	memset(&w, 0, sizeof w);
	if (!dev && (!place || place->dl_error == 0)) return usmb_copy_to(src, NULL);
	if (dev && dev->type == USMB_DL_CPU) {
		w.host = 1;
		return copy_into(src, &w);
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
	return copy_into(src, &w);
}

PyObject *usmb_as_host(usmb_array *src)
{
	usmb_dl_device cpu = {USMB_DL_CPU, 0};
	void *managed;
	if (!src->cell->place) return Py_NewRef(src);
	if (usmb_array_wait(src) < 0 || usmb_array_export(src, cpu, usmb_array_dlflags(src), 1, &managed) < 0)
		return NULL;
	PyObject *a = usmb_import_managed(managed, 1);
	if (!a) usmb_dl_delete(managed, 1);
	return a;
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
