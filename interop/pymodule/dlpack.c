/* dlpack.c: arrays to and from DLPack: __dlpack__ and __dlpack_device__, the tensors of other
   libraries, from_dlpack, and the C exchange API of DLPack 1.2 and 1.3 on the type Array. */
#include <stdio.h>
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "order.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

/* ==== __dlpack__ and __dlpack_device__ ======================================================== */

int usmb_array_device(usmb_array *a, usmb_dl_device *out)
{
	usmb_place *place = usmb_array_place(a);
	if (!place) {
		out->type = USMB_DL_CPU;
		out->id = 0;
		return 0;
	}
	if (place->dl_error == 0) {
		out->type = place->dl_type;
		out->id = place->dl_id;
		return 0;
	}
	char found[256];
	if (usmb_go_allowed() < 0) return -1; /* the explanation asks SYCL */
	usmb_raise(PyExc_BufferError,
	           "DLPack cannot describe this USM %s: %s; "
	           "__dlpack__(copy=True) exports a copy in the platform's default context",
	           usmb_place_explain(place, found, sizeof found), usmb_sycl_strerror(place->dl_error));
	return -1;
}

int usmb_array_cuda_device(usmb_array *a, usmb_dl_device *out)
{
	usmb_place *place = usmb_array_place(a);
	int32_t ordinal = 0;
	int code = place ? usmb_cuda_ordinal(place, &ordinal) : USMB_SYCL_ENOCUDA;
	if (code != USMB_SYCL_OK) return code;
	*out = place->kind == USMB_USM_HOST ? (usmb_dl_device){USMB_DL_CUDA_HOST, 0}
	                                    : (usmb_dl_device){USMB_DL_CUDA, ordinal};
	return USMB_SYCL_OK;
}

static int raise_export(int code, usmb_dl_tensor *view)
{
	char text[512];
	usmb_dl_explain(code, view, text, sizeof text);
	usmb_raise(code == USMB_DL_ENOMEM ? PyExc_MemoryError : PyExc_BufferError, "%s", text);
	return -1;
}

static void tensor_of(usmb_array *a, usmb_dl_device dev, usmb_dl_tensor *t)
{
	t->data = a->first;
	t->device = dev;
	t->ndim = a->ndim;
	t->dtype = a->dtype;
	t->shape = usmb_shape(a);
	t->strides = usmb_strides(a);
	t->byte_offset = 0;
}

int usmb_array_check_aligned(usmb_array *a)
{
	usmb_dl_tensor view;
	if (__builtin_expect(usmb_array_aligned(a), 1)) return 0;
	tensor_of(a, (usmb_dl_device){USMB_DL_CPU, 0}, &view);
	return raise_export(USMB_DL_EALIGN, &view);
}

static int is_cuda(int64_t type)
{
	return type == USMB_DL_CUDA || type == USMB_DL_CUDA_HOST || type == USMB_DL_CUDA_MANAGED;
}

/* Makes a managed tensor of the array on device dev; -1 with BufferError or MemoryError. */
static inline int export_array(usmb_array *a, usmb_dl_device dev, uint64_t flags, int versioned, void **out)
{
	usmb_dl_tensor view;
	if (usmb_array_check_aligned(a) < 0 || (dev.type != USMB_DL_CPU && usmb_go_allowed() < 0)) return -1;
	if ((is_cuda(dev.type) ? usmb_array_note_cuda(a) : usmb_array_exported(a)) < 0) return -1;
	int lent = (dev.type == USMB_DL_CPU || dev.type == USMB_DL_CUDA_HOST) && usmb_cell_record(a->cell)->place;
	if (lent && usmb_array_lent(a) < 0) return -1;
	tensor_of(a, dev, &view);
	usmb_drop_fn drop = usmb_array_share(a, lent);
	int code = usmb_dl_export(&view, flags | USMB_DL_EXPORT_CHECKED, versioned, drop, a->cell, out);
	if (__builtin_expect(code != USMB_DL_OK, 0)) {
		drop(a->cell);
		return raise_export(code, &view);
	}
	return 0;
}

/* ---- capsules ------------------------------------------------------------------ */

/* A capsule that was not imported owns its tensor; an imported one has another name. */
static void end_versioned(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);
	if (name == usmb_dl_name_versioned || (name && *name == 'd' && !strcmp(name, usmb_dl_name_versioned)))
		usmb_dl_delete(PyCapsule_GetPointer(capsule, name), 1);
}

static void end_legacy(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);
	if (name == usmb_dl_name_legacy || (name && *name == 'd' && !strcmp(name, usmb_dl_name_legacy)))
		usmb_dl_delete(PyCapsule_GetPointer(capsule, name), 0);
}

static inline PyObject *capsule_of(usmb_array *a, usmb_dl_device dev, uint64_t flags, int versioned)
{
	void *managed;
	if (export_array(a, dev, flags, versioned, &managed) < 0) return NULL;
	PyObject *capsule = versioned ? PyCapsule_New(managed, usmb_dl_name_versioned, end_versioned)
	                              : PyCapsule_New(managed, usmb_dl_name_legacy, end_legacy);
	if (!capsule) usmb_dl_delete(managed, versioned);
	return capsule;
}

/* ---- negotiation ----------------------------------------------------------------- */

/* The arguments of a call of __dlpack__. */
typedef struct {
	PyObject *stream;      /* NULL or None: not given */
	int has_max;           /* max_version was given */
	uint32_t major, minor; /* of max_version */
	int has_device;        /* dl_device was given */
	int64_t device[2];     /* dl_device: type and id */
	int copy;              /* see usmb_parse_copy */
} request;

