/* cuda.c: arrays on SYCL's CUDA backend for libraries of CUDA: the attribute cuda, and
   __cuda_array_interface__ of Array and of other objects. DLPack's part is in dlpack.c. */
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

static PyObject *no_attribute(usmb_array *a, const char *name, int code)
{
	usmb_place *place = usmb_array_place(a);
	return usmb_raise(PyExc_AttributeError, "this Array, on %s, has no %s: %s", place ? place->filter : "host",
	                  name, usmb_sycl_strerror(code));
}

/* ---- the attribute cuda ----------------------------------------------------------- */

/* Other memory has none of these attributes, which needs no driver. */
static int allowed(usmb_array *a)
{
	usmb_place *place = usmb_array_place(a);
	return place && usmb_place_is_cuda(place) ? usmb_go_allowed() : 0;
}

PyObject *usmb_array_cuda(PyObject *self, void *closure)
{
	static PyObject *type;
	usmb_dl_device device;
	(void)closure;
	if (allowed((usmb_array *)self) < 0) return NULL;
	int code = usmb_array_cuda_device((usmb_array *)self, &device);
	if (code != USMB_SYCL_OK) return no_attribute((usmb_array *)self, "cuda", code);
	int64_t pair[2] = {device.type, device.id};
	PyObject *args[] = {self, usmb_tuple_i64(pair, 2)};
	PyObject *view = args[1] ? usmb_call_python(&type, "usmbridge._cuda", "CUDAView", args, 2) : NULL;
	Py_XDECREF(args[1]);
	return view;
}

/* ---- __cuda_array_interface__ of Array -------------------------------------------- */

static PyObject *byte_strides(usmb_array *a)
{
	int64_t bytes[USMB_DL_MAX_NDIM];
	if (a->flags & USMB_ARR_C) return Py_NewRef(Py_None);
	for (int32_t i = 0; i < a->ndim; i++) bytes[i] = usmb_strides(a)[i] * usmb_itemsize(a);
	return usmb_tuple_i64(bytes, a->ndim);
}

/* The host waits for the work on the memory, so consumers need no stream: it is None. */
PyObject *usmb_array_cuda_interface(PyObject *self, void *closure)
{
	static const char name[] = "__cuda_array_interface__";
	usmb_array *a = (usmb_array *)self;
	const char *typestr = usmb_dl_dtype_typestr(a->dtype);
	usmb_dl_device device;
	(void)closure;
	usmb_owner_drain();
	if (allowed(a) < 0) return NULL;
	int code = usmb_array_cuda_device(a, &device);
	if (code != USMB_SYCL_OK) return no_attribute(a, name, code);
	if (device.type != USMB_DL_CUDA || !typestr)
		return usmb_raise(PyExc_AttributeError, "this Array has no %s: %s", name,
		                  typestr ? "it is for device and shared USM; its memory is host USM"
		                          : "the interface has no type string for its element type");
	if (usmb_array_wait(a) < 0 || usmb_array_note_cuda(a) < 0) return NULL;
	PyObject *shape = usmb_tuple_i64(usmb_shape(a), a->ndim), *strides = byte_strides(a), *dict = NULL;
	if (shape && strides)
		dict = Py_BuildValue("{sOsssOs(KO)sisO}", "shape", shape, "typestr", typestr, "strides", strides,
		                     "data", a->nelem == 0 ? 0ULL : (unsigned long long)(uintptr_t)a->first,
		                     a->flags & USMB_ARR_READONLY ? Py_True : Py_False, "version", 3, "stream",
		                     Py_None);
	Py_XDECREF(shape);
	Py_XDECREF(strides);
	if (dict) usmb_array_show(a);
	return dict;
}

/* ---- __cuda_array_interface__ of other objects ------------------------------------- */

#define WHERE "__cuda_array_interface__: "

/* The contents of a dictionary; everything is borrowed from it. */
typedef struct {
	usmb_dl_tensor t;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	int readonly;
	int64_t stream; /* 0: not given, any stream may have work */
	int idle;       /* stream is None: no stream has work */
} parsed;

static int malformed(const char *key, const char *rule)
{
	if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_OverflowError))
		usmb_raise(PyExc_ValueError, WHERE "'%s' %s", key, rule);
	return -1;
}

static int parse_data(PyObject *dict, parsed *p)
{
	PyObject *data = PyDict_GetItemString(dict, "data");
	if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2)
		return malformed("data", "must be a tuple (pointer, read-only)");
	PyObject *address = PyTuple_GetItem(data, 0);
	p->t.data = PyLong_Check(address) ? (void *)(uintptr_t)PyLong_AsUnsignedLongLong(address) : NULL;
	if (PyErr_Occurred() || !PyLong_Check(address)) return malformed("data", "must begin with an address");
	p->readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1));
	return p->readonly < 0 ? -1 : 0;
}

