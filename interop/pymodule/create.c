/* create.c: new memory and its place, copies and conversions, and writing into arrays. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "order.h"
#include "usmb_pycall.h"
#include "array.h"
#include "create.h"
#include "dpnp.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

/* ==== New memory ============================================================================== */

/* ---- arguments ------------------------------------------------------------------------ */

int usmb_parse_device(PyObject *o, usmb_where *w)
{
	usmb_syclref named;
	if (usmb_syclref_device(o, &named, "device") < 0) return -1;
	if (named.form == USMB_FORM_QUEUE) {
		w->queue = named;
		return 0;
	}
	w->device = named.keep;
	w->host = PyUnicode_CompareWithASCIIString(w->device, "host") == 0;
	return 0;
}

const usmb_where usmb_on_host = {.host = 1};
const char *const usmb_kind_names[4] = {"", "device", "shared", "host"};

static int parse_kind(PyObject *o, int *kind)
{
	int r = usmb_parse_choice(o, usmb_kind_names + 1, 3, "usm_type must be \"device\", \"shared\" or \"host\"",
	                          kind);
	++*kind; /* USMB_USM_DEVICE is 1 */
	return r;
}

static int parse_audience(PyObject *o, int *audience)
{
	static const char *const names[] = {"readonly"};
	*audience = o == Py_True ? USMB_AUDIENCE_WRITE : USMB_AUDIENCE_NONE;
	if (!usmb_given(o) || o == Py_False || o == Py_True) return 0;
	int r = usmb_parse_choice(o, names, 1, "interprocess must be True, False or \"readonly\"", audience);
	*audience = USMB_AUDIENCE_READ;
	return r;
}

int usmb_parse_where(PyObject *kind, PyObject *queue, PyObject *dev, usmb_where *w)
{
	memset(w, 0, sizeof *w);
	if (usmb_given(queue) && usmb_given(dev)) {
		usmb_raise(PyExc_ValueError, "give sycl_queue or device, not both: a queue has its device");
		return -1;
	}
	if (usmb_given(kind) && parse_kind(kind, &w->kind) < 0) return -1;
	if (usmb_given(dev) && usmb_parse_device(dev, w) < 0) return -1;
	if (w->kind && w->host) {
		usmb_raise(PyExc_ValueError,
		           "usm_type is memory of a SYCL device, and device=\"host\" is the host backend, which has "
		           "none; leave one of them out");
		return -1;
	}
	return usmb_given(queue) ? usmb_syclref_get(queue, &w->queue, "sycl_queue") : 0;
}

void usmb_where_clear(usmb_where *w)
{
	usmb_syclref_release(&w->queue, 0);
	Py_CLEAR(w->device);
}

/* Whether memory at place is in the context and on the device of a queue. */
static int is_of_queue(usmb_place *place, void *queue)
{
	void *context = usmb_sycl_queue_context(queue), *device = usmb_sycl_queue_device(queue);
	int same = context && device && usmb_sycl_context_equal(context, place->context) &&
	           usmb_sycl_device_equal(device, place->device);
	usmb_sycl_context_delete(context);
	usmb_sycl_device_delete(device);
	return same;
}

/* Whether new memory comes from an arena: that of the innermost call with a context on this thread.
   Asks Go once for each call. */
static int in_arena(void)
{
	enum { NO = 1, YES = 2 };
	usmb_call *call = usmb_py_call_current();
	if (!call || usmb_py_in_child()) return 0;
	if (call->memory == 0) call->memory = usmb_go_call_arena() ? YES : NO;
	return call->memory == YES;
}

/* Makes the request for w, whose text it borrows; bytes are left 0. */
static int request(const usmb_where *w, usmb_alloc_req *req)
{
	Py_ssize_t n = 0;
	memset(req, 0, sizeof *req);
	req->form = w->queue.form;
	req->kind = w->kind;
	req->host = w->host;
	req->audience = w->audience;
	req->arena = in_arena();
	req->ref = w->queue.ref;
	if (w->queue.form == USMB_FORM_FILTER) {
		req->filter = (char *)w->queue.filter;
		n = w->queue.nfilter;
	} else if (w->device) {
		req->filter = (char *)PyUnicode_AsUTF8AndSize(w->device, &n);
		if (!req->filter) return -1;
	}
	req->nfilter = (uint64_t)n;
	return 0;
}

