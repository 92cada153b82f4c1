/* create.c: new memory: where it is wanted, empty, zeros. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_create.h"
#include "usmb_device.h"
#include "usmb_storage.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

/* ---- arguments ------------------------------------------------------------------------ */

/* A name ("float32"), a type string ("<f4", "f4"), or an object with such a name
   (NumPy's types and dtypes, Python's bool, int, float, complex). */
static int dtype_of_text(const char *s, size_t n, usmb_dl_dtype *out)
{
	static const struct {
		const char *alias, *name;
	} aliases[] = {{"float", "float64"}, {"int", "int64"}, {"complex", "complex128"}, {"bool_", "bool"}};
	if (strlen(s) != n) return -1; /* no name has a NUL in it */
	if (usmb_dl_dtype_by_name(s, out) == USMB_DL_OK) return 0;
	for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
		if (!strcmp(s, aliases[i].alias)) return usmb_dl_dtype_by_name(aliases[i].name, out);
	return usmb_dl_dtype_by_typestr(s, n, out) == USMB_DL_OK ? 0 : -1;
}

int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out)
{
	char type[64];
	if (!usmb_given(o)) return usmb_dl_dtype_by_name(dflt, out);
	PyObject *text = PyUnicode_Check(o) ? Py_NewRef(o) : usmb_optional_attr(o, usmb_name.name);
	if (!text && !usmb_py.PyErr_Occurred()) text = usmb_optional_attr(o, usmb_name.__name__);
	if (!text && usmb_py.PyErr_Occurred()) return -1;
	Py_ssize_t n = 0;
	const char *s = text && PyUnicode_Check(text) ? usmb_py.PyUnicode_AsUTF8AndSize(text, &n) : NULL;
	int ok = s && dtype_of_text(s, (size_t)n, out) == 0;
	if (!ok) {
		usmb_py.PyErr_Clear();
		if (s)
			usmb_raise(usmb_py.PyExc_TypeError,
			           "dtype \"%s\" is not known; names are those of the array API (float32, int64, bool, "
			           "bfloat16, ...)",
			           s);
		else
			usmb_raise(usmb_py.PyExc_TypeError,
			           "dtype must be a name such as \"float32\", a type string or a NumPy dtype, not %s",
			           usmb_type_name(o, type, sizeof type));
	}
	Py_XDECREF(text);
	return ok ? 0 : -1;
}

