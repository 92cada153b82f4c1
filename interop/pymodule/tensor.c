/* tensor.c: DLPack tensors of other libraries: the calls that ask an object for one, and the owner of its
   memory. */
#include <string.h>

#include "exchange.h"
#include "storage.h"
#include "support.h"

static PyObject *our_version; /* (1, 3) */
static PyObject *kw_version;  /* ("max_version",) */
static PyObject *kw_full;     /* ("max_version", "dl_device", "copy") */

int usmb_tensor_register(void)
{
	int64_t v[2] = {USMB_DL_MAJOR, USMB_DL_MINOR};
	our_version = usmb_tuple_i64(v, 2);
	kw_version = PyTuple_Pack(1, usmb_name.max_version);
	kw_full = PyTuple_Pack(3, usmb_name.max_version, usmb_name.dl_device, usmb_name.copy);
	return our_version && kw_version && kw_full ? 0 : -1;
}

/* ---- owners ---------------------------------------------------------------------- */

/* The place of kDLOneAPI memory, after all checks. Loads SYCL if needed. */
static int oneapi_place(const usmb_dl_snapshot *s, usmb_place **out)
{
	const char *first = s->span.first, *lo = first + s->span.lo, *hi = first + s->span.hi;
	int code = usmb_sycl_dlpack_import(s->t.device.id, lo, hi, out);
	if (code == USMB_SYCL_ENOLIB && usmb_open_sycl() == 0)
		code = usmb_sycl_dlpack_import(s->t.device.id, lo, hi, out);
	if (code == USMB_SYCL_OK) return 0;
	if (PyErr_Occurred()) return -1;
	usmb_raise(PyExc_BufferError, "from_dlpack: the tensor names memory at %p on DLPack device (14, %d): %s",
	           s->span.first, s->t.device.id, usmb_sycl_strerror(code));
	return -1;
}

/* Memory for a tensor without elements and without an address on a SYCL device, because consumers
   of USM need an address. */
static usmb_cell *stand_in(const usmb_dl_device *device)
{
	usmb_cell *cell = NULL;
	usmb_goerr err;
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0) return NULL;
	PyThreadState *saved = PyEval_SaveThread();
	int r = usmb_go_alloc_for(device->type, device->id, 1, &cell, &err);
	PyEval_RestoreThread(saved);
	if (err.kind == USMB_ERR_VALUE) err.kind = USMB_ERR_BUFFER; /* the device does not exist */
	if (r < 0) usmb_raise_go(&err);
	return r < 0 ? NULL : cell;
}

usmb_cell *usmb_tensor_cell(void *managed, int versioned, usmb_dl_snapshot *s)
{
	usmb_place *place = NULL;
	int usm = s->t.device.type == USMB_DL_ONEAPI;
	if (usm && s->span.nelem == 0 && !s->span.first) {
		usmb_cell *cell = stand_in(&s->t.device);
		if (!cell) return NULL;
		s->span.first = cell->data;
		usmb_dl_delete(managed, versioned); /* the tensor is taken, as on every success */
		return cell;
	}
	if (usm && oneapi_place(s, &place) < 0) return NULL;
	int64_t lo = usmb_dl_whole_elements(s->span.lo, s->span.itembits);
	usmb_cell *cell = usmb_cell_of_managed(managed, versioned, (char *)s->span.first + lo,
	                                       (uint64_t)(s->span.hi - lo), place);
	if (!cell)
		usmb_place_release(place);
	else if (s->flags & USMB_DL_FLAG_READ_ONLY)
		atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	return cell;
}

/* ---- capsules -------------------------------------------------------------------- */

static const char *const names[2] = {usmb_dl_name_legacy, usmb_dl_name_versioned};
static const char *const used_names[2] = {usmb_dl_name_legacy_used, usmb_dl_name_versioned_used};

/* The tensor in a capsule and its form; NULL with an exception. */
static void *open_capsule(PyObject *capsule, int *versioned)
{
	char type[64];
	if (!PyCapsule_CheckExact(capsule))
		return usmb_raise(PyExc_TypeError, "from_dlpack: __dlpack__ returned a %s, not a capsule",
		                  usmb_type_name(capsule, type, sizeof type));
	const char *name = PyCapsule_GetName(capsule);
	for (*versioned = 0; *versioned < 2; ++*versioned)
		if (name && !strcmp(name, names[*versioned])) return PyCapsule_GetPointer(capsule, name);
	PyErr_Clear();
	if (name && !strncmp(name, "used_dltensor", 13))
		return usmb_raise(
		        PyExc_BufferError,
		        "from_dlpack: the capsule \"%s\" was consumed before; a DLPack capsule can be used once", name);
	return usmb_raise(PyExc_BufferError, "from_dlpack: a capsule named \"%s\" holds no DLPack tensor",
	                  name ? name : "");
}