int usmb_is_at(usmb_array *a, const usmb_where *w)
{
	usmb_place *place = usmb_array_place(a);
	usmb_alloc_req req;
	usmb_goerr err;
	if (w->kind && place && place->kind != w->kind) return 0;
	if (w->host) return place == NULL;
	if (!place) return 0;
	if (usmb_py_in_child() && w->queue.form != USMB_FORM_NONE) return 0; /* comparing queues calls SYCL */
	if (w->queue.form == USMB_FORM_QUEUE) return is_of_queue(place, w->queue.ref);
	if (!w->device) return 1;
	if (!place->is_subdevice && place->default_context &&
	    PyUnicode_CompareWithASCIIString(w->device, place->filter) == 0)
		return 1;
	/* "cpu" and "opencl:cpu:0" can be the same device: ask Go. */
	if (usmb_py_in_child() || request(w, &req) < 0) {
		PyErr_Clear();
		return 0;
	}
	req.kind = place->kind;
	usmb_array_hold(a);
	PyThreadState *saved = usmb_py_release_gil();
	int r = usmb_go_is_at(&req, a->cell, &err);
	usmb_py_acquire_gil(saved);
	usmb_array_unhold(a);
	return r == 1; /* an invalid request makes the copy fail, with the error */
}

/* ---- defaults ----------------------------------------------------------------------------- */

/* The bound method get of the context variable that holds the defaults, a tuple; NULL until the
   first set_default, so that requests before cost nothing more. */
static PyObject *defaults_get;

PyObject *usmb_py_defaults_from(PyObject *m, PyObject *get)
{
	PyObject *old = defaults_get;
	(void)m;
	defaults_get = Py_NewRef(get);
	Py_XDECREF(old);
	Py_RETURN_NONE;
}

void usmb_defaults_clear(void)
{
	Py_CLEAR(defaults_get);
}

int usmb_defaults_read(usmb_defaults *d)
{
	memset(d, 0, sizeof *d);
	if (__builtin_expect(!defaults_get, 1)) return 0;
	PyObject *t = PyObject_Vectorcall(defaults_get, NULL, 0, NULL);
	if (t && PyTuple_Check(t) && PyTuple_Size(t) == 3) {
		d->usm_type = Py_NewRef(PyTuple_GetItem(t, 0));
		d->device = Py_NewRef(PyTuple_GetItem(t, 1));
		d->dtype = Py_NewRef(PyTuple_GetItem(t, 2));
	} else if (t) {
		usmb_raise(PyExc_TypeError, "the defaults are not a tuple of usm_type, device and dtype");
	}
	Py_XDECREF(t);
	return d->dtype ? 0 : -1;
}

void usmb_defaults_drop(usmb_defaults *d)
{
	Py_CLEAR(d->usm_type);
	Py_CLEAR(d->device);
	Py_CLEAR(d->dtype);
}

/* Whether w is the host backend, which sycl_queue="host" names too. */
static int is_host(const usmb_where *w)
{
	return w->host ||
	       (w->queue.form == USMB_FORM_FILTER && w->queue.nfilter == 4 && memcmp(w->queue.filter, "host", 4) == 0);
}

int usmb_default_place(const usmb_defaults *d, usmb_where *w)
{
	/* A kind that the caller gave is USM, which the host backend has not. */
	if (usmb_given(d->device) && !usmb_has_device(w)) {
		int kind = w->kind;
		if (usmb_parse_device(d->device, w) < 0) return -1;
		if (w->host && kind) {
			Py_CLEAR(w->device);
			w->host = 0;
		}
	}
	return usmb_given(d->usm_type) && !w->kind && !is_host(w) ? parse_kind(d->usm_type, &w->kind) : 0;
}

/* Whether the device of a place has double precision. The answer for the default device is stored
   once SYCL is loaded. */
static int has_double(const usmb_where *w)
{
	static int known = -1;
	usmb_alloc_req req;
	int plain = w->queue.form == USMB_FORM_NONE && !w->device;
	if (w->host || usmb_py_in_child()) return 1;
	if (plain && known >= 0) return known;
	if (request(w, &req) < 0) return -1;
	req.kind = 0;
	USMB_GO(usmb_go_has_double(&req, &err));
	if (r >= 0 && plain && usmb_sycl_loaded()) known = r;
	return r;
}

