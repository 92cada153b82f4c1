/* import.c: from_dlpack: arrays of others by DLPack, without copying. */
#include <string.h>

#include "usmb_pymod.h"

static PyObject *our_version; /* (1, 3) */
static PyObject *kw_version;  /* ("max_version",) */
static PyObject *kw_full;     /* ("max_version", "dl_device", "copy") */

int usmb_import_register(void)
{
	int64_t v[2] = {USMB_DL_MAJOR, USMB_DL_MINOR};
	our_version = usmb_tuple_i64(v, 2);
	kw_version = usmb_py.PyTuple_Pack(1, usmb_name.max_version);
	kw_full = usmb_py.PyTuple_Pack(3, usmb_name.max_version, usmb_name.dl_device, usmb_name.copy);
	return our_version && kw_version && kw_full ? 0 : -1;
}

/* The place of kDLOneAPI memory, by all the rules; loads SYCL when this is the
   first that is heard of it. */
static int oneapi_place(const usmb_dl_snapshot *s, usmb_place **out)
{
	const char *first = s->span.first, *lo = first + s->span.lo, *hi = first + s->span.hi;
	int code = usmb_sycl_dlpack_import(s->t.device.id, lo, hi, out);
	if (code == USMB_SYCL_ENOLIB && usmb_open_sycl() == 0)
		code = usmb_sycl_dlpack_import(s->t.device.id, lo, hi, out);
	if (code == USMB_SYCL_OK) return 0;
	if (usmb_py.PyErr_Occurred()) return -1;
	usmb_raise(usmb_py.PyExc_BufferError, "from_dlpack: memory at %p said to be on DLPack device (14, %d): %s",
	           s->span.first, s->t.device.id, usmb_sycl_strerror(code));
	return -1;
}

static PyObject *refuse_device(const usmb_dl_tensor *t)
{
	const char *name = usmb_dl_device_name(t->device.type);
	return usmb_raise(
	        usmb_py.PyExc_BufferError,
	        "from_dlpack: the tensor is on device (%d, %d)%s%s; only kDLCPU (1) and kDLOneAPI (14) can be taken "
	        "without a copy: ask its owner for a copy on the host",
	        t->device.type, t->device.id, name ? " " : "", name ? name : "");
}

/* A tensor without elements and without an address on a SYCL device gets memory of
   its own there, since USM consumers need an address. */
static usmb_cell *stand_in(const usmb_dl_device *device)
{
	usmb_cell *cell = NULL;
	usmb_goerr err;
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0) return NULL;
	PyThreadState *saved = usmb_py.PyEval_SaveThread();
	int r = usmb_go_alloc_for(device->type, device->id, 1, &cell, &err);
	usmb_py.PyEval_RestoreThread(saved);
	if (err.kind == USMB_ERR_VALUE) err.kind = USMB_ERR_BUFFER; /* there is no such device */
	if (r < 0) usmb_raise_go(&err);
	return r < 0 ? NULL : cell;
}

usmb_cell *usmb_import_cell(void *managed, int versioned, usmb_dl_snapshot *s)
{
	usmb_place *place = NULL;
	int usm = s->t.device.type == USMB_DL_ONEAPI;
	if (usm && s->span.nelem == 0 && !s->span.first) {
		usmb_cell *cell = stand_in(&s->t.device);
		if (!cell) return NULL;
		s->span.first = cell->data;
		usmb_dl_delete(managed, versioned); /* taken, like any other */
		return cell;
	}
	if (usm && oneapi_place(s, &place) < 0) return NULL;
	usmb_cell *cell = usmb_cell_of_managed(managed, versioned, (char *)s->span.first + s->span.lo,
	                                       (uint64_t)(s->span.hi - s->span.lo), place);
	if (!cell)
		usmb_place_release(place);
	else if (s->flags & USMB_DL_FLAG_READ_ONLY)
		atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	return cell;
}