static int parse_pair(PyObject *o, const char *what, int64_t out[2])
{
	char type[64];
	int exact = PyTuple_CheckExact(o);
	if (!exact && (PyUnicode_Check(o) || !PySequence_Check(o))) {
		usmb_raise(PyExc_TypeError, "__dlpack__: %s must be a tuple of two integers, not %s", what,
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	PyObject *t = exact ? Py_NewRef(o) : PySequence_Tuple(o);
	if (!t) return -1;
	int bad = PyTuple_Size(t) != 2;
	if (bad) usmb_raise(PyExc_TypeError, "__dlpack__: %s must be a tuple of two integers", what);
	for (int i = 0; i < 2 && !bad; i++) {
		out[i] = PyLong_AsLongLong(PyTuple_GetItem(t, i));
		bad = out[i] == -1 && PyErr_Occurred() != NULL;
	}
	Py_DECREF(t);
	return bad ? -1 : 0;
}

/* Call sites pass the same tuple of keywords each time, and consumers the same max_version, so
   their meaning is cached. The entries own their keys. These are only objects that cannot change
   and have no owner waiting for their end: tuples of our own strings, and tuples of two exact
   integers. */
enum { SITES = 8, VERSIONS = 4 };
static struct {
	PyObject *kwnames;
	int at[4]; /* the argument of each keyword, or -1 */
} sites[SITES];
static struct {
	PyObject *tuple;
	uint32_t major, minor;
} versions[VERSIONS];
static unsigned next_site, next_version;

static void remember_site(PyObject *kwnames, PyObject *const *args, PyObject *const *v)
{
	Py_ssize_t n = PyTuple_Size(kwnames);
	PyObject *const names[4] = {usmb_name.stream, usmb_name.max_version, usmb_name.dl_device, usmb_name.copy};
	int at[4] = {-1, -1, -1, -1};
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *key = PyTuple_GetItem(kwnames, i);
		int k = 0;
		while (k < 4 && !(v[k] == args[i] && names[k] == key)) k++;
		if (k == 4) return;
		at[k] = (int)i;
	}
	unsigned place = next_site++ % SITES;
	PyObject *old = sites[place].kwnames;
	memcpy(sites[place].at, at, sizeof at);
	sites[place].kwnames = Py_NewRef(kwnames);
	Py_XDECREF(old);
}

/* Stores the keyword arguments in v: stream, max_version, dl_device, copy. */
static int sort_arguments(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject **v)
{
	PyObject *const names[4] = {usmb_name.stream, usmb_name.max_version, usmb_name.dl_device, usmb_name.copy};
	for (int i = 0; i < SITES && n == 0 && kwnames; i++) {
		const int *at = sites[i].at;
		if (sites[i].kwnames != kwnames) continue;
		v[0] = at[0] >= 0 ? args[at[0]] : NULL;
		v[1] = at[1] >= 0 ? args[at[1]] : NULL;
		v[2] = at[2] >= 0 ? args[at[2]] : NULL;
		v[3] = at[3] >= 0 ? args[at[3]] : NULL;
		return 0;
	}
	if (usmb_args("__dlpack__", args, n, kwnames, names, 4, 0, 0, v) < 0) return -1;
	if (kwnames) remember_site(kwnames, args, v);
	return 0;
}

static int is_exact_pair(PyObject *o)
{
	return PyTuple_CheckExact(o) && PyLong_CheckExact(PyTuple_GetItem(o, 0)) &&
	       PyLong_CheckExact(PyTuple_GetItem(o, 1));
}

static int parse_version(PyObject *o, request *r)
{
	int64_t pair[2] = {0, 0};
	r->has_max = 1;
	for (int i = 0; i < VERSIONS; i++)
		if (versions[i].tuple == o) {
			r->major = versions[i].major;
			r->minor = versions[i].minor;
			return 0;
		}
	if (parse_pair(o, "max_version", pair) < 0) return -1;
	if (pair[0] < 0 || pair[0] > UINT32_MAX || pair[1] < 0 || pair[1] > UINT32_MAX) {
		usmb_raise(PyExc_ValueError, "__dlpack__: max_version has an invalid number");
		return -1;
	}
	r->major = (uint32_t)pair[0];
	r->minor = (uint32_t)pair[1];
	if (!is_exact_pair(o)) return 0;
	unsigned at = next_version++ % VERSIONS;
	PyObject *old = versions[at].tuple;
	versions[at].tuple = Py_NewRef(o);
	versions[at].major = r->major;
	versions[at].minor = r->minor;
	Py_XDECREF(old);
	return 0;
}

void usmb_dlpack_clear(void)
{
	for (int i = 0; i < SITES; i++) Py_CLEAR(sites[i].kwnames);
	for (int i = 0; i < VERSIONS; i++) Py_CLEAR(versions[i].tuple);
}

static int parse_request(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, request *r)
{
	PyObject *v[4] = {NULL, NULL, NULL, NULL};
	r->stream = NULL;
	r->has_max = r->has_device = 0;
	r->major = r->minor = 0;
	r->copy = 2;
	if (n == 0 && !kwnames) return 0;
	if (sort_arguments(args, n, kwnames, v) < 0) return -1;
	if (usmb_given(v[0])) r->stream = v[0];
	if (usmb_given(v[1]) && parse_version(v[1], r) < 0) return -1;
	if (usmb_given(v[2])) {
		if (parse_pair(v[2], "dl_device", r->device) < 0) return -1;
		r->has_device = 1;
	}
	if (usmb_given(v[3]) && (r->copy = PyObject_IsTrue(v[3])) < 0) return -1;
	return 0;
}

/* Whether a device type is one of CUDA. */
static int is_minus_one(PyObject *o)
{
	if (!PyLong_Check(o)) return 0;
	int overflow;
	return PyLong_AsLongLongAndOverflow(o, &overflow) == -1 && !overflow;
}

/* The consumer's stream. It is read first, so that an invalid one is an error even if there is no
   work to order. */
typedef struct {
	usmb_syclref ref;
	void *queue;    /* the consumer's queue, or NULL */
	int chained;    /* the consumer's work is ordered on queue; otherwise the host waits */
	int unordered;  /* stream=-1: the consumer asks for no ordering */
	uintptr_t cuda; /* the default stream of CUDA on which the consumer works, or 0 */
} consumer;

static int parse_stream(PyObject *stream, consumer *c)
{
	static const char what[] = "__dlpack__: stream";
	memset(c, 0, sizeof *c);
	c->unordered = stream && is_minus_one(stream);
	if (!stream || c->unordered) return 0;
	/* A device is not a queue: the consumer may use any queue of it. */
	int device = usmb_is_device(stream);
	if (device < 0) return -1;
	int r = device ? usmb_syclref_device(stream, &c->ref, what) : usmb_syclref_get(stream, &c->ref, what);
	if (r < 0) return -1;
	c->chained = c->ref.form == USMB_FORM_QUEUE;
	if (usmb_syclref_queue(&c->ref, what, &c->queue) == 0) return 0;
	usmb_syclref_release(&c->ref, 0);
	return -1;
}

/* Reads a stream of CUDA. */
static int parse_cuda_stream(PyObject *stream, int64_t type, consumer *c)
{
	static const char what[] = "__dlpack__: stream";
	char name[64];
	int overflow;
	memset(c, 0, sizeof *c);
	if (!stream) return 0;
	if (!PyLong_Check(stream)) {
		usmb_raise(PyExc_TypeError, "%s must be an integer or None for memory of CUDA, not %s", what,
		           usmb_type_name(stream, name, sizeof name));
		return -1;
	}
	long long v = PyLong_AsLongLongAndOverflow(stream, &overflow);
	c->unordered = v == -1 && !overflow;
	/* The driver crashes on an invalid address of a stream: for others the host waits. */
	c->cuda = !overflow && (v == 1 || v == 2) ? (uintptr_t)v : 0;
	if (type == USMB_DL_CUDA_HOST)
		usmb_raise(PyExc_ValueError, "%s must be None for kDLCUDAHost (3)", what);
	else if (v == 0)
		usmb_raise(PyExc_ValueError,
		           "%s must not be 0, which is ambiguous: 1 is the legacy default stream, 2 the per-thread one",
		           what);
	else if (overflow || v < -1)
		usmb_raise(PyExc_ValueError, "%s must be -1, 1, 2 or the address of a stream", what);
	else
		return 0;
	return -1;
}

/* Orders the consumer behind all work on the memory: on the consumer's queue if it gave one, else by
   waiting. Without a stream the consumer works on the queue that users see for the array. */
static int order(usmb_array *a, const consumer *c)
{
	if (c->unordered) return 0;
	if ((c->chained ? usmb_array_order(a, c->queue) : usmb_array_wait_known(a)) < 0) return -1;
	return c->queue ? usmb_array_seen_on(a, c->queue) : 0;
}

static int raise_device(usmb_array *a, const int64_t want[2], const char *why)
{
	const char *name = want[0] == (int32_t)want[0] ? usmb_dl_device_name((int32_t)want[0]) : NULL;
	const char *here = a->cell->place ? usmb_array_place(a)->filter : "host";
	usmb_raise(PyExc_BufferError, "__dlpack__: dl_device (%lld, %lld) %s%s%s: the array is on %s; %s",
	           (long long)want[0], (long long)want[1], name ? "(" : "", name ? name : "", name ? ")" : "",
	           here ? here : "?", why);
	return -1;
}

/* *dev is the requested device of CUDA; -1 with BufferError if the array is not on it, unless a copy is requested. */
static int requested_cuda(usmb_array *a, const request *r, usmb_dl_device *dev)
{
	char why[128];
	int32_t root;
	if (usmb_array_allowed(a) < 0) return -1;
	int code = usmb_array_cuda_device(a, dev);
	if (code != USMB_SYCL_OK) return raise_device(a, r->device, usmb_sycl_strerror(code));
	if (r->device[0] == USMB_DL_CUDA_MANAGED && usmb_array_place(a)->kind == USMB_USM_SHARED)
		dev->type = USMB_DL_CUDA_MANAGED;
	if (dev->type == r->device[0] && dev->id == r->device[1]) return 0;
	if (r->copy == 1 && dev->type == r->device[0] && dev->type != USMB_DL_CUDA_HOST &&
	    r->device[1] == (int32_t)r->device[1] && r->device[1] >= 0 &&
	    usmb_cuda_root((int32_t)r->device[1], &root) == USMB_SYCL_OK) {
		dev->id = (int32_t)r->device[1];
		return 0;
	}
	snprintf(why, sizeof why, "this memory can be asked for as (%d, %d); to_device() copies it", dev->type,
	         dev->id);
	return raise_device(a, r->device, why);
}

/* Copies an array on a device of CUDA to that device or another one. */
static PyObject *copy_on_cuda(usmb_array *a, const usmb_dl_device *dev)
{
	usmb_dl_device root = {USMB_DL_ONEAPI, 0}, shown;
	if (dev->type == USMB_DL_CUDA_HOST || dev->id == usmb_array_place(a)->ordinal) return usmb_copy_to(a, NULL);
	int code = usmb_cuda_root(dev->id, &root.id);
	PyObject *copy = code == USMB_SYCL_OK ? usmb_copy_for(a, &root) : NULL;
	if (code == USMB_SYCL_OK && copy) code = usmb_array_cuda_device((usmb_array *)copy, &shown);
	if (code == USMB_SYCL_OK) return copy;
	Py_XDECREF(copy);
	return usmb_raise(PyExc_BufferError, "no copy on DLPack device (%d, %d): %s", dev->type, dev->id,
	                  usmb_sycl_strerror(code));
}

/* Chooses the array to export for a request, and its device, which for CUDA is known already. *src is a new
   reference; *copied: whether it is a copy. */
static int choose(usmb_array *a, request *r, usmb_dl_device *dev, PyObject **src, int *copied)
{
	*copied = 0;
	if (!r->has_device) {
		if (r->copy == 1) {
			*copied = 1;
			*src = usmb_copy_for(a, NULL);
			return *src ? usmb_array_device((usmb_array *)*src, dev) : -1;
		}
		*src = Py_NewRef(a);
		return usmb_array_device(a, dev);
	}
	usmb_place *place = usmb_array_place(a);
	int64_t type = r->device[0], id = r->device[1];
	if (is_cuda(type)) {
		*copied = r->copy == 1;
		*src = *copied ? copy_on_cuda(a, dev) : Py_NewRef(a);
		return *src ? 0 : -1;
	}
	int cpu = type == USMB_DL_CPU && id == 0; /* id 0 is the only CPU, as in NumPy */
	int here = place ? place->dl_error == 0 && type == place->dl_type && id == place->dl_id : cpu;
	if (!cpu && (type != USMB_DL_ONEAPI || id < 0 || id > INT32_MAX))
		return raise_device(a, r->device,
		                    "only (1, 0), (14, root device index) and devices of CUDA can be asked for");
	dev->type = (int32_t)type;
	dev->id = (int32_t)id;
	if (r->copy != 1 && (here || (cpu && a->flags & USMB_ARR_READ))) {
		*src = Py_NewRef(a);
		return 0;
	}
	if (r->copy == 0) return raise_device(a, r->device, "that takes a copy, which copy=False forbids");
	*copied = 1;
	*src = usmb_copy_for(a, dev);
	return *src ? 0 : -1;
}

static PyObject *export_request(usmb_array *a, request *r)
{
	usmb_dl_device dev;
	consumer c;
	PyObject *src = NULL, *capsule = NULL;
	int copied, versioned, cuda = r->has_device && is_cuda(r->device[0]);
	if (cuda && requested_cuda(a, r, &dev) < 0) return NULL;
	if ((cuda ? parse_cuda_stream(r->stream, r->device[0], &c) : parse_stream(r->stream, &c)) < 0) return NULL;
	if (choose(a, r, &dev, &src, &copied) < 0) goto done;
	uint64_t flags = usmb_array_dlflags((usmb_array *)src) | (copied ? USMB_DL_FLAG_IS_COPIED : 0);
	int code = usmb_dl_negotiate(r->has_max, r->major, r->minor, flags, &versioned);
	if (code != USMB_DL_OK) {
		usmb_dl_tensor view;
		tensor_of(a, dev, &view);
		raise_export(code, &view);
		goto done;
	}
	if (!copied) {
		/* A consumer of USM on the host has no stream: it reads at once. One of CUDA has no queue. */
		int reads = (dev.type == USMB_DL_CPU && usmb_cell_record(a->cell)->place) || (cuda && !c.unordered);
		if ((reads ? usmb_array_wait_for_stream(a, c.cuda) : order(a, &c)) < 0) goto done;
	}
	capsule = capsule_of((usmb_array *)src, dev, flags, versioned);
done:
	usmb_syclref_release(&c.ref, capsule != NULL);
	Py_XDECREF(src);
	return capsule;
}

PyObject *usmb_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	usmb_array *a = (usmb_array *)self;
	const usmb_dl_device cpu = {USMB_DL_CPU, 0};
	request r;
	usmb_owner_drain();
	/* Host memory without special requests: nearly all calls. */
	int plain = !usmb_cell_record(a->cell)->place && !(a->flags & (USMB_ARR_READONLY | USMB_ARR_PADDED));
	if (plain && n == 0 && !kwnames) return capsule_of(a, cpu, 0, 0);
	if (parse_request(args, n, kwnames, &r) < 0) return NULL;
	if (plain && !r.has_device && r.copy != 1 && !r.stream)
		return capsule_of(a, cpu, 0, r.has_max && r.major >= USMB_DL_MAJOR);
	return export_request(a, &r);
}