int usmb_default_real(const usmb_defaults *d, const usmb_where *w, usmb_dl_dtype *t)
{
	if (usmb_given(d->dtype)) return usmb_parse_dtype(d->dtype, NULL, t);
	int wide = has_double(w);
	*t = (usmb_dl_dtype){USMB_DL_FLOAT, wide ? 64 : 32, 1};
	return wide < 0 ? -1 : 0;
}

/* ---- memory ------------------------------------------------------------------------------- */

static int go_alloc(usmb_alloc_req *req, usmb_cell **cell, usmb_goerr *err)
{
	usmb_owner_settle(USMB_SETTLE_ENDED);
	PyThreadState *saved = usmb_py_release_gil();
	int r = usmb_go_alloc(req, cell, err);
	usmb_py_acquire_gil(saved);
	return r;
}

/* ---- memory of a forked child ---- */

/* Whether memory without a place is USM: -1 until Go has made some. */
static int default_is_usm = -1;

static void note_default(const usmb_where *w, const usmb_cell *cell)
{
	if (w->queue.form == USMB_FORM_NONE && !w->device && !w->host && !w->kind) default_is_usm = cell->place != NULL;
}

/* Whether the default place is known to be plain memory. A forked child cannot look for SYCL. */
static int default_is_plain(void)
{
	const char *sycl = getenv("USMBRIDGE_SYCL");
	if (default_is_usm < 0) return sycl && strcmp(sycl, "off") == 0;
	return !default_is_usm && !usmb_sycl_loaded();
}

/* Whether w is plain memory, which a forked child can allocate; 0 with RuntimeError for other memory. */
static int is_plain_in_child(const usmb_where *w)
{
	int anywhere = w->queue.form == USMB_FORM_NONE && !w->device && !w->host && !w->kind;
	if (w->audience || !(is_host(w) || anywhere)) {
		(void)usmb_go_allowed();
		return 0;
	}
	if (!anywhere || default_is_plain()) return 1;
	usmb_raise(PyExc_RuntimeError,
	           "usmbridge: this process is a fork of one that used usmbridge, and the default place of new arrays "
	           "is USM or not known yet; USM cannot be allocated here: pass device=\"host\", or call "
	           "set_default(device=\"host\")");
	return 0;
}

usmb_cell *usmb_new_block(int64_t bytes)
{
	enum { LINE = 64 };
	void *block = NULL;
	if (posix_memalign(&block, LINE, bytes > 0 ? (size_t)bytes : 1) != 0) {
		usmb_raise(PyExc_MemoryError, "no memory for %lld bytes on the host", (long long)bytes);
		return NULL;
	}
	usmb_cell *cell = usmb_cell_of_block(block, (uint64_t)bytes);
	if (!cell) free(block);
	return cell;
}

/* Go's allocator does not run in a forked child. */
static usmb_cell *allocate_in_child(const usmb_where *w, int64_t bytes)
{
	return is_plain_in_child(w) ? usmb_new_block(bytes) : NULL;
}

static PyObject *make_room; /* see _set_make_room, or NULL */

PyObject *usmb_py_set_make_room(PyObject *m, PyObject *function)
{
	(void)m;
	PyObject *old = make_room;
	make_room = function == Py_None ? NULL : Py_NewRef(function);
	Py_XDECREF(old);
	Py_RETURN_NONE;
}

/* Whether to try an allocation again that failed for lack of memory. -1: the function raised an error. */
static int room_made(int64_t bytes, int attempt)
{
	if (!make_room) return 0;
	PyObject *function = Py_NewRef(make_room);
	PyObject *result = PyObject_CallFunction(function, "Li", (long long)bytes, attempt);
	Py_DECREF(function);
	int again = result ? PyObject_IsTrue(result) : -1;
	Py_XDECREF(result);
	return again;
}

/* *wish: the argument for usmb_kept_drop, -1 if the cell must not be kept. */
static usmb_cell *allocate(const usmb_where *w, int64_t bytes, int *wish)
{
	usmb_alloc_req req;
	usmb_goerr err;
	usmb_cell *cell = NULL;
	*wish = -1;
	if (usmb_py_in_child()) return allocate_in_child(w, bytes);
	int plain = w->queue.form == USMB_FORM_NONE && (w->host || !w->device) && !w->audience && !in_arena();
	*wish = plain ? (int)usmb_wish_of(w->kind, w->host) : -1;
	if (*wish >= 0 && (cell = usmb_kept_take((uint64_t)bytes, (usmb_wish)*wish))) return cell;
	if (request(w, &req) < 0) return NULL;
	req.bytes = bytes;
	for (int attempt = 0, finished = 0; go_alloc(&req, &cell, &err) < 0;) {
		int memory = err.kind == USMB_ERR_MEMORY;
		/* dpnp keeps arrays alive until it has computed with them. */
		int again = memory && !w->host && !finished++ ? usmb_dpnp_finish() : 0;
		if (memory && again == 0) again = room_made(bytes, attempt++);
		if (again == 0) usmb_raise_go(&err);
		if (again != 1) return NULL;
	}
	note_default(w, cell);
	if (!req.shared)
		*wish = -1;
	else if (*wish >= 0)
		usmb_kept_note(cell, (usmb_wish)*wish);
	return cell;
}