/* The array of a snapshot that is sound and on a device of ours. */
static PyObject *array_of(void *managed, int versioned, usmb_dl_snapshot *s)
{
	usmb_array *a = usmb_array_raw(s->t.ndim);
	if (!a) return NULL;
	usmb_cell *cell = usmb_import_cell(managed, versioned, s);
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

PyObject *usmb_import_managed(void *managed, int versioned)
{
	usmb_dl_snapshot s;
	char text[512];
	if (!managed) return usmb_raise(usmb_py.PyExc_BufferError, "from_dlpack: NULL is no tensor");
	int code = usmb_dl_read_managed(managed, versioned, &s);
	if (__builtin_expect(code == USMB_DL_OK, 1)) {
		int known = s.t.device.type == USMB_DL_CPU || s.t.device.type == USMB_DL_ONEAPI;
		return known ? array_of(managed, versioned, &s) : refuse_device(&s.t);
	}
	return usmb_raise(usmb_py.PyExc_BufferError, "from_dlpack: %s",
	                  usmb_dl_explain_snapshot(code, &s, text, sizeof text));
}

/* ---- capsules -------------------------------------------------------------------- */

static const char *const names[2] = {usmb_dl_name_legacy, usmb_dl_name_versioned};
static const char *const used_names[2] = {usmb_dl_name_legacy_used, usmb_dl_name_versioned_used};

/* The tensor of a capsule and its form; NULL with the reason. */
static void *open_capsule(PyObject *capsule, int *versioned)
{
	char type[64];
	if (!PyCapsule_CheckExact(capsule))
		return usmb_raise(usmb_py.PyExc_TypeError, "from_dlpack: __dlpack__ returned a %s, not a capsule",
		                  usmb_type_name(capsule, type, sizeof type));
	const char *name = usmb_py.PyCapsule_GetName(capsule);
	for (*versioned = 0; *versioned < 2; ++*versioned)
		if (name && !strcmp(name, names[*versioned])) return usmb_py.PyCapsule_GetPointer(capsule, name);
	usmb_py.PyErr_Clear();
	if (name && !strncmp(name, "used_dltensor", 13))
		return usmb_raise(
		        usmb_py.PyExc_BufferError,
		        "from_dlpack: the capsule \"%s\" was consumed before; a DLPack capsule can be taken once",
		        name);
	return usmb_raise(usmb_py.PyExc_BufferError, "from_dlpack: a capsule named \"%s\" holds no DLPack tensor",
	                  name ? name : "");
}

/* versioned is the form that was asked for, which saves looking at the name where
   it is what came. On failure the capsule has its name again, and with it the duty
   to delete. */
static PyObject *take_capsule(PyObject *capsule, int versioned, usmb_take_fn take, void *ctx)
{
	void *managed = PyCapsule_CheckExact(capsule) ? usmb_py.PyCapsule_GetPointer(capsule, names[versioned]) : NULL;
	if (__builtin_expect(!managed, 0)) {
		usmb_py.PyErr_Clear();
		managed = open_capsule(capsule, &versioned);
	}
	/* Renamed first: taking may drop the GIL, and nobody else must take it then. */
	if (!managed || usmb_py.PyCapsule_SetName(capsule, used_names[versioned]) != 0) return NULL;
	PyObject *a = take(managed, versioned, ctx);
	if (!a) usmb_py.PyCapsule_SetName(capsule, names[versioned]);
	return a;
}

static PyObject *take_array(void *managed, int versioned, void *ctx)
{
	(void)ctx;
	return usmb_import_managed(managed, versioned);
}

static PyObject *import_capsule(PyObject *capsule)
{
	return take_capsule(capsule, 1, take_array, NULL);
}

/* Ours, by view: its facts are settled. What DLPack cannot describe stays out,
   as it would between strangers. */
static PyObject *import_own(usmb_array *a)
{
	usmb_dl_device dev;
	if (usmb_array_check_aligned(a) < 0 || usmb_array_device(a, &dev) < 0) return NULL;
	return usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
}

static PyObject *take_exchange(PyObject *x, const usmb_dl_exchange_api *api, usmb_take_fn take, void *ctx)
{
	usmb_dl_versioned *managed = NULL;
	if (api->managed_tensor_from_py_object_no_sync(x, &managed) != 0 || !managed) {
		if (!usmb_py.PyErr_Occurred())
			usmb_raise(usmb_py.PyExc_BufferError,
			           "from_dlpack: the producer's exchange API failed without an error");
		return NULL;
	}
	PyObject *o = take(managed, 1, ctx);
	if (!o) {
		PyObject *type, *value, *trace;
		usmb_py.PyErr_Fetch(&type, &value, &trace);
		usmb_dl_delete(managed, 1);
		usmb_py.PyErr_Restore(type, value, trace);
	}
	return o;
}

/* The C exchange API synchronises nothing: work on the producer's current queue
   becomes pending work of the array. */
static PyObject *import_exchange(PyObject *x, const usmb_dl_exchange_api *api)
{
	void *queue = NULL, *event = NULL;
	PyObject *o = take_exchange(x, api, take_array, NULL);
	if (!o) return NULL;
	usmb_array *a = (usmb_array *)o;
	if (!a->cell->place || !api->current_work_stream) return o;
	usmb_dl_device dev;
	if (usmb_array_device(a, &dev) == 0 && api->current_work_stream(dev.type, dev.id, &queue) == 0 && queue &&
	    usmb_sycl_barrier(queue, NULL, 0, &event) == USMB_SYCL_OK)
		usmb_pending_set(a->cell, event);
	if (!usmb_py.PyErr_Occurred()) return o;
	Py_DECREF(o);
	return NULL;
}

/* ---- objects ---------------------------------------------------------------------- */

static PyObject *no_dlpack(PyObject *x)
{
	char type[64];
	return usmb_raise(
	        usmb_py.PyExc_TypeError,
	        "from_dlpack: %s has no __dlpack__ and is no DLPack capsule; use asarray for sequences and buffers",
	        usmb_type_name(x, type, sizeof type));
}

/* x.__dlpack__ with or without max_version; method is the type's own, or NULL. */
static inline PyObject *ask(PyObject *x, PyObject *method, PyObject *kwnames)
{
	PyObject *args[3] = {NULL, x, our_version};
	size_t n = 1 | PY_VECTORCALL_ARGUMENTS_OFFSET;
	return method ? usmb_py.PyObject_Vectorcall(method, args + 1, n, kwnames)
	              : usmb_py.PyObject_VectorcallMethod(usmb_name.__dlpack__, args + 1, n, kwnames);
}

/* Producers from before 2022 take no keywords: they answer TypeError, and are
   asked again without. What they raise then is theirs and passes unchanged. */
static PyObject *call_dlpack(PyObject *x, int kind, PyObject *method)
{
	if (kind == USMB_KIND_LEGACY) return ask(x, method, NULL);
	PyObject *c = ask(x, method, kw_version);
	if (__builtin_expect(c != NULL, 1)) return c;
	if (usmb_py.PyErr_ExceptionMatches(usmb_py.PyExc_TypeError)) {
		usmb_py.PyErr_Clear();
		return ask(x, method, NULL);
	}
	if (usmb_py.PyErr_ExceptionMatches(usmb_py.PyExc_AttributeError)) {
		PyObject *type, *value, *trace;
		usmb_py.PyErr_Fetch(&type, &value, &trace);
		PyObject *method = usmb_py.PyObject_GetAttr(x, usmb_name.__dlpack__);
		if (!method) {
			usmb_py.PyErr_Clear();
			Py_XDECREF(type);
			Py_XDECREF(value);
			Py_XDECREF(trace);
			return no_dlpack(x);
		}
		Py_DECREF(method);
		usmb_py.PyErr_Restore(type, value, trace);
	}
	return NULL;
}

/* Gives the capsule up. One that was refused ends its tensor now: the producer's code
   must neither see nor lose the error that is on its way. */
static PyObject *done_with(PyObject *capsule, PyObject *a)
{
	PyObject *type, *value, *trace;
	if (a) {
		Py_DECREF(capsule);
		return a;
	}
	usmb_py.PyErr_Fetch(&type, &value, &trace);
	Py_DECREF(capsule);
	usmb_py.PyErr_Restore(type, value, trace);
	return NULL;
}

/* The entry may go during the call; the method is its static type's and stays. */
static PyObject *take_object(PyObject *x, const usmb_typeinfo *info, usmb_take_fn take, void *ctx)
{
	int kind = info->kind;
	PyObject *capsule = call_dlpack(x, kind, info->method);
	if (!capsule) return NULL;
	return done_with(capsule, take_capsule(capsule, kind != USMB_KIND_LEGACY, take, ctx));
}

/* dpnp's arrays name the queue that works on them, and __dlpack__ waits for
   nothing: whoever reads here waits for that queue first. */
static PyObject *note_producer(PyObject *x, PyObject *o)
{
	usmb_array *a = (usmb_array *)o;
	usmb_syclref ref;
	if (!o || !a->cell->place || !usmb_owned_by_python(a->cell)) return o;
	PyObject *queue = usmb_py.PyObject_GetAttr(x, usmb_name.sycl_queue);
	if (queue && usmb_syclref_get(queue, &ref, "sycl_queue") == 0) {
		if (ref.form == USMB_FORM_QUEUE) usmb_cell_set_producer(a->cell, usmb_sycl_queue_copy(ref.ref));
		usmb_syclref_release(&ref, 0);
	}
	Py_XDECREF(queue);
	usmb_py.PyErr_Clear();
	return o;
}

PyObject *usmb_import_object(PyObject *x)
{
	if (usmb_is_array(x)) return import_own((usmb_array *)x);
	if (PyCapsule_CheckExact(x)) return import_capsule(x);
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info) return NULL;
	if (info->api) return import_exchange(x, info->api);
	if (info->kind == USMB_KIND_TENSOR || info->kind == USMB_KIND_DPNP_ARRAY)
		return note_producer(x, take_object(x, info, take_array, NULL));
	return take_object(x, info, take_array, NULL);
}