/* Memory outside its platform's default context reports its root device here. __dlpack__ then
   refuses it with a message that offers a copy, so that consumers which ask for the device first
   see that message. */
PyObject *usmb_array_dlpack_device(PyObject *self, PyObject *unused)
{
	usmb_array *a = (usmb_array *)self;
	usmb_place *place = usmb_array_place(a);
	usmb_dl_device dev;
	(void)unused;
	if (place && place->dl_error == USMB_SYCL_ENOTDEFAULT && place->root >= 0)
		dev = (usmb_dl_device){USMB_DL_ONEAPI, place->root};
	else if (usmb_array_device(a, &dev) < 0)
		return NULL;
	int64_t pair[2] = {dev.type, dev.id};
	return usmb_tuple_i64(pair, 2);
}

/* ==== Tensors of other libraries ============================================================== */

static PyObject *our_version; /* (1, 3) */
static PyObject *kw_version;  /* ("max_version",) */
static PyObject *kw_full;     /* ("max_version", "dl_device", "copy") */
static PyObject *kw_stream;   /* ("stream", "max_version"), and one without max_version */
static PyObject *kw_stream_only;
static PyObject *legacy_stream; /* 1 */

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
	usmb_raise(usmb_runtime_failed(code) ? PyExc_RuntimeError : PyExc_BufferError,
	           "from_dlpack: the tensor names memory at %p on DLPack device (14, %d): %s", s->span.first,
	           s->t.device.id, usmb_sycl_strerror(code));
	return -1;
}