static int clear_memory(usmb_array *a, int64_t bytes)
{
	if (a->flags & USMB_ARR_READ && bytes < 1 << 16) {
		memset(a->first, 0, (size_t)bytes);
		return 0;
	}
	void *event = NULL;
	PyThreadState *saved = usmb_py_release_gil();
	int code = USMB_SYCL_OK;
	if (a->flags & USMB_ARR_READ)
		memset(a->first, 0, (size_t)bytes);
	else
		code = usmb_sycl_memset(usmb_array_place(a)->queue, a->first, 0, (size_t)bytes, NULL, 0, &event);
	if (code == USMB_SYCL_OK && event) code = usmb_sycl_wait_event(event);
	usmb_sycl_event_delete(event);
	usmb_py_acquire_gil(saved);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(PyExc_RuntimeError, "zeroing the array's memory: %s", usmb_sycl_strerror(code));
	return -1;
}

int64_t usmb_dense_bytes(int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype)
{
	int64_t n = 1, bits;
	int empty = 0, over = 0;
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] < 0) {
			usmb_raise(PyExc_ValueError, "shape: invalid extent %lld; extents are 0 or more",
			           (long long)shape[i]);
			return -1;
		}
		if (shape[i] == 0)
			empty = 1;
		else
			over |= __builtin_mul_overflow(n, shape[i], &n);
	}
	over |= __builtin_mul_overflow(n, (int64_t)dtype.bits, &bits);
	if (!over) return empty ? 0 : (bits + 7) / 8;
	usmb_raise(PyExc_ValueError, "shape: the array would have more bytes than can be addressed");
	return -1;
}

PyObject *usmb_array_dense(usmb_cell *cell, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                           uint32_t extra)
{
	usmb_array *a = usmb_array_raw(ndim);
	if (!a) {
		usmb_cell_drop_gil(cell);
		return NULL;
	}
	if (ndim > 0) memcpy(usmb_shape(a), shape, (size_t)ndim * sizeof *shape);
	usmb_fill_strides(ndim, shape, usmb_strides(a), fortran);
	usmb_array_settle(a, cell, cell->data, dtype, extra);
	return (PyObject *)a;
}

PyObject *usmb_new_array(const usmb_where *w, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                         usmb_content content)
{
	int wish;
	int64_t bytes = usmb_dense_bytes(ndim, shape, dtype);
	usmb_cell *cell = bytes < 0 ? NULL : allocate(w, bytes, &wish);
	uint32_t memory = w->audience ? USMB_ARR_INTERPROCESS : 0;
	if (w->audience == USMB_AUDIENCE_READ) memory |= USMB_ARR_PEERS_READ;
	PyObject *a = cell ? usmb_array_dense(cell, ndim, shape, dtype, fortran, memory) : NULL;
	if (a && wish >= 0) ((usmb_array *)a)->flags |= USMB_ARR_KEEP | (uint32_t)wish << USMB_ARR_WISH;
	if (a && usmb_queue_of(&w->queue, cell->place, &((usmb_array *)a)->queue) < 0) Py_CLEAR(a);
	if (!a || bytes == 0) return a;
	/* The memory can be reused while queues still run its last users' work. Our own pending work is ordered
	   before new work, but work of consumers to which kept memory was shown is not. */
	int shown = (atomic_load_explicit(&cell->flags, memory_order_relaxed) & USMB_CELL_ASYNC) != 0;
	if (content == USMB_ANY && !shown) return a;
	if (usmb_cell_wait(cell) == 0 && (content != USMB_ZEROS || clear_memory((usmb_array *)a, bytes) == 0)) return a;
	Py_DECREF(a);
	return NULL;
}