/* Takes the tensor of a capsule that __dlpack__ returned. versioned is the form that was asked for;
   the name of the capsule is read only if it has the other form. On failure the capsule gets its
   name back, and so deletes the tensor. */
static PyObject *tensor_take_capsule(PyObject *capsule, int versioned, usmb_take_fn take, void *ctx)
{
	void *managed = PyCapsule_CheckExact(capsule) ? PyCapsule_GetPointer(capsule, names[versioned]) : NULL;
	if (__builtin_expect(!managed, 0)) {
		PyErr_Clear();
		managed = open_capsule(capsule, &versioned);
	}
	/* Rename first: take may drop the GIL, and no other consumer must take the tensor
	   meanwhile. */
	if (!managed || PyCapsule_SetName(capsule, used_names[versioned]) != 0) return NULL;
	PyObject *a = take(managed, versioned, ctx);
	if (!a) PyCapsule_SetName(capsule, names[versioned]);
	return a;
}

/* ---- objects ---------------------------------------------------------------------- */

static PyObject *no_dlpack(PyObject *x)
{
	char type[64];
	return usmb_raise(
	        PyExc_TypeError,
	        "from_dlpack: %s has no __dlpack__ and is not a DLPack capsule; use asarray for sequences and buffers",
	        usmb_type_name(x, type, sizeof type));
}

/* Calls x.__dlpack__ with or without max_version. method is the type's own, or NULL. */
static inline PyObject *ask(PyObject *x, PyObject *method, PyObject *kwnames)
{
	PyObject *args[3] = {NULL, x, our_version};
	size_t n = 1 | PY_VECTORCALL_ARGUMENTS_OFFSET;
	return method ? PyObject_Vectorcall(method, args + 1, n, kwnames)
	              : PyObject_VectorcallMethod(usmb_name.__dlpack__, args + 1, n, kwnames);
}

/* Calls x.__dlpack__. Producers from before 2022 take no keywords and raise TypeError; they are
   called again without keywords, and an exception of that call is left as it is. */
static PyObject *call_dlpack(PyObject *x, int kind, PyObject *method)
{
	if (kind == USMB_KIND_LEGACY) return ask(x, method, NULL);
	PyObject *c = ask(x, method, kw_version);
	if (__builtin_expect(c != NULL, 1)) return c;
	if (PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		return ask(x, method, NULL);
	}
	if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
		PyObject *type, *value, *trace;
		PyErr_Fetch(&type, &value, &trace);
		PyObject *method = PyObject_GetAttr(x, usmb_name.__dlpack__);
		if (!method) {
			PyErr_Clear();
			Py_XDECREF(type);
			Py_XDECREF(value);
			Py_XDECREF(trace);
			return no_dlpack(x);
		}
		Py_DECREF(method);
		PyErr_Restore(type, value, trace);
	}
	return NULL;
}

/* Drops a capsule. If the import failed, this deletes its tensor. */
static PyObject *done_with(PyObject *capsule, PyObject *a)
{
	if (a)
		Py_DECREF(capsule);
	else
		usmb_decref_aside(capsule);
	return a;
}

static PyObject *take_object(PyObject *x, int kind, PyObject *method, usmb_take_fn take, void *ctx)
{
	PyObject *capsule = call_dlpack(x, kind, method);
	if (!capsule) return NULL;
	return done_with(capsule, tensor_take_capsule(capsule, kind != USMB_KIND_LEGACY, take, ctx));
}

/* ---- PyTorch --------------------------------------------------------------------- */

static int is_torch(const usmb_typeinfo *info)
{
	return info->kind == USMB_KIND_TORCH || info->kind == USMB_KIND_TORCH_OTHER;
}

/* The value of a flag of x, an attribute or a method without arguments: 1 or 0; -1 without an
   exception if it is not a bool; -2 with an exception that is not an Exception. */