/* The number of kDLCUDAHost is always 0: its memory is of any device. */
enum { ORDINAL_HOST = -2 };

/* Raises the reason why memory of CUDA cannot be imported. */
static int raise_cuda(int code, int32_t ordinal, const void *address)
{
	if (PyErr_Occurred()) return -1;
	const char *why = code == USMB_SYCL_EDEVICEID
	                          ? "SYCL's CUDA backend does not have that device, or the memory is "
	                            "not on it"
	                          : usmb_sycl_strerror(code);
	PyObject *kind = usmb_runtime_failed(code) ? PyExc_RuntimeError : PyExc_BufferError;
	if (ordinal == ORDINAL_HOST)
		usmb_raise(
		        kind,
		        "memory of CUDA at %p on DLPack device kDLCUDAHost (3, 0) cannot be imported: %s; or ask its "
		        "owner for a copy on the host",
		        address, why);
	else if (ordinal < 0)
		usmb_raise(kind, "memory of CUDA at %p cannot be imported: %s; or ask its owner for a copy on the host",
		           address, why);
	else
		usmb_raise(kind,
		           "memory of CUDA at %p on DLPack device kDLCUDA (2, %d) cannot be imported: %s; or ask its "
		           "owner "
		           "for a copy on the host",
		           address, ordinal, why);
	return -1;
}

int usmb_cuda_place(int32_t ordinal, const char *lo, const char *hi, usmb_place **out)
{
	if (usmb_go_allowed() < 0) return -1;
	/* Nothing drops owners that libraries of CUDA were shown in the background. */
	usmb_owner_settle(USMB_SETTLE_BOUND);
	int code = usmb_cuda_import(ordinal, lo, hi, out);
	if (code == USMB_SYCL_ENOLIB)
		code = usmb_open_sycl() == 0 ? usmb_cuda_import(ordinal, lo, hi, out) : USMB_SYCL_ENOCUDA;
	return code == USMB_SYCL_OK ? 0 : raise_cuda(code, ordinal, lo);
}

static int32_t ordinal_of(const usmb_dl_snapshot *s)
{
	return s->t.device.type == USMB_DL_CUDA_HOST ? ORDINAL_HOST : s->t.device.id;
}

static int cuda_place(const usmb_dl_snapshot *s, usmb_place **out)
{
	const char *first = s->span.first;
	return usmb_cuda_place(ordinal_of(s), first + s->span.lo, first + s->span.hi, out);
}

/* Memory for a tensor without elements and without an address on a SYCL device, because consumers
   of USM need an address. */
static usmb_cell *stand_in(const usmb_dl_device *device)
{
	usmb_cell *cell = NULL;
	usmb_goerr err;
	if (usmb_go_allowed() < 0) return NULL;
	PyThreadState *saved = usmb_py_release_gil();
	int r = usmb_go_alloc_for(device->type, device->id, 1, &cell, &err);
	usmb_py_acquire_gil(saved);
	if (r == 0) return cell;
	if (err.kind == USMB_ERR_VALUE) err.kind = USMB_ERR_BUFFER; /* the device does not exist */
	usmb_raise_go(&err);
	return NULL;
}

usmb_cell *usmb_cuda_stand_in(int32_t ordinal)
{
	usmb_dl_device device = {USMB_DL_ONEAPI, 0};
	int code = usmb_cuda_root(ordinal, &device.id);
	if (code == USMB_SYCL_ENOLIB)
		code = usmb_open_sycl() == 0 ? usmb_cuda_root(ordinal, &device.id) : USMB_SYCL_ENOCUDA;
	if (code == USMB_SYCL_OK) return stand_in(&device);
	(void)raise_cuda(code, ordinal, NULL);
	return NULL;
}

/* The cell of a tensor that this library exported, borrowed from the tensor; NULL for other tensors, and if the elements
   are not in its memory: the consumer may have changed the tensor. */
static usmb_cell *own_cell(void *managed, int versioned, const usmb_dl_snapshot *s)
{
	usmb_drop_fn drop;
	usmb_cell *cell = usmb_dl_owner(managed, versioned, &drop);
	if (drop != usmb_cell_drop && drop != usmb_cell_drop_observed) return NULL;
	const char *first = s->span.first;
	return usmb_cell_covers(cell, first + s->span.lo, first + s->span.hi) ? cell : NULL;
}