/* The arguments of empty and zeros. */
typedef struct {
	int64_t shape[USMB_DL_MAX_NDIM];
	int ndim;
	int fortran;
	usmb_dl_dtype t; /* the given element type, else the default real type at w */
	usmb_where w;
} new_args;

static int parse_new(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kw, new_args *out)
{
	static const char *const orders[] = {"C", "F"};
	PyObject *const names[7] = {usmb_name.shape,  usmb_name.dtype, usmb_name.usm_type,    usmb_name.sycl_queue,
	                            usmb_name.device, usmb_name.order, usmb_name.interprocess};
	PyObject *v[7] = {NULL};
	if (usmb_args(func, args, n, kw, names, 7, 1, 2, v) < 0) return -1;
	out->ndim = usmb_parse_dims(v[0], out->shape, "shape");
	if (out->ndim < 0) return -1;
	out->fortran = 0;
	if (v[5] && usmb_parse_choice(v[5], orders, 2, "order must be \"C\" or \"F\"", &out->fortran) < 0) return -1;
	usmb_defaults d;
	int typed = usmb_given(v[1]);
	if (typed && usmb_parse_dtype(v[1], NULL, &out->t) < 0) return -1;
	int placed = usmb_parse_where(v[2], v[3], v[4], &out->w) == 0 && parse_audience(v[6], &out->w.audience) == 0;
	if (__builtin_expect(placed && typed && !defaults_get, 1)) return 0;
	if (!placed || usmb_defaults_read(&d) < 0) {
		usmb_where_clear(&out->w);
		return -1;
	}
	int bad = usmb_default_place(&d, &out->w) < 0 || (!typed && usmb_default_real(&d, &out->w, &out->t) < 0);
	usmb_defaults_drop(&d);
	if (bad) usmb_where_clear(&out->w);
	return bad ? -1 : 0;
}

static PyObject *create(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kw, usmb_content content)
{
	new_args in;
	usmb_owner_drain();
	if (parse_new(func, args, n, kw, &in) < 0) return NULL;
	PyObject *r = usmb_new_array(&in.w, in.ndim, in.shape, in.t, in.fortran, content);
	usmb_syclref_release(&in.w.queue, r != NULL);
	usmb_where_clear(&in.w);
	return r;
}

PyObject *usmb_py_empty(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	(void)m;
	return create("empty", args, n, kw, USMB_ANY);
}

PyObject *usmb_py_zeros(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	(void)m;
	return create("zeros", args, n, kw, USMB_ZEROS);
}

/* ==== Copies and conversions ================================================================== */

void usmb_copy_beside(usmb_array *src, usmb_where *w)
{
	usmb_place *place = usmb_array_place(src);
	memset(w, 0, sizeof *w);
	w->host = place == NULL;
	if (!place) return;
	w->kind = place->kind;
	w->queue.form = USMB_FORM_QUEUE;
	w->queue.ref = place->queue; /* borrowed from src */
}

enum { SMALL = 1 << 12 };

/* Whether a copy is small, contiguous, readable by the host and keeps the element type. */
static int is_small(usmb_array *src, usmb_dl_dtype dtype)
{
	return src->flags & USMB_ARR_READ && src->flags & USMB_ARR_C && dtype.code == src->dtype.code &&
	       dtype.bits == src->dtype.bits && !(src->flags & USMB_ARR_PADDED) && usmb_nbytes(src) <= SMALL;
}

/* Copies to memory that the host can write: enters Go for the allocation only. */
static PyObject *copy_small(usmb_array *src, const usmb_where *w)
{
	if (usmb_array_wait(src) < 0) return NULL;
	usmb_array *a = (usmb_array *)usmb_new_array(w, src->ndim, usmb_shape(src), src->dtype, 0, USMB_WRITTEN);
	size_t n = (size_t)usmb_nbytes(src);
	if (a && n) memcpy(a->first, src->first, n); /* first may be NULL if there are no elements */
	return (PyObject *)a;
}

static usmb_elements elements_of(usmb_array *a)
{
	return (usmb_elements){a->first, 0, usmb_strides(a), a->dtype, a->itembits};
}

static int refuse_complex(usmb_dl_dtype to, usmb_dl_dtype from)
{
	const char *name = usmb_dl_dtype_name(from), *real = usmb_dl_dtype_name(to);
	usmb_raise(PyExc_TypeError, "%s to %s would drop the imaginary parts; take the real parts first: x.real",
	           name ? name : "complex", real ? real : "real");
	return -1;
}

