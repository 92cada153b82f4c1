/* copy.c: copies and conversions of arrays: what is copied where. Go moves the
   elements. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_copy.h"
#include "usmb_create.h"
#include "usmb_kept.h"
#include "usmb_storage.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

void usmb_copy_beside(usmb_array *src, usmb_where *w)
{
	usmb_place *place = usmb_array_place(src);
	memset(w, 0, sizeof *w);
	w->host = place == NULL;
	if (!place) return;
	w->kind = place->kind;
	w->queue.form = USMB_FORM_QUEUE;
	w->queue.ref = place->queue; /* held by src */
}

enum { SMALL = 1 << 12 };

/* Whether a copy moves few bytes in a row that the host reads, and changes none. */
static int is_small(usmb_array *src, usmb_dl_dtype dtype)
{
	return src->flags & USMB_ARR_READ && src->flags & USMB_ARR_C && dtype.code == src->dtype.code &&
	       dtype.bits == src->dtype.bits && !(src->flags & USMB_ARR_PADDED) && usmb_nbytes(src) <= SMALL;
}

/* Such a copy to memory that the host writes: Go is asked for that alone. */
static PyObject *copy_small(usmb_array *src, const usmb_where *w)
{
	if (usmb_array_wait(src) < 0) return NULL;
	usmb_array *a = (usmb_array *)usmb_new_array(w, src->ndim, usmb_shape(src), src->dtype, 0, USMB_WRITTEN);
	size_t n = (size_t)usmb_nbytes(src);
	if (a && n) memcpy(a->first, src->first, n); /* without elements there may be no address */
	return (PyObject *)a;
}

static PyObject *copy_held(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w, int padded)
{
	usmb_where here;
	usmb_alloc_req req;
	usmb_goerr err;
	usmb_cell *cell = NULL;
	if (!w) {
		usmb_copy_beside(src, &here);
		w = &here;
	}
	int host = w->host || w->kind == USMB_USM_SHARED || w->kind == USMB_USM_HOST;
	if (host && !padded && is_small(src, dtype)) {
		/* Memory of the default device can be had by its kind alone, without Go. */
		usmb_place *place = usmb_array_place(src);
		if (w == &here && place && usmb_kept_lies_at(usmb_wish_of(place->kind, 0), place)) {
			memset(&here, 0, sizeof here);
			here.kind = place->kind;
		}
		PyObject *a = copy_small(src, w);
		if (a && w == &here && src->queue && !((usmb_array *)a)->queue && usmb_array_place((usmb_array *)a))
			((usmb_array *)a)->queue = Py_NewRef(src->queue);
		return a;
	}
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0 || usmb_request(w, &req) < 0 || usmb_array_wait(src) < 0) return NULL;
	req.padded = padded;
	PyThreadState *saved = PyEval_SaveThread();
	int r = usmb_go_copy(&req, src, dtype, &cell, &err);
	PyEval_RestoreThread(saved);
	if (r < 0) {
		usmb_raise_go(&err);
		return NULL;
	}
	PyObject *a = usmb_array_dense(cell, src->ndim, usmb_shape(src), dtype, 0, padded ? USMB_ARR_PADDED : 0);
	if (a && w == &here)
		((usmb_array *)a)->queue = src->queue && cell->place ? Py_NewRef(src->queue) : NULL;
	else if (a && usmb_queue_of(&w->queue, cell->place, &((usmb_array *)a)->queue) < 0)
		Py_CLEAR(a);
	return a;
}

static PyObject *copy(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w, int padded)
{
	if (usmb_array_begin(src) < 0) return NULL;
	PyObject *a = copy_held(src, dtype, w, padded);
	usmb_array_let(src);
	return a;
}

PyObject *usmb_copy_as(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w)
{
	int same = dtype.code == src->dtype.code && dtype.bits == src->dtype.bits;
	return copy(src, dtype, w, same && src->flags & USMB_ARR_PADDED);
}

PyObject *usmb_copy_to(usmb_array *src, const usmb_where *w)
{
	return usmb_copy_as(src, src->dtype, w);
}

PyObject *usmb_copy_padded(usmb_array *src, const usmb_where *w)
{
	return copy(src, src->dtype, w, 1);
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
	if (PyErr_Occurred()) return NULL;
	if (code != USMB_SYCL_OK || !queue)
		return usmb_raise(PyExc_BufferError, "no copy on DLPack device (14, %d): %s", id,
		                  usmb_sycl_strerror(code));
	w.queue.form = USMB_FORM_QUEUE;
	w.queue.ref = queue;
	w.kind = place ? place->kind : USMB_USM_DEVICE;
	return usmb_copy_to(src, &w);
}

PyObject *usmb_array_rooted(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, usmb_place *place, int32_t ndim,
                            const int64_t *shape, const int64_t *strides)
{
	int64_t lo, hi;
	/* The other cell knows nothing of work on this one. */
	if (usmb_array_wait(src) < 0) return NULL;
	/* Its owner is a view that nobody else has: src may be released. */
	PyObject *owner = usmb_array_view(src, src->first, src->ndim, usmb_shape(src), usmb_strides(src));
	usmb_array *a = owner ? usmb_array_raw(ndim) : NULL;
	if (!a) {
		Py_XDECREF(owner);
		return NULL;
	}
	usmb_array_range(src, &lo, &hi);
	lo = usmb_dl_whole_elements(lo, usmb_item_bits(dtype, extra));
	if (place) usmb_place_retain(place);
	usmb_cell *cell = usmb_cell_of_object(owner, src->first + lo, (uint64_t)(hi - lo), place);
	if (!cell) {
		if (place) usmb_place_release(place);
		Py_DECREF(owner);
		Py_DECREF(a);
		return NULL;
	}
	if (ndim > 0) {
		memcpy(usmb_shape(a), shape, (size_t)ndim * sizeof *shape);
		memcpy(usmb_strides(a), strides, (size_t)ndim * sizeof *strides);
	}
	usmb_array_settle(a, cell, src->first, dtype, extra | (src->flags & USMB_ARR_READONLY));
	if (src->queue) a->queue = Py_NewRef(src->queue);
	return (PyObject *)a;
}

PyObject *usmb_as_host(usmb_array *src)
{
	if (!src->cell->place) return Py_NewRef(src);
	return usmb_array_rooted(src, src->dtype, src->flags, NULL, src->ndim, usmb_shape(src), usmb_strides(src));
}

PyObject *usmb_array_copy(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	return usmb_copy_to((usmb_array *)self, NULL);
}

/* The copy is complete on return: whatever is ordered behind it, is. */
static int check_stream(PyObject *stream)
{
	usmb_syclref ref;
	if (!usmb_given(stream)) return 0;
	if (usmb_syclref_device(stream, &ref, "to_device: stream") < 0) return -1;
	usmb_syclref_release(&ref, 0);
	return 0;
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
	if (check_stream(v[1]) < 0) return NULL;
	if (usmb_parse_device(v[0], &w) < 0) return NULL;
	/* The kind of memory goes along, as long as both sides have kinds. */
	PyObject *r;
	if (usmb_is_at(a, &w)) {
		r = usmb_stay(a, &w);
	} else {
		if (a->cell->place && !w.host) w.kind = usmb_array_place(a)->kind;
		r = usmb_copy_to(a, &w);
	}
	usmb_where_clear(&w);
	return r;
}