/* The cell of a tensor of USM that this library exported, retained, so that the memory has one record of pending work;
   NULL for other tensors. */
static usmb_cell *own_memory(void *managed, int versioned, const usmb_dl_snapshot *s)
{
	usmb_cell *cell = own_cell(managed, versioned, s);
	usmb_place *place = cell ? cell->place : NULL;
	if (!place) return NULL;
	if (is_cuda(s->t.device.type) ? !place->cuda || (ordinal_of(s) >= 0 && place->cuda - 1 != ordinal_of(s))
	                              : place->dl_error || place->dl_id != s->t.device.id)
		return NULL;
	usmb_cell_retain(cell);
	return cell;
}

/* The cell of memory that is known by another way, retained; NULL if there is none, if the memory can have another owner, or
   if it is read-only and the tensor is not. */
static usmb_cell *known_memory(const usmb_dl_snapshot *s, int64_t low, usmb_place *place)
{
	const char *first = s->span.first;
	usmb_cell *cell = usmb_cell_find(first + low, first + s->span.hi, place);
	if (!cell || usmb_cell_serves(cell, (s->flags & USMB_DL_FLAG_READ_ONLY) != 0)) return cell;
	usmb_cell_drop_gil(cell);
	return NULL;
}

/* A new cell that owns the tensor. */
static usmb_cell *managed_cell(void *managed, int versioned, const usmb_dl_snapshot *s, usmb_place *place)
{
	int64_t lo = usmb_dl_whole_elements(s->span.lo, s->span.itembits);
	usmb_cell *cell = usmb_cell_of_managed(managed, versioned, (char *)s->span.first + lo,
	                                       (uint64_t)(s->span.hi - lo), place);
	if (cell && s->flags & USMB_DL_FLAG_READ_ONLY)
		atomic_fetch_or_explicit(&cell->flags, USMB_CELL_READONLY, memory_order_relaxed);
	return cell;
}

/* The cell of a tensor in USM. If the memory has one already, the tensor is deleted. */
static usmb_cell *usm_cell(void *managed, int versioned, usmb_dl_snapshot *s)
{
	usmb_place *place;
	usmb_cell *cell;
	int cuda = is_cuda(s->t.device.type);
	if (usmb_go_allowed() < 0) return NULL;
	if (s->span.nelem == 0 && (cuda || !s->span.first)) {
		cell = cuda ? usmb_cuda_stand_in(ordinal_of(s)) : stand_in(&s->t.device);
		if (!cell) return NULL;
		s->span.first = cell->data;
		usmb_dl_delete(managed, versioned);
		return cell;
	}
	cell = own_memory(managed, versioned, s);
	if (cell) {
		usmb_dl_delete(managed, versioned);
		return cell;
	}
	if ((cuda ? cuda_place(s, &place) : oneapi_place(s, &place)) < 0) return NULL;
	cell = known_memory(s, usmb_dl_whole_elements(s->span.lo, s->span.itembits), place);
	if (cell) {
		usmb_place_release(place);
		usmb_dl_delete(managed, versioned);
		return cell;
	}
	cell = managed_cell(managed, versioned, s, place);
	if (!cell) {
		usmb_place_release(place);
	} else if (usmb_cell_enter(cell) < 0) {
		cell->ctx = NULL; /* the tensor is still the caller's */
		usmb_cell_drop_gil(cell);
		return NULL;
	}
	return cell;
}

usmb_cell *usmb_tensor_cell(void *managed, int versioned, usmb_dl_snapshot *s)
{
	if (s->t.device.type != USMB_DL_CPU) return usm_cell(managed, versioned, s);
	usmb_cell *cell = managed_cell(managed, versioned, s, NULL);
	if (!cell || !usmb_dl_is_own(managed, versioned)) return cell;
	/* USM that Go exported as memory of the host was not lent here. */
	usmb_cell *own = own_cell(managed, versioned, s);
	if (own && usmb_cell_record(own)->place) usmb_cell_alias(cell, own);
	return cell;
}

/* ---- capsules -------------------------------------------------------------------- */

static const char *const capsule_names[2] = {usmb_dl_name_legacy, usmb_dl_name_versioned};
static const char *const used_capsule_names[2] = {usmb_dl_name_legacy_used, usmb_dl_name_versioned_used};