static void convert(const usmb_elements *to, const usmb_elements *from, int32_t ndim, const int64_t *shape)
{
	PyThreadState *saved = usmb_py_release_gil();
	usmb_convert(to, from, ndim, shape);
	usmb_py_acquire_gil(saved);
}

/* copy_held in a forked child: plain memory from memory that the host can read. */
static PyObject *copy_in_child(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w, int padded)
{
	usmb_dl_dtype stored = dtype;
	if (padded && dtype.bits < 8) stored.bits = 8;
	int64_t bytes = usmb_dense_bytes(src->ndim, usmb_shape(src), stored);
	if (bytes < 0 || !is_plain_in_child(w)) return NULL;
	if (!(src->flags & USMB_ARR_READ)) {
		(void)usmb_go_allowed();
		return NULL;
	}
	if (!usmb_convertible(dtype, src->dtype)) {
		(void)refuse_complex(dtype, src->dtype);
		return NULL;
	}
	if (usmb_array_wait(src) < 0) return NULL;
	usmb_cell *cell = allocate_in_child(w, bytes);
	if (!cell) return NULL;
	/* Packed elements are written one after the other: set the bits behind the last. */
	if (stored.bits < 8 && bytes > 0) memset(cell->data, 0, (size_t)bytes);
	usmb_array *a = (usmb_array *)usmb_array_dense(cell, src->ndim, usmb_shape(src), dtype, 0,
	                                               padded ? USMB_ARR_PADDED : 0);
	if (!a) return NULL;
	usmb_elements to = elements_of(a), from = elements_of(src);
	convert(&to, &from, src->ndim, usmb_shape(src));
	return (PyObject *)a;
}

static PyObject *copy_held(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w, int padded)
{
	usmb_where here;
	usmb_alloc_req req;
	usmb_cell *cell = NULL;
	if (!w) {
		usmb_copy_beside(src, &here);
		w = &here;
	}
	if (usmb_py_in_child()) return copy_in_child(src, dtype, w, padded);
	int host = w->host || w->kind == USMB_USM_SHARED || w->kind == USMB_USM_HOST;
	if (host && !padded && is_small(src, dtype)) {
		/* Memory of the default device is requested by kind alone, without entering Go. */
		usmb_place *place = usmb_array_place(src);
		if (w == &here && place && usmb_kept_is_at(usmb_wish_of(place->kind, 0), place)) {
			memset(&here, 0, sizeof here);
			here.kind = place->kind;
		}
		PyObject *a = copy_small(src, w);
		if (a && w == &here && src->queue && !((usmb_array *)a)->queue && usmb_array_place((usmb_array *)a))
			((usmb_array *)a)->queue = Py_NewRef(src->queue);
		return a;
	}
	if (request(w, &req) < 0 || usmb_array_wait(src) < 0) return NULL;
	req.padded = padded;
	USMB_GO(usmb_go_copy(&req, src, dtype, &cell, &err));
	if (r < 0) return NULL;
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
	usmb_array_unhold(src);
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
	if (!dev && (!place || place->dl_error == 0)) return usmb_copy_to(src, NULL);
	if (dev && dev->type == USMB_DL_CPU) return usmb_copy_to(src, &usmb_on_host);
	/* The queue of a root device is in its platform's default context. */
	int32_t id = dev ? dev->id : place->root;
	void *queue = NULL;
	int code = usmb_sycl_current_queue(id, &queue);
	if (code == USMB_SYCL_ENOLIB && usmb_open_sycl() == 0) code = usmb_sycl_current_queue(id, &queue);
	if (PyErr_Occurred()) return NULL;
	if (code != USMB_SYCL_OK || !queue)
		return usmb_raise(PyExc_BufferError, "no copy on DLPack device (14, %d): %s", id,
		                  usmb_sycl_strerror(code));
	usmb_where w = {.queue = {.form = USMB_FORM_QUEUE, .ref = queue},
	                .kind = place ? place->kind : USMB_USM_DEVICE};
	return usmb_copy_to(src, &w);
}