PyObject *usmb_import_by(PyObject *x, usmb_take_fn take, void *ctx)
{
	if (PyCapsule_CheckExact(x)) return take_capsule(x, 1, take, ctx);
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info) return NULL;
	return info->api ? take_exchange(x, info->api, take, ctx) : take_object(x, info, take, ctx);
}

/* ---- device= and copy= ---------------------------------------------------------------- */

/* Whether x says itself that it is on a device whose memory cannot be taken, be
   that a device at all or not; -1 on error. */
static int is_far(PyObject *x)
{
	if (PyCapsule_CheckExact(x)) return 0;
	PyObject *pair = usmb_py.PyObject_CallMethodObjArgs(x, usmb_name.__dlpack_device__, NULL);
	if (!pair) {
		if (!usmb_py.PyErr_ExceptionMatches(usmb_py.PyExc_AttributeError)) return -1;
		usmb_py.PyErr_Clear();
		return 0;
	}
	PyObject *first = usmb_py.PySequence_GetItem(pair, 0);
	Py_DECREF(pair);
	int64_t type = first ? usmb_py.PyLong_AsLongLong(first) : -1;
	Py_XDECREF(first);
	if (type == -1 && usmb_py.PyErr_Occurred()) return -1;
	return type != USMB_DL_CPU && type != USMB_DL_ONEAPI;
}