/* The tensor in a capsule and its form; NULL with an exception. */
static void *open_capsule(PyObject *capsule, int *versioned)
{
	char type[64];
	if (!PyCapsule_CheckExact(capsule))
		return usmb_raise(PyExc_TypeError, "from_dlpack: __dlpack__ returned a %s, not a capsule",
		                  usmb_type_name(capsule, type, sizeof type));
	const char *name = PyCapsule_GetName(capsule);
	for (*versioned = 0; *versioned < 2; ++*versioned)
		if (name && !strcmp(name, capsule_names[*versioned])) return PyCapsule_GetPointer(capsule, name);
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
	void *managed = PyCapsule_CheckExact(capsule) ? PyCapsule_GetPointer(capsule, capsule_names[versioned]) : NULL;
	if (__builtin_expect(!managed, 0)) {
		PyErr_Clear();
		managed = open_capsule(capsule, &versioned);
	}
	/* Rename first: take may drop the GIL, and no other consumer must take the tensor
	   meanwhile. */
	if (!managed || PyCapsule_SetName(capsule, used_capsule_names[versioned]) != 0) return NULL;
	PyObject *a = take(managed, versioned, ctx);
	if (!a) PyCapsule_SetName(capsule, capsule_names[versioned]);
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

/* ---- the device ------------------------------------------------------------------- */

/* The type and the number of x's device; {CPU, 0} without __dlpack_device__. *type is -1 with an exception, -2 for -1. */
static void device_of(PyObject *x, int64_t *type, int64_t *id)
{
	*type = USMB_DL_CPU;
	*id = 0;
	if (PyCapsule_CheckExact(x)) return;
	PyObject *pair = PyObject_CallMethodObjArgs(x, usmb_name.__dlpack_device__, NULL);
	if (!pair) {
		if (PyErr_ExceptionMatches(PyExc_AttributeError))
			PyErr_Clear();
		else
			*type = -1;
		return;
	}
	PyObject *first = PySequence_GetItem(pair, 0);
	*type = first ? PyLong_AsLongLong(first) : -1;
	Py_XDECREF(first);
	if (*type == -1 && !PyErr_Occurred()) *type = -2;
	if (is_cuda(*type)) {
		PyObject *second = PySequence_GetItem(pair, 1);
		*id = second ? PyLong_AsLongLong(second) : -1;
		Py_XDECREF(second);
		if (PyErr_Occurred()) *type = -1;
	}
	Py_DECREF(pair);
}

/* Calls __dlpack__ of args[1] while its device of CUDA, -1 for other memory, is current: PyTorch refuses to export tensors
   of other devices, and orders its work on a stream of the current one. */
static PyObject *ask_on(int64_t cuda, PyObject **args, PyObject *kwnames)
{
	usmb_cuda_current current;
	usmb_cuda_enter(cuda, &current);
	PyObject *capsule =
	        PyObject_VectorcallMethod(usmb_name.__dlpack__, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
	usmb_cuda_leave(&current);
	return capsule;
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

/* The type of the device of a tensor, USMB_DL_CPU if it does not report one; -1 with an exception. */
/* For memory that only its owner can reach: the owner copies it to the host. */
static PyObject *tensor_take_on_host(PyObject *x, int64_t cuda, PyObject *copy, usmb_take_fn take, void *ctx)
{
	int64_t cpu[2] = {USMB_DL_CPU, 0};
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info || (is_torch(info) && check_negated(x) == -2)) return NULL;
	PyObject *device = usmb_tuple_i64(cpu, 2);
	if (!device) return NULL;
	PyObject *args[5] = {NULL, x, our_version, device, copy ? copy : Py_None};
	PyObject *capsule = ask_on(cuda, args, kw_full);
	Py_DECREF(device);
	if (!capsule) return NULL;
	return done_with(capsule, tensor_take_capsule(capsule, 1, take, ctx));
}

/* ==== from_dlpack ============================================================================= */

static PyObject *refuse_device(const usmb_dl_tensor *t)
{
	const char *name = usmb_dl_device_name(t->device.type);
	return usmb_raise(
	        PyExc_BufferError,
	        "from_dlpack: the tensor is on device (%d, %d)%s%s; only kDLCPU (1), kDLOneAPI (14) and "
	        "memory of CUDA (2, 3, 13) can be imported without a copy: ask its owner for a copy on the host",
	        t->device.type, t->device.id, name ? " " : "", name ? name : "");
}

/* Makes the array of a snapshot that passed the checks and is on a supported device. */
static PyObject *array_of(void *managed, int versioned, usmb_dl_snapshot *s)
{
	usmb_array *a = usmb_array_laid_out(s->t.ndim, s->shape, s->strides);
	if (!a) return NULL;
	usmb_cell *cell = usmb_tensor_cell(managed, versioned, s);
	if (!cell) {
		Py_DECREF(a);
		return NULL;
	}
	uint32_t extra = (s->flags & USMB_DL_FLAG_READ_ONLY ? USMB_ARR_READONLY : 0) |
	                 (s->flags & USMB_DL_FLAG_SUBBYTE_PADDED ? USMB_ARR_PADDED : 0);
	usmb_array_settle_as(a, cell, s->t.dtype, extra, &s->span);
	return usmb_array_counted(a);
}

/* Whether tensors of o (NULL: unknown) without flags are writable. The legacy form cannot mark
   read-only memory, and jax exports immutable arrays in it. Our own tensors are writable, and so
   are those of types that do not export read-only memory in this form. */
static int writable_legacy(const void *managed, PyObject *o)
{
	if (usmb_dl_is_own(managed, 0)) return 1;
	const usmb_typeinfo *info = o && !PyCapsule_CheckExact(o) ? usmb_typeinfo_of(o) : NULL;
	if (!info) PyErr_Clear();
	return info &&
	       (info->kind == USMB_KIND_LEGACY || info->kind == USMB_KIND_WRITABLE || info->kind == USMB_KIND_TORCH);
}

/* Imports a managed tensor of o (NULL: unknown); takes it over on success only. */
static PyObject *import_from(void *managed, int versioned, PyObject *o)
{
	usmb_dl_snapshot s;
	char text[512];
	if (!managed) return usmb_raise(PyExc_BufferError, "from_dlpack: the tensor is NULL");
	int code = usmb_dl_read_managed(managed, versioned, &s);
	if (__builtin_expect(code == USMB_DL_OK, 1)) {
		if (!versioned && !writable_legacy(managed, o)) s.flags |= USMB_DL_FLAG_READ_ONLY;
		int known =
		        s.t.device.type == USMB_DL_CPU || s.t.device.type == USMB_DL_ONEAPI || is_cuda(s.t.device.type);
		return known ? array_of(managed, versioned, &s) : refuse_device(&s.t);
	}
	return usmb_raise(PyExc_BufferError, "from_dlpack: %s", usmb_dl_explain_snapshot(code, &s, text, sizeof text));
}

/* ctx is the producer. */
static PyObject *take_array(void *managed, int versioned, void *ctx)
{
	return import_from(managed, versioned, ctx);
}

/* Imports an Array as a view. It must be one that DLPack can describe, as if it came from another
   library. */
static PyObject *import_own(usmb_array *a)
{
	usmb_dl_device dev;
	if (!usmb_array_alive(a) || usmb_array_check_aligned(a) < 0 || usmb_array_device(a, &dev) < 0) return NULL;
	return usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
}

/* Types with an exchange API report the queue that they work on; neither that API nor their
   __dlpack__ waits for it. */
static PyObject *note_stream(const usmb_dl_exchange_api *api, PyObject *o)
{
	usmb_array *a = (usmb_array *)o;
	void *queue = NULL;
	usmb_dl_device dev;
	if (!api->current_work_stream) return o;
	if (usmb_array_device(a, &dev) == 0 && api->current_work_stream(dev.type, dev.id, &queue) == 0 && queue)
		(void)usmb_array_seen_on(a, queue);
	if (!PyErr_Occurred()) return o;
	Py_DECREF(o);
	return NULL;
}

/* dpnp's arrays report the queue that works on them, and their __dlpack__ does not wait. The new
   array gets that queue, so that readers wait for it, unless it is in another context. */
static PyObject *note_producer(PyObject *x, PyObject *o)
{
	usmb_array *a = (usmb_array *)o;
	usmb_syclref ref;
	PyObject *queue = PyObject_GetAttr(x, usmb_name.sycl_queue), *named = NULL;
	if (queue && usmb_syclref_get(queue, &ref, "sycl_queue") == 0) {
		usmb_place *place = usmb_array_place(a);
		if (ref.form == USMB_FORM_QUEUE && usmb_syclref_in_context(&ref, place))
			usmb_queue_of(&ref, place, &named);
		usmb_syclref_release(&ref, 0);
	}
	Py_XDECREF(queue);
	int ended = usmb_ignore_exception();
	usmb_array_name_queue(a, named);
	if (ended == 0 && usmb_array_imported_on_queue(a) == 0) return o;
	Py_DECREF(o);
	return NULL;
}

int usmb_cuda_arrived(usmb_array *a, uintptr_t stream)
{
	usmb_place *place = usmb_array_place(a);
	usmb_array_hold(a);
	PyThreadState *saved = usmb_py_release_gil();
	int code = usmb_cuda_wait(place, stream);
	usmb_py_acquire_gil(saved);
	usmb_array_unhold(a);
	return usmb_wait_result(code);
}

/* Imports a tensor of CUDA. Its producer orders its work before the legacy default stream, for which the
   host waits. PyTorch orders nothing unless it is given a stream, and neither does its exchange API. */
static PyObject *import_cuda(PyObject *x, int64_t ordinal)
{
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info || (is_torch(info) && check_negated(x) == -2)) return NULL;
	PyObject *args[4] = {NULL, x, legacy_stream, our_version};
	PyObject *capsule = ask_on(ordinal, args, kw_stream);
	if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		capsule = ask_on(ordinal, args, kw_stream_only);
	}
	if (!capsule) return NULL;
	PyObject *a = done_with(capsule, tensor_take_capsule(capsule, 1, take_array, x));
	if (!a || !((usmb_array *)a)->cell->place || usmb_cuda_arrived((usmb_array *)a, 1) == 0) return a;
	usmb_decref_aside(a);
	return NULL;
}