static int parse_layout(PyObject *dict, parsed *p)
{
	PyObject *shape = PyDict_GetItemString(dict, "shape"), *strides = PyDict_GetItemString(dict, "strides");
	PyObject *typestr = PyDict_GetItemString(dict, "typestr");
	if (!shape || !PyTuple_Check(shape)) return malformed("shape", "must be a tuple");
	p->t.ndim = usmb_parse_dims(shape, p->shape, WHERE "'shape'");
	if (p->t.ndim < 0) return -1;
	if (!typestr || !PyUnicode_Check(typestr)) return malformed("typestr", "must be a type string such as \"<f4\"");
	if (usmb_parse_dtype(typestr, NULL, &p->t.dtype) < 0) return -1;
	p->t.shape = p->shape;
	if (!usmb_given(strides)) return 0;
	if (usmb_parse_dims(strides, p->strides, WHERE "'strides'") != p->t.ndim)
		return malformed("strides", "must have as many entries as 'shape'");
	for (int32_t i = 0; i < p->t.ndim; i++) {
		if (p->strides[i] % (p->t.dtype.bits / 8))
			return malformed("strides", "must be multiples of the size of the elements");
		p->strides[i] /= p->t.dtype.bits / 8;
	}
	p->t.strides = p->strides;
	return 0;
}

static int parse_stream(PyObject *dict, parsed *p)
{
	PyObject *stream = PyDict_GetItemString(dict, "stream");
	p->idle = stream == Py_None;
	if (!usmb_given(stream)) return 0;
	p->stream = PyLong_Check(stream) ? PyLong_AsLongLong(stream) : 0;
	return p->stream > 0 ? 0 : malformed("stream", "must be None, 1, 2 or the address of a stream");
}

static int parse(PyObject *dict, parsed *p)
{
	memset(p, 0, sizeof *p);
	p->t.device = (usmb_dl_device){USMB_DL_CPU, 0}; /* for the check of the layout */
	if (!PyDict_Check(dict)) {
		usmb_raise(PyExc_TypeError, WHERE "must be a dict");
		return -1;
	}
	if (usmb_given(PyDict_GetItemString(dict, "mask"))) {
		usmb_raise(PyExc_BufferError, WHERE "arrays with a 'mask' are unsupported");
		return -1;
	}
	return parse_data(dict, p) < 0 || parse_layout(dict, p) < 0 || parse_stream(dict, p) < 0 ? -1 : 0;
}

/* The cell of memory [lo, hi) that obj and its dictionary own; takes over place. */
static usmb_cell *cell_of(PyObject *obj, PyObject *dict, parsed *p, char *lo, char *hi, usmb_place *place)
{
	usmb_cell *cell = usmb_cell_find(lo, hi, place);
	if (cell && usmb_cell_serves(cell, p->readonly)) {
		usmb_place_release(place);
		return cell;
	}
	if (cell) usmb_cell_drop_gil(cell);
	PyObject *owner = PyTuple_Pack(2, obj, dict);
	cell = owner ? usmb_cell_of_object(owner, lo, (uint64_t)(hi - lo), place) : NULL;
	if (!cell) {
		Py_XDECREF(owner);
		usmb_place_release(place);
		return NULL;
	}
	if (p->readonly) atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	cell->block |= USMB_BLOCK_CLAIMED;
	if (usmb_cell_enter(cell) == 0) return cell;
	usmb_cell_drop_gil(cell);
	return NULL;
}

static PyObject *import(PyObject *obj, PyObject *dict)
{
	parsed p;
	usmb_dl_span span;
	usmb_place *place;
	char text[512];
	if (parse(dict, &p) < 0) return NULL;
	usmb_array *a = usmb_array_laid_out(p.t.ndim, p.shape, p.strides);
	if (!a) return NULL;
	usmb_cell *cell = NULL;
	int code = usmb_dl_check(&p.t, 0, usmb_strides(a), &span);
	if (code != USMB_DL_OK) {
		usmb_raise(PyExc_BufferError, WHERE "%s", usmb_dl_explain(code, &p.t, text, sizeof text));
	} else if (span.nelem == 0) {
		cell = usmb_cuda_stand_in(-1);
		if (cell) span.first = cell->data;
	} else if (usmb_cuda_place(-1, (char *)span.first + span.lo, (char *)span.first + span.hi, &place) == 0) {
		cell = cell_of(obj, dict, &p, (char *)span.first + span.lo, (char *)span.first + span.hi, place);
	}
	if (!cell) {
		Py_DECREF(a);
		return NULL;
	}
	usmb_array_settle_as(a, cell, p.t.dtype, p.readonly ? USMB_ARR_READONLY : 0, &span);
	PyObject *r = usmb_array_counted(a);
	if (!r || p.idle || span.nelem == 0 || usmb_cuda_arrived(a, (uintptr_t)p.stream) == 0) return r;
	usmb_decref_aside(r);
	return NULL;
}

PyObject *usmb_import_cuda_interface(PyObject *obj)
{
	PyObject *dict = usmb_optional_attr(obj, usmb_name.__cuda_array_interface__);
	PyObject *a = dict ? import(obj, dict) : NULL;
	Py_XDECREF(dict);
	return a;
}