/* Memory of a device that only its owner can reach: it copies to the host. */
static PyObject *import_via_host(PyObject *x, PyObject *copy)
{
	int64_t cpu[2] = {USMB_DL_CPU, 0};
	PyObject *device = usmb_tuple_i64(cpu, 2);
	if (!device) return NULL;
	PyObject *args[5] = {NULL, x, our_version, device, copy ? copy : usmb_py.Py_None};
	PyObject *capsule = usmb_py.PyObject_VectorcallMethod(usmb_name.__dlpack__, args + 1,
	                                                      1 | PY_VECTORCALL_ARGUMENTS_OFFSET, kw_full);
	Py_DECREF(device);
	if (!capsule) return NULL;
	return done_with(capsule, import_capsule(capsule));
}

/* Brings a to where w says, if anything is said there; takes a. */
static PyObject *settle_request(PyObject *a, const usmb_where *w, int has_device, int copy)
{
	usmb_array *src = (usmb_array *)a;
	PyObject *r = NULL;
	int there = !has_device || usmb_is_at(src, w);
	if (there && copy != 1) return a;
	if (!there && copy != 1 && w->host && src->flags & USMB_ARR_READ) {
		r = usmb_as_host(src);
	} else if (copy == 0) {
		usmb_raise(usmb_py.PyExc_BufferError, "from_dlpack: the memory is on another device than the one asked "
		                                      "for, and copy=False forbids a copy");
	} else {
		r = usmb_copy_to(src, there ? NULL : w);
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
	int copy = 2, has_device = v[1] && v[1] != usmb_py.Py_None;
	if (v[2] && v[2] != usmb_py.Py_None && (copy = usmb_py.PyObject_IsTrue(v[2])) < 0) return NULL;
	if (has_device && usmb_parse_device(v[1], &w) < 0) return NULL;
	PyObject *r = NULL;
	int far = has_device && w.host ? is_far(v[0]) : 0;
	if (far >= 0) {
		PyObject *a = far ? import_via_host(v[0], v[2]) : usmb_import_object(v[0]);
		r = a && !far ? settle_request(a, &w, has_device, copy) : a;
	}
	usmb_where_clear(&w);
	return r;
}