static int flag_of(PyObject *x, PyObject *name, int method)
{
	PyObject *args[2] = {NULL, x};
	PyObject *v = method ? PyObject_VectorcallMethod(name, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
	                     : PyObject_GetAttr(x, name);
	int r = v == Py_False ? 0 : v == Py_True ? 1 : -1;
	Py_XDECREF(v);
	return usmb_clear_exception() < 0 ? -2 : r;
}

/* Checks for a lazily negated tensor, whose memory PyTorch exports without the sign, by __dlpack__ too.
   Returns is_neg() as flag_of does, or -2 with an exception if it is true. */
static int check_negated(PyObject *x)
{
	int negated = flag_of(x, usmb_name.is_neg, 1);
	if (negated != 1) return negated;
	usmb_raise(PyExc_BufferError, "from_dlpack: the tensor has its negative bit set, which DLPack cannot "
	                              "express; pass tensor.resolve_neg()");
	return -2;
}

static PyObject *take_exchange(usmb_dl_versioned *managed, usmb_take_fn take, void *ctx)
{
	PyObject *o = take(managed, 1, ctx);
	if (!o) {
		PyObject *type, *value, *trace;
		PyErr_Fetch(&type, &value, &trace);
		usmb_dl_delete(managed, 1);
		PyErr_Restore(type, value, trace);
	}
	return o;
}

/* Imports a torch.Tensor. The exchange API (NULL: do not use) saves most of the time of __dlpack__,
   but skips its checks, because it is made for the duration of a kernel call. So it is used only
   for tensors without the states that __dlpack__ checks. If it fails, __dlpack__ reports the
   reason: a sparse tensor is a BufferError there and a RuntimeError here. */
static PyObject *take_torch(PyObject *x, const usmb_dl_exchange_api *api, usmb_take_fn take, void *ctx)
{
	usmb_dl_versioned *managed = NULL;
	int state = check_negated(x);
	if (api && state == 0) state = flag_of(x, usmb_name.requires_grad, 0);
	if (api && state == 0) state = flag_of(x, usmb_name.is_conj, 1);
	if (state == -2) return NULL;
	if (api && state == 0) {
		if (api->managed_tensor_from_py_object_no_sync(x, &managed) == 0 && managed)
			return take_exchange(managed, take, ctx);
		if (usmb_clear_exception() < 0) return NULL;
	}
	return take_object(x, USMB_KIND_TORCH, NULL, take, ctx);
}

/* A call into x can remove the entry of its type. The method belongs to a static type and the
   exchange API to the process, so both stay valid. */
PyObject *usmb_tensor_take(PyObject *x, usmb_take_fn take, void *ctx)
{
	if (PyCapsule_CheckExact(x)) return tensor_take_capsule(x, 1, take, ctx);
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info) return NULL;
	if (__builtin_expect(is_torch(info), 0))
		return take_torch(x, info->kind == USMB_KIND_TORCH ? info->api : NULL, take, ctx);
	return take_object(x, info->kind, info->method, take, ctx);
}

/* ---- far memory ---------------------------------------------------------------------- */

/* Any device counts whose memory cannot be imported, also an invalid one. */
int usmb_tensor_is_far(PyObject *x)
{
	if (PyCapsule_CheckExact(x)) return 0;
	PyObject *pair = PyObject_CallMethodObjArgs(x, usmb_name.__dlpack_device__, NULL);
	if (!pair) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
		PyErr_Clear();
		return 0;
	}
	PyObject *first = PySequence_GetItem(pair, 0);
	Py_DECREF(pair);
	int64_t type = first ? PyLong_AsLongLong(first) : -1;
	Py_XDECREF(first);
	if (type == -1 && PyErr_Occurred()) return -1;
	return type != USMB_DL_CPU && type != USMB_DL_ONEAPI;
}

/* For memory that only its owner can reach: the owner copies it to the host. */
PyObject *usmb_tensor_take_on_host(PyObject *x, PyObject *copy, usmb_take_fn take, void *ctx)
{
	int64_t cpu[2] = {USMB_DL_CPU, 0};
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info || (is_torch(info) && check_negated(x) == -2)) return NULL;
	PyObject *device = usmb_tuple_i64(cpu, 2);
	if (!device) return NULL;
	PyObject *args[5] = {NULL, x, our_version, device, copy ? copy : Py_None};
	PyObject *capsule =
	        PyObject_VectorcallMethod(usmb_name.__dlpack__, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, kw_full);
	Py_DECREF(device);
	if (!capsule) return NULL;
	return done_with(capsule, tensor_take_capsule(capsule, 1, take, ctx));
}