int usmb_parse_device(PyObject *o, usmb_where *w)
{
	char type[64];
	PyObject *filter = usmb_device_filter(o);
	if (!filter && PyUnicode_Check(o)) filter = o;
	if (!filter) {
		usmb_raise(usmb_py.PyExc_TypeError,
		           "device must be a filter string such as \"opencl:cpu:0\" or \"host\", or a Device, not %s",
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	w->device = Py_NewRef(filter);
	w->host = usmb_py.PyUnicode_CompareWithASCIIString(filter, "host") == 0;
	return 0;
}

static int parse_kind(PyObject *o, int *kind)
{
	static const char *const names[] = {"", "device", "shared", "host"};
	char type[64];
	if (!PyUnicode_Check(o)) {
		usmb_raise(usmb_py.PyExc_TypeError, "usm_type must be \"device\", \"shared\" or \"host\", not %s",
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	for (int i = 1; i < 4; i++)
		if (usmb_py.PyUnicode_CompareWithASCIIString(o, names[i]) == 0) {
			*kind = i;
			return 0;
		}
	const char *s = usmb_py.PyUnicode_AsUTF8AndSize(o, NULL);
	if (s)
		usmb_raise(usmb_py.PyExc_ValueError, "usm_type \"%s\": there are \"device\", \"shared\" and \"host\"",
		           s);
	return -1;
}

int usmb_parse_where(PyObject *kind, PyObject *queue, PyObject *dev, usmb_where *w)
{
	memset(w, 0, sizeof *w);
	if (usmb_given(queue) && usmb_given(dev)) {
		usmb_raise(usmb_py.PyExc_ValueError, "give sycl_queue or device, not both: a queue has its device");
		return -1;
	}
	if (usmb_given(kind) && parse_kind(kind, &w->kind) < 0) return -1;
	if (usmb_given(dev) && usmb_parse_device(dev, w) < 0) return -1;
	return usmb_given(queue) ? usmb_syclref_get(queue, &w->queue, "sycl_queue") : 0;
}

void usmb_where_clear(usmb_where *w)
{
	usmb_syclref_release(&w->queue, 0);
	Py_CLEAR(w->device);
}

int usmb_is_at(usmb_array *a, const usmb_where *w)
{
	usmb_place *place = usmb_array_place(a);
	usmb_alloc_req req;
	usmb_goerr err;
	if (w->kind && place && place->kind != w->kind) return 0;
	if (w->host) return place == NULL;
	if (!place) return 0;
	if (!w->device) return 1;
	if (!place->is_subdevice && place->default_context &&
	    usmb_py.PyUnicode_CompareWithASCIIString(w->device, place->filter) == 0)
		return 1;
	/* "cpu" and "opencl:cpu:0" may name one device: Go knows. */
	if (usmb_py_in_child() || usmb_request(w, &req) < 0) {
		usmb_py.PyErr_Clear();
		return 0;
	}
	req.kind = place->kind;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int r = usmb_go_is_at(&req, a->cell, &err);
	usmb_py.PyEval_RestoreThread(saved);
	return r == 1; /* what is wrong with the request, the copy to there says */
}

/* ---- memory ------------------------------------------------------------------------------- */

int usmb_request(const usmb_where *w, usmb_alloc_req *req)
{
	Py_ssize_t n = 0;
	memset(req, 0, sizeof *req);
	req->form = w->queue.form;
	req->kind = w->kind;
	req->host = w->host;
	req->ref = w->queue.ref;
	if (w->queue.form == USMB_FORM_FILTER) {
		req->filter = (char *)w->queue.filter;
		n = w->queue.nfilter;
	} else if (w->device) {
		req->filter = (char *)usmb_py.PyUnicode_AsUTF8AndSize(w->device, &n);
		if (!req->filter) return -1;
	}
	req->nfilter = (uint64_t)n;
	return 0;
}

static usmb_cell *allocate(const usmb_where *w, int64_t bytes)
{
	usmb_alloc_req req;
	usmb_goerr err;
	usmb_cell *cell = NULL;
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0 || usmb_request(w, &req) < 0) return NULL;
	req.bytes = bytes;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int r = usmb_go_alloc(&req, &cell, &err);
	usmb_py.PyEval_RestoreThread(saved);
	if (r == 0) return cell;
	usmb_raise_go(&err);
	return NULL;
}

static int clear_memory(usmb_array *a, int64_t bytes)
{
	if (a->flags & USMB_ARR_READ && bytes < 1 << 16) {
		memset(a->first, 0, (size_t)bytes);
		return 0;
	}
	void *event = NULL;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int code = USMB_SYCL_OK;
	if (a->flags & USMB_ARR_READ)
		memset(a->first, 0, (size_t)bytes);
	else
		code = usmb_sycl_memset(usmb_array_place(a)->queue, a->first, 0, (size_t)bytes, NULL, 0, &event);
	if (code == USMB_SYCL_OK && event) code = usmb_sycl_wait_event(event);
	usmb_sycl_event_delete(event);
	usmb_py.PyEval_RestoreThread(saved);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(usmb_py.PyExc_RuntimeError, "zeroing the array's memory: %s", usmb_sycl_strerror(code));
	return -1;
}

int64_t usmb_dense_bytes(int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype)
{
	int64_t n = 1, bits;
	int empty = 0, over = 0;
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] < 0) {
			usmb_raise(usmb_py.PyExc_ValueError, "shape: %lld is no extent; extents are 0 or more",
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
	usmb_raise(usmb_py.PyExc_ValueError, "shape: the array would have more bytes than can be addressed");
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
                         int zero)
{
	int64_t bytes = usmb_dense_bytes(ndim, shape, dtype);
	usmb_cell *cell = bytes < 0 ? NULL : allocate(w, bytes);
	PyObject *a = cell ? usmb_array_dense(cell, ndim, shape, dtype, fortran, 0) : NULL;
	if (!a || !zero || bytes == 0 || clear_memory((usmb_array *)a, bytes) == 0) return a;
	Py_DECREF(a);
	return NULL;
}

static PyObject *create(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kw, int zero)
{
	PyObject *const names[6] = {usmb_name.shape,      usmb_name.dtype,  usmb_name.usm_type,
	                            usmb_name.sycl_queue, usmb_name.device, usmb_name.order};
	PyObject *v[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
	int64_t shape[USMB_DL_MAX_NDIM];
	usmb_dl_dtype dtype;
	usmb_where w;
	int fortran = 0;
	usmb_owner_drain();
	if (usmb_args(func, args, n, kw, names, 6, 1, 2, v) < 0) return NULL;
	int ndim = usmb_parse_dims(v[0], shape, "shape");
	if (ndim < 0 || usmb_parse_dtype(v[1], "float32", &dtype) < 0) return NULL;
	if (v[5]) {
		int text = PyUnicode_Check(v[5]);
		fortran = text && usmb_py.PyUnicode_CompareWithASCIIString(v[5], "F") == 0;
		if (!fortran && !(text && usmb_py.PyUnicode_CompareWithASCIIString(v[5], "C") == 0))
			return usmb_raise(usmb_py.PyExc_ValueError, "order must be \"C\" or \"F\"");
	}
	if (usmb_parse_where(v[2], v[3], v[4], &w) < 0) {
		usmb_where_clear(&w);
		return NULL;
	}
	PyObject *r = usmb_new_array(&w, ndim, shape, dtype, fortran, zero);
	usmb_syclref_release(&w.queue, r != NULL);
	usmb_where_clear(&w);
	return r;
}

PyObject *usmb_py_empty(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	(void)m;
	return create("empty", args, n, kw, 0);
}

PyObject *usmb_py_zeros(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
	(void)m;
	return create("zeros", args, n, kw, 1);
}