static int has_stream(int64_t type)
{
	return type == USMB_DL_CUDA || type == USMB_DL_CUDA_MANAGED;
}

/* The import of x failed before SYCL was open, with the exception that is set. A producer of CUDA may have refused because
   its device was not current. */
static PyObject *retry_cuda(PyObject *x)
{
	PyObject *type, *value, *trace;
	int64_t device, id;
	PyErr_Fetch(&type, &value, &trace);
	device_of(x, &device, &id);
	int retry = has_stream(device) && usmb_open_sycl() == 0 && usmb_cuda_present();
	PyObject *a = retry ? import_cuda(x, id) : NULL;
	if (retry || usmb_clear_exception() < 0) {
		Py_XDECREF(type);
		Py_XDECREF(value);
		Py_XDECREF(trace);
		return a;
	}
	PyErr_Restore(type, value, trace);
	return NULL;
}

PyObject *usmb_import_object(PyObject *x)
{
	if (usmb_is_array(x)) return import_own((usmb_array *)x);
	if (usmb_object_allowed(x) < 0) return NULL;
	int present = usmb_cuda_present();
	int64_t type = -2, id = -1;
	if (__builtin_expect(present, 0)) {
		device_of(x, &type, &id);
		if (type == -1 && usmb_clear_exception() < 0) return NULL; /* __dlpack__ raises the others */
		if (has_stream(type)) return import_cuda(x, id);
	}
	PyObject *o = usmb_tensor_take(x, take_array, x);
	if (!o && !present && PyErr_ExceptionMatches(PyExc_BufferError)) return retry_cuda(x);
	if (!o || !((usmb_array *)o)->cell->place || PyCapsule_CheckExact(x)) return o;
	/* A tensor of CUDA whose import opened SYCL, or of host memory: it has no queue, and every access waits for all
	   streams. */
	if ((!present || type == USMB_DL_CUDA_HOST) && usmb_cuda_shown(usmb_array_place((usmb_array *)o))) return o;
	const usmb_typeinfo *info = usmb_typeinfo_of(x);
	if (!info) {
		Py_DECREF(o);
		return NULL;
	}
	if (info->api) return note_stream(info->api, o);
	return info->kind == USMB_KIND_TENSOR || info->kind == USMB_KIND_DPNP_ARRAY ? note_producer(x, o) : o;
}

/* Takes over a, which may be NULL. */
static PyObject *adapted(PyObject *a, const usmb_where *w, int copy)
{
	PyObject *r = a ? usmb_adapt((usmb_array *)a, NULL, w, copy, PyExc_BufferError) : NULL;
	Py_XDECREF(a);
	return r;
}

/* Imports an Array to a place, or a copy of it. Memory that DLPack cannot describe can be read on the host, and copied
   to memory that DLPack can describe, as __dlpack__ does if it is asked for a device or a copy. */
static PyObject *from_own(usmb_array *a, const usmb_where *w, int copy)
{
	usmb_place *place = usmb_array_place(a);
	if (!place || place->dl_error == 0 || (!w && copy != 1)) return adapted(import_own(a), w, copy);
	if (!usmb_array_alive(a) || usmb_array_check_aligned(a) < 0) return NULL;
	return w ? usmb_adapt(a, NULL, w, copy, PyExc_BufferError) : usmb_copy_for(a, NULL);
}

/* Imports a tensor of another producer as plain memory. The producer exports or copies memory that cannot be imported:
   memory of other devices, and USM that DLPack cannot describe. Failed work is an error of the import, too. argument: the
   copy argument. */
static PyObject *from_other_on_host(PyObject *x, PyObject *argument, const usmb_where *w, int copy)
{
	PyObject *type, *value, *trace;
	int64_t device, id;
	device_of(x, &device, &id);
	if (device == -1) return NULL;
	int64_t cuda = is_cuda(device) ? id : -1;
	if (device != USMB_DL_CPU && device != USMB_DL_ONEAPI && (cuda < 0 || !usmb_cuda_present()))
		return tensor_take_on_host(x, cuda, argument, take_array, x);
	PyObject *a = usmb_import_object(x);
	if (a || device == USMB_DL_CPU || !PyErr_ExceptionMatches(PyExc_Exception) ||
	    (cuda >= 0 && PyErr_ExceptionMatches(PyExc_RuntimeError)))
		return adapted(a, w, copy);
	PyErr_Fetch(&type, &value, &trace);
	a = tensor_take_on_host(x, cuda, argument, take_array, x);
	if (!a && usmb_clear_exception() == 0) {
		PyErr_Restore(type, value, trace);
		return NULL;
	}
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	return a;
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
	int copy = usmb_parse_copy(v[2]), has_device = usmb_given(v[1]);
	if (copy < 0) return NULL;
	if (has_device && usmb_parse_device(v[1], &w) < 0) return NULL;
	PyObject *r = NULL;
	if (usmb_is_array(v[0]))
		r = from_own((usmb_array *)v[0], has_device ? &w : NULL, copy);
	else if (has_device && w.host)
		r = from_other_on_host(v[0], v[2], &w, copy);
	else
		r = adapted(usmb_import_object(v[0]), has_device ? &w : NULL, copy);
	usmb_where_clear(&w);
	return r;
}

/* ==== The C exchange API ====================================================================== */

/* The allocation can wait for memory that another thread must free with the GIL. */
static int go_alloc_for(const usmb_dl_tensor *t, int64_t bytes, usmb_cell **cell, usmb_goerr *err)
{
	PyThreadState *saved = usmb_py_holds_gil() ? usmb_py_release_gil() : NULL;
	int r = usmb_go_alloc_for(t->device.type, t->device.id, bytes, cell, err);
	if (saved) usmb_py_acquire_gil(saved);
	return r;
}