PyObject *usmb_array_rooted(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, usmb_place *place, int32_t ndim,
                            const int64_t *shape, const int64_t *strides)
{
	int64_t lo, hi;
	/* The new cell does not have the pending work of this one. */
	if (usmb_array_wait(src) < 0) return NULL;
	/* The owner is a new view, because src can be released. */
	PyObject *owner = usmb_array_alone(src);
	usmb_array *a = owner ? usmb_array_laid_out(ndim, shape, strides) : NULL;
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
	usmb_cell_alias(cell, src->cell);
	usmb_array_settle(a, cell, src->first, dtype, extra | (src->flags & USMB_ARR_READONLY));
	if (src->queue) a->queue = Py_NewRef(src->queue);
	return (PyObject *)a;
}

PyObject *usmb_array_recounted(usmb_array *a)
{
	if (usmb_array_counts(a, a->itembits)) return (PyObject *)a;
	PyObject *r =
	        usmb_array_rooted(a, a->dtype, a->flags, usmb_array_place(a), a->ndim, usmb_shape(a), usmb_strides(a));
	Py_DECREF(a);
	return r;
}

/* ---- the same elements at another place --------------------------------------------- */

/* Returns an array that is at w already with the queue in w: itself, or a view. w may be NULL. */
static PyObject *on_queue(usmb_array *a, const usmb_where *w)
{
	usmb_place *place = usmb_array_place(a);
	PyObject *queue = NULL, *kept = NULL, *view = NULL;
	if (w && usmb_queue_of(&w->queue, place, &queue) < 0) return NULL;
	if (queue && !a->queue && !(kept = usmb_public_queue(place))) {
		Py_DECREF(queue);
		return NULL;
	}
	if (!queue || queue == a->queue || queue == kept)
		view = Py_NewRef(a);
	else if (usmb_array_wait(a) == 0) /* the queue that the array had is forgotten, so wait for its work here */
		view = usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
	if (view && view != (PyObject *)a) usmb_array_name_queue((usmb_array *)view, Py_NewRef(queue));
	Py_XDECREF(queue);
	Py_XDECREF(kept);
	return view;
}

/* Returns the place for a copy of an array that is at w already: NULL for the place of the array, or room, which
   receives the same kind of memory on the queue in w. */
static const usmb_where *place_of_copy(usmb_array *a, const usmb_where *w, usmb_where *room)
{
	if (!w || w->queue.form != USMB_FORM_QUEUE) return NULL;
	*room = *w;
	if (!room->kind && a->cell->place) room->kind = usmb_array_place(a)->kind;
	return room;
}

/* The same memory as plain host memory; the host must be able to read it. */
static PyObject *as_host(usmb_array *src)
{
	if (!src->cell->place) return Py_NewRef(src);
	return usmb_array_rooted(src, src->dtype, src->flags, NULL, src->ndim, usmb_shape(src), usmb_strides(src));
}

int usmb_no_copy(PyObject *error, const char *why)
{
	usmb_raise(error, "copy=False, but %s needs a copy; leave copy out to allow it", why);
	return -1;
}

static PyObject *adapt_held(usmb_array *src, const usmb_dl_dtype *dtype, const usmb_where *w, int copy, PyObject *error)
{
	int retype = dtype && (dtype->code != src->dtype.code || dtype->bits != src->dtype.bits);
	int there = !w || usmb_is_at(src, w);
	usmb_where room;
	if (!retype && copy != 1) {
		if (there) return on_queue(src, w);
		if (w->host && src->flags & USMB_ARR_READ) return as_host(src);
	}
	if (copy == 0) {
		usmb_no_copy(error, retype ? "a change of the element type" : "memory at another place");
		return NULL;
	}
	return usmb_copy_as(src, retype ? *dtype : src->dtype, there ? place_of_copy(src, w, &room) : w);
}

PyObject *usmb_adapt(usmb_array *src, const usmb_dl_dtype *dtype, const usmb_where *w, int copy, PyObject *error)
{
	if (usmb_array_begin(src) < 0) return NULL;
	PyObject *a = adapt_held(src, dtype, w, copy, error);
	usmb_array_unhold(src);
	return a;
}

PyObject *usmb_array_copy(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_owner_drain();
	return usmb_copy_to((usmb_array *)self, NULL);
}

/* Checks the stream argument. The copy is complete on return, so any order holds. */
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
	/* Keep the kind of memory if both places have kinds. */
	PyObject *r;
	if (usmb_is_at(a, &w)) {
		r = on_queue(a, &w);
	} else {
		if (a->cell->place && !w.host) w.kind = usmb_array_place(a)->kind;
		r = usmb_copy_to(a, &w);
	}
	usmb_where_clear(&w);
	return r;
}