static int block_in_child(int64_t bytes, usmb_cell **cell, usmb_goerr *err)
{
	PyGILState_STATE state = PyGILState_Ensure();
	*cell = usmb_new_block(bytes);
	if (!*cell) PyErr_Clear();
	PyGILState_Release(state);
	err->kind = USMB_ERR_MEMORY;
	snprintf(err->message, sizeof err->message, "no memory for %lld bytes on the host", (long long)bytes);
	return *cell ? 0 : -1;
}

/* Allocates an array like the prototype. May run without the GIL. Errors go through set_error, as
   the standard requires. */
static int allocate(usmb_dl_tensor *proto, usmb_dl_versioned **out, void *error_ctx, usmb_dl_set_error set_error)
{
	usmb_goerr err;
	usmb_cell *cell = NULL;
	void *managed = NULL;
	usmb_dl_tensor asked = *proto;
	usmb_dl_snapshot s;
	char text[512];
	asked.strides = NULL;
	asked.byte_offset = 0;
	/* Check the layout with a dummy address before allocating. */
	asked.data = (void *)(uintptr_t)4096;
	int code = usmb_dl_read(&asked, 0, &s);
	if (code != USMB_DL_OK) {
		set_error(error_ctx, "BufferError", usmb_dl_explain_snapshot(code, &s, text, sizeof text));
		return -1;
	}
	usmb_dl_tensor t = s.t;
	if (usmb_py_in_child() && t.device.type != USMB_DL_CPU) {
		set_error(error_ctx, "RuntimeError",
		          "usmbridge: USM cannot be allocated in a forked child process; start it afresh (spawn)");
		return -1;
	}
	int r = usmb_py_in_child() ? block_in_child(s.span.hi, &cell, &err) : go_alloc_for(&t, s.span.hi, &cell, &err);
	if (r < 0) {
		set_error(error_ctx, err.kind == USMB_ERR_MEMORY ? "MemoryError" : "BufferError", err.message);
		return -1;
	}
	t.data = cell->data;
	code = usmb_dl_export(&t, 0, 1, usmb_cell_drop, cell, &managed);
	if (code != USMB_DL_OK) {
		usmb_cell_drop(cell);
		set_error(error_ctx, code == USMB_DL_ENOMEM ? "MemoryError" : "BufferError",
		          usmb_dl_explain(code, &t, text, sizeof text));
		return -1;
	}
	*out = managed;
	return 0;
}

static int wrong_type(void *o)
{
	char type[64];
	usmb_raise(PyExc_TypeError, "the exchange API of usmbridge.Array was given a %s",
	           usmb_type_name(o, type, sizeof type));
	return -1;
}

/* Readers of memory of the host have no stream that orders them. */
static int wait_for_host(usmb_array *a, usmb_dl_device dev)
{
	return dev.type == USMB_DL_CPU && usmb_cell_record(a->cell)->place ? usmb_array_wait(a) : 0;
}

static int from_object(void *o, usmb_dl_versioned **out)
{
	usmb_dl_device dev;
	usmb_array *a = o;
	void *managed;
	if (!usmb_is_array(o)) return wrong_type(o);
	if (!usmb_array_alive(a)) return -1;
	if (usmb_array_device(a, &dev) < 0 || wait_for_host(a, dev) < 0) return -1;
	if (!usmb_array_alive(a) || export_array(a, dev, usmb_array_dlflags(a), 1, &managed) < 0) return -1;
	*out = managed;
	return 0;
}

/* Takes over the tensor on success only, as other implementations of this function do and callers
   expect. */
static int to_object(usmb_dl_versioned *tensor, void **out)
{
	*out = import_from(tensor, 1, NULL);
	return *out ? 0 : -1;
}

static int borrow(void *o, usmb_dl_tensor *out)
{
	usmb_array *a = o;
	usmb_dl_device dev;
	if (!usmb_is_array(o)) return wrong_type(o);
	if (!usmb_array_alive(a)) return -1;
	if (usmb_array_check_aligned(a) < 0 || usmb_array_allowed(a) < 0 || usmb_array_device(a, &dev) < 0) return -1;
	if (wait_for_host(a, dev) < 0 || !usmb_array_alive(a)) return -1;
	int64_t lo = 0, hi;
	if (dev.type == USMB_DL_ONEAPI) {
		usmb_array_range(a, &lo, &hi);
		if (usmb_array_address_shown(a) < 0) return -1;
	}
	out->data = a->nelem == 0 && dev.type == USMB_DL_CPU ? NULL : a->first + lo;
	out->device = dev;
	out->ndim = a->ndim;
	out->dtype = a->dtype;
	out->shape = a->ndim ? usmb_shape(a) : NULL;
	out->strides = a->ndim ? usmb_strides(a) : NULL;
	out->byte_offset = (uint64_t)-lo; /* kDLOneAPI: data is the lowest address */
	usmb_array_show(a);
	return 0;
}

/* The current queue for kDLOneAPI is the one that this library uses for the device. */
static int work_stream(int32_t device_type, int32_t device_id, void **out)
{
	*out = NULL;
	if (device_type != USMB_DL_ONEAPI) return 0;
	if (usmb_go_allowed() < 0) return -1;
	int code = usmb_sycl_current_queue(device_id, out);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(PyExc_BufferError, "no queue for DLPack device (14, %d): %s", device_id, usmb_sycl_strerror(code));
	return -1;
}

static usmb_dl_exchange_api api = {
        {{USMB_DL_MAJOR, USMB_DL_MINOR}, NULL}, allocate, from_object, to_object, borrow, work_stream,
};

int usmb_dlpack_register(void)
{
	int64_t v[2] = {USMB_DL_MAJOR, USMB_DL_MINOR};
	our_version = usmb_tuple_i64(v, 2);
	kw_version = PyTuple_Pack(1, usmb_name.max_version);
	kw_full = PyTuple_Pack(3, usmb_name.max_version, usmb_name.dl_device, usmb_name.copy);
	kw_stream = PyTuple_Pack(2, usmb_name.stream, usmb_name.max_version);
	kw_stream_only = PyTuple_Pack(1, usmb_name.stream);
	legacy_stream = PyLong_FromLong(1);
	if (!our_version || !kw_version || !kw_full || !kw_stream || !kw_stream_only || !legacy_stream) return -1;
	PyObject *capsule = PyCapsule_New(&api, usmb_dl_name_exchange_api, NULL);
	if (!capsule) return -1;
	int r = PyObject_SetAttr((PyObject *)usmb_array_type, usmb_name.__dlpack_c_exchange_api__, capsule);
	Py_DECREF(capsule);
	return r;
}