/* ==== Assignment ============================================================================== */

void usmb_whole(usmb_array *a, usmb_region *part)
{
	part->ndim = part->axis = a->ndim;
	part->offset = 0;
	if (a->ndim > 0) {
		memcpy(part->shape, usmb_shape(a), (size_t)a->ndim * sizeof *part->shape);
		memcpy(part->strides, usmb_strides(a), (size_t)a->ndim * sizeof *part->strides);
	}
}

/* A view of src without leading axes of length 1 beyond ndim, which assignment ignores. */
static usmb_array *trimmed(usmb_array *src, int32_t ndim)
{
	int32_t skip = 0;
	while (src->ndim - skip > ndim && usmb_shape(src)[skip] == 1) skip++;
	if (skip == 0) return (usmb_array *)Py_NewRef(src);
	return (usmb_array *)usmb_array_view(src, src->first, src->ndim - skip, usmb_shape(src) + skip,
	                                     usmb_strides(src) + skip);
}

/* Fills strides with those of src broadcast to a part. */
static int broadcast(usmb_array *src, const usmb_region *part, int64_t *strides)
{
	int32_t added = part->ndim - src->ndim;
	int fits = added >= 0;
	for (int32_t i = 0; i < part->ndim && fits; i++) {
		int64_t n = i < added ? 1 : usmb_shape(src)[i - added];
		fits = n == 1 || n == part->shape[i];
		strides[i] = n == 1 ? 0 : usmb_strides(src)[i - added];
	}
	if (fits) return 0;
	PyObject *have = usmb_tuple_i64(usmb_shape(src), src->ndim), *want = usmb_tuple_i64(part->shape, part->ndim);
	if (have && want) PyErr_Format(PyExc_ValueError, "an array of shape %S does not broadcast to %S", have, want);
	Py_XDECREF(have);
	Py_XDECREF(want);
	return -1;
}

/* Whether the elements of two arrays can share bytes. */
static int overlap(usmb_array *a, usmb_array *b)
{
	int64_t alo, ahi, blo, bhi;
	usmb_array_range(a, &alo, &ahi);
	usmb_array_range(b, &blo, &bhi);
	return a->first + alo < b->first + bhi && b->first + blo < a->first + ahi;
}

/* Assignment in a forked child, to plain memory. */
static int assign_in_child(usmb_array *dst, const usmb_region *part, usmb_array *src)
{
	int64_t strides[USMB_DL_MAX_NDIM];
	if (dst->cell->place) return usmb_go_allowed();
	if (!usmb_convertible(dst->dtype, src->dtype)) return refuse_complex(dst->dtype, src->dtype);
	if (broadcast(src, part, strides) < 0) return -1;
	usmb_array *from = (usmb_array *)Py_NewRef(src);
	if (!(src->flags & USMB_ARR_READ) || overlap(dst, src)) {
		Py_DECREF(from);
		from = (usmb_array *)usmb_copy_to(src, &usmb_on_host);
		if (!from || broadcast(from, part, strides) < 0) {
			Py_XDECREF(from);
			return -1;
		}
	}
	int bad = usmb_array_wait(from) < 0 || usmb_array_wait(dst) < 0;
	if (!bad) {
		usmb_elements to = {dst->first, part->offset, part->strides, dst->dtype, dst->itembits};
		usmb_elements with = {from->first, 0, strides, from->dtype, from->itembits};
		convert(&to, &with, part->ndim, part->shape);
	}
	Py_DECREF(from);
	return bad ? -1 : 0;
}

int usmb_assign_array(usmb_array *dst, const usmb_region *part, usmb_array *src)
{
	usmb_region where = *part;
	int done = 0;
	if (usmb_array_begin(src) < 0) return -1;
	usmb_array *from = trimmed(src, part->ndim);
	usmb_array *to = (usmb_array *)usmb_array_view(dst, dst->first, dst->ndim, usmb_shape(dst), usmb_strides(dst));
	if (from && to && usmb_py_in_child()) {
		done = assign_in_child(to, part, from) == 0;
	} else if (from && to && usmb_array_wait(from) == 0 && usmb_array_wait(to) == 0) {
		USMB_GO(usmb_go_assign(to, &where, from, &err));
		done = r == 0;
	}
	Py_XDECREF(from);
	Py_XDECREF(to);
	usmb_array_unhold(src);
	return done ? 0 : -1;
}
