/* sycl.c: SYCL devices, queues and contexts as Python objects: the type Device, dpctl's
   classes where dpctl is loaded, and the six forms of a syclobj. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "sycl.h"

/* ==== Device ================================================================================== */

typedef struct {
	PyObject_HEAD PyObject *filter; /* str */
	usmb_device_info info;
} device;

static PyTypeObject *device_type;
/* Devices by filter string, made on demand. */
static PyObject *by_filter;

static void device_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	Py_XDECREF(((device *)self)->filter);
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *device_repr(PyObject *self)
{
	device *d = (device *)self;
	return PyUnicode_FromFormat("Device(\"%s\", \"%s\")", d->info.filter, d->info.name);
}

static PyObject *device_str(PyObject *self)
{
	return Py_NewRef(((device *)self)->filter);
}

/* A Device equals another Device of the same filter string, and that string. */
static PyObject *device_compare(PyObject *a, PyObject *b, int op)
{
	PyObject *other = Py_TYPE(b) == device_type ? ((device *)b)->filter : PyUnicode_Check(b) ? b : NULL;
	if (!other || (op != Py_EQ && op != Py_NE)) return Py_NewRef(Py_NotImplemented);
	return PyObject_RichCompare(((device *)a)->filter, other, op);
}

static Py_hash_t device_hash(PyObject *self)
{
	return PyObject_Hash(((device *)self)->filter);
}

/* The getter of an attribute that is an expression of the device d. */
#define ATTRIBUTE(name, expression) \
	static PyObject *get_##name(PyObject *self, void *closure __attribute__((unused))) \
	{ \
		device *d = (device *)self; \
		return expression; \
	}
ATTRIBUTE(filter_string, Py_NewRef(d->filter))
ATTRIBUTE(name, PyUnicode_DecodeUTF8(d->info.name, (Py_ssize_t)strlen(d->info.name), "replace"))
ATTRIBUTE(backend, PyUnicode_FromString(d->info.backend))
ATTRIBUTE(device_type, PyUnicode_FromString(d->info.type))
ATTRIBUTE(global_mem_size, PyLong_FromUnsignedLongLong(d->info.memory))

static PyObject *get_dlpack_device(PyObject *self, void *closure __attribute__((unused)))
{
	usmb_device_info *i = &((device *)self)->info;
	int64_t pair[2] = {i->dl_type, i->dl_id};
	if (!i->has_dl) Py_RETURN_NONE;
	return usmb_tuple_i64(pair, 2);
}

static PyGetSetDef getset[] = {
        {"filter_string", get_filter_string, NULL, NULL, NULL},
        {"name", get_name, NULL, NULL, NULL},
        {"backend", get_backend, NULL, NULL, NULL},
        {"device_type", get_device_type, NULL, NULL, NULL},
        {"dlpack_device", get_dlpack_device, NULL, NULL, NULL},
        {"global_mem_size", get_global_mem_size, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
        {Py_tp_dealloc, device_dealloc},
        {Py_tp_repr, device_repr},
        {Py_tp_str, device_str},
        {Py_tp_richcompare, device_compare},
        {Py_tp_hash, device_hash},
        {Py_tp_getset, getset},
        {Py_tp_doc, NULL},
        {0, NULL},
};
static PyType_Spec spec = {"usmbridge.Device", sizeof(device), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int usmb_device_register(PyObject *module)
{
	device_type = usmb_new_type(&spec);
	by_filter = PyDict_New();
	if (!device_type || !by_filter) return -1;
	return PyModule_AddObjectRef(module, "Device", (PyObject *)device_type);
}

/* The str of a Device, borrowed; NULL for other objects. */
static PyObject *device_filter(PyObject *o)
{
	return Py_TYPE(o) == device_type ? ((device *)o)->filter : NULL;
}

/* The Device of an entry, one object for each filter string. */
static PyObject *device_for(const usmb_device_info *info)
{
	PyObject *key = PyUnicode_FromString(info->filter);
	if (!key) return NULL;
	PyObject *known = PyDict_GetItemWithError(by_filter, key);
	if (known || PyErr_Occurred()) {
		Py_DECREF(key);
		Py_XINCREF(known);
		return known;
	}
	device *d = PyObject_Malloc(sizeof *d);
	if (!d) {
		Py_DECREF(key);
		return PyErr_NoMemory();
	}
	PyObject_Init((PyObject *)d, device_type);
	d->filter = key;
	d->info = *info;
	if (PyDict_SetItem(by_filter, key, (PyObject *)d) == 0) return (PyObject *)d;
	Py_DECREF(d);
	return NULL;
}

PyObject *usmb_py_devices(PyObject *m, PyObject *unused)
{
	usmb_device_info *list = NULL;
	int64_t n = 0;
	(void)m;
	(void)unused;
	if (usmb_go_allowed() < 0) return NULL;
	USMB_GO(usmb_go_devices(&list, &n, &err));
	PyObject *out = r < 0 ? NULL : PyList_New((Py_ssize_t)n);
	for (int64_t i = 0; i < n && out; i++) {
		PyObject *d = device_for(&list[i]);
		if (d)
			PyList_SetItem(out, (Py_ssize_t)i, d);
		else
			Py_CLEAR(out);
	}
	free(list);
	return out;
}

/* The Device of the host backend in a forked child, where Go cannot describe it. */
static PyObject *host_device(void)
{
	usmb_device_info info = {.filter = "host", .name = "Go host backend", .backend = "host", .type = "host"};
	info.memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	info.has_dl = 1;
	info.dl_type = USMB_DL_CPU;
	return device_for(&info);
}

static PyObject *device_named(const char *filter)
{
	PyObject *d = PyDict_GetItemString(by_filter, filter);
	if (d) return Py_NewRef(d);
	if (usmb_py_in_child() && strcmp(filter, "host") == 0) return host_device();
	PyObject *all = usmb_py_devices(NULL, NULL); /* fills the dictionary */
	if (!all) return NULL;
	Py_DECREF(all);
	d = PyDict_GetItemString(by_filter, filter);
	if (d) return Py_NewRef(d);
	return usmb_raise(PyExc_RuntimeError, "the device \"%s\" is not in the list of devices any more", filter);
}

PyObject *usmb_device_of_place(usmb_place *place)
{
	return device_named(place && place->filter ? place->filter : "host");
}

/* ==== dpctl =================================================================================== */

/* dpctl, if this process has loaded it. This file never imports it. */

/* Functions that dpctl publishes, which return the reference in its objects. They are called with
   exactly these types. Filled in when the first such object is seen. */
typedef void *(*ref_of)(PyObject *);
static struct {
	PyTypeObject *type; /* owned */
	ref_of get;
} dpctl_queue, dpctl_context;

static ref_of capi_function(PyObject *module, const char *name)
{
	PyObject *capi = PyObject_GetAttrString(module, "__pyx_capi__");
	PyObject *capsule = capi ? PyMapping_GetItemString(capi, name) : NULL;
	void *p = capsule && PyCapsule_CheckExact(capsule) ? PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))
	                                                   : NULL;
	Py_XDECREF(capi);
	Py_XDECREF(capsule);
	PyErr_Clear();
	return (ref_of)p;
}

static PyObject *loaded(const char *module)
{
	PyObject *key = PyUnicode_FromString(module);
	PyObject *m = key ? PyImport_GetModule(key) : NULL;
	Py_XDECREF(key);
	return m;
}

/* Fills in a type if o is of that class of a dpctl module. */
static void learn(PyObject *o, const char *module, const char *class, const char *function, PyTypeObject **type,
                  ref_of *get)
{
	PyObject *m = loaded(module);
	PyObject *t = m ? PyObject_GetAttrString(m, class) : NULL;
	ref_of f = t && t == (PyObject *)Py_TYPE(o) ? capi_function(m, function) : NULL;
	PyErr_Clear();
	if (f) {
		*type = (PyTypeObject *)Py_NewRef(t);
		*get = f;
	}
	Py_XDECREF(t);
	Py_XDECREF(m);
}

/* 1 if o is exactly a dpctl.SyclQueue or dpctl.SyclContext: which of them, and its reference,
   borrowed from o. 0 otherwise; -1 with an exception that must end the call. Called for every object, so
   known types cost a comparison of pointers. */
static int dpctl_ref(PyObject *o, int *is_queue, void **ref)
{
	PyTypeObject *type = Py_TYPE(o);
	if (!dpctl_queue.type || !dpctl_context.type) {
		const usmb_typeinfo *info = usmb_typeinfo_of(o);
		int kind = info ? info->kind : USMB_KIND_PLAIN;
		if (!info && usmb_clear_exception() < 0) return -1;
		if (kind == USMB_KIND_QUEUE && !dpctl_queue.type)
			learn(o, "dpctl._sycl_queue", "SyclQueue", "SyclQueue_GetQueueRef", &dpctl_queue.type,
			      &dpctl_queue.get);
		if (kind == USMB_KIND_CONTEXT && !dpctl_context.type)
			learn(o, "dpctl._sycl_context", "SyclContext", "SyclContext_GetContextRef", &dpctl_context.type,
			      &dpctl_context.get);
	}
	*is_queue = type == dpctl_queue.type;
	if (!*is_queue && type != dpctl_context.type) return 0;
	*ref = *is_queue ? dpctl_queue.get(o) : dpctl_context.get(o);
	return *ref != NULL;
}

void *usmb_event_ref(PyObject *o)
{
	static PyTypeObject *type; /* owned: dpctl.SyclEvent */
	static ref_of get;
	if (!type) learn(o, "dpctl._sycl_event", "SyclEvent", "SyclEvent_GetEventRef", &type, &get);
	return type == Py_TYPE(o) ? get(o) : NULL;
}

/* ---- dpctl's memory objects ----------------------------------------------------------- */

enum { SORTS = 3 };
static struct {
	PyTypeObject *types[SORTS]; /* owned; NULL: not seen yet */
	void *(*pointer)(PyObject *);
	size_t (*bytes)(PyObject *);
} dpctl_memory;

/* Fills in the type of o if it is one of dpctl's own. */
static int learn_memory(PyObject *o)
{
	static const char *const names[SORTS] = {"MemoryUSMDevice", "MemoryUSMShared", "MemoryUSMHost"};
	const usmb_typeinfo *info = usmb_typeinfo_of(o);
	if (usmb_clear_exception() < 0 || !info || info->kind != USMB_KIND_DPCTL_MEMORY) return 0;
	PyObject *m = loaded("dpctl.memory._memory");
	if (m && !dpctl_memory.pointer) {
		ref_of bytes = capi_function(m, "Memory_GetNumBytes");
		memcpy(&dpctl_memory.bytes, &bytes, sizeof bytes);
		if (bytes) dpctl_memory.pointer = capi_function(m, "Memory_GetUsmPointer");
	}
	int found = 0;
	for (int i = 0; m && dpctl_memory.pointer && i < SORTS && !found; i++) {
		PyObject *t = PyObject_GetAttrString(m, names[i]);
		found = t == (PyObject *)Py_TYPE(o);
		if (found && !dpctl_memory.types[i]) dpctl_memory.types[i] = (PyTypeObject *)Py_NewRef(t);
		Py_XDECREF(t);
	}
	Py_XDECREF(m);
	PyErr_Clear();
	return found;
}

int usmb_dpctl_memory(PyObject *o, uint64_t *address, uint64_t *bytes)
{
	PyTypeObject *const *t = dpctl_memory.types, *type = Py_TYPE(o);
	if (type != t[0] && type != t[1] && type != t[2] && !learn_memory(o)) return 0;
	*address = (uint64_t)(uintptr_t)dpctl_memory.pointer(o);
	*bytes = dpctl_memory.bytes(o);
	return 1;
}

/* ---- dpctl's classes and its queue of a device ---------------------------------------- */

PyObject *usmb_loaded_attribute(const char *module, const char *name)
{
	PyObject *m = loaded(module);
	PyObject *v = m ? PyObject_GetAttrString(m, name) : NULL;
	Py_XDECREF(m);
	if (!v && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
	return v;
}

/* The class "SyclQueue" or "SyclContext" of dpctl; NULL without an exception if dpctl is not loaded
   yet. */
static PyObject *dpctl_class(const char *name)
{
	return usmb_loaded_attribute("dpctl", name);
}

/* Calls a function of dpctl, which can change the current context of CUDA. */
static PyObject *call_dpctl(PyObject *function, PyObject *argument)
{
	usmb_cuda_current current;
	usmb_cuda_save(&current);
	PyObject *r = PyObject_CallFunctionObjArgs(function, argument, NULL);
	usmb_cuda_leave(&current);
	return r;
}

/* The one queue that dpctl keeps for the context and device of a SyclQueue; NULL without an
   exception if dpctl has no such store. */
static PyObject *dpctl_kept_queue(PyObject *queue)
{
	PyObject *get = usmb_loaded_attribute("dpctl._sycl_queue_manager", "get_device_cached_queue");
	if (!get) return NULL;
	PyObject *context = PyObject_GetAttrString(queue, "sycl_context");
	PyObject *device = context ? PyObject_GetAttrString(queue, "sycl_device") : NULL;
	PyObject *key = device ? PyTuple_Pack(2, context, device) : NULL;
	PyObject *kept = key ? call_dpctl(get, key) : NULL;
	Py_DECREF(get);
	Py_XDECREF(context);
	Py_XDECREF(device);
	Py_XDECREF(key);
	return kept;
}

/* ==== Forms of a syclobj ====================================================================== */

static const char queue_name[] = "SyclQueueRef";
static const char queue_used[] = "used_SyclQueueRef";
static const char context_name[] = "SyclContextRef";
static const char context_used[] = "used_SyclContextRef";

/* ---- usmbridge.SyclQueue and SyclContext -------------------------------------------- */

/* Objects for the queue or the context of a place. Users see them only where dpctl is not loaded. */

typedef struct {
	PyObject_HEAD usmb_place *place; /* retained: owns the context and a queue */
	void *queue;                     /* owned: a queue other than the place's, or NULL */
} sycl_object;

static PyTypeObject *queue_type, *context_type;

static void *sycl_object_ref(PyObject *self)
{
	sycl_object *l = (sycl_object *)self;
	if (Py_TYPE(self) == context_type) return l->place->context;
	return l->queue ? l->queue : l->place->queue;
}

/* The destructor frees the object under both names: a consumer renames the capsule after it has
   copied the object. */
static void end_queue(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);
	if (name && !usmb_py_in_child() && (!strcmp(name, queue_name) || !strcmp(name, queue_used)))
		usmb_sycl_queue_delete(PyCapsule_GetPointer(capsule, name));
}

static void end_context(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);
	if (name && !usmb_py_in_child() && (!strcmp(name, context_name) || !strcmp(name, context_used)))
		usmb_sycl_context_delete(PyCapsule_GetPointer(capsule, name));
}

static PyObject *sycl_object_capsule(PyObject *self, PyObject *unused)
{
	if (usmb_go_allowed() < 0) return NULL;
	int is_queue = Py_TYPE(self) == queue_type;
	void *own = sycl_object_ref(self);
	void *ref = !own ? NULL : is_queue ? usmb_sycl_queue_copy(own) : usmb_sycl_context_copy(own);
	(void)unused;
	if (!ref)
		return usmb_raise(PyExc_RuntimeError, "making a capsule of the array's %s: copying it: %s",
		                  is_queue ? "queue" : "context", usmb_sycl_strerror(USMB_SYCL_EFAILED));
	PyObject *capsule =
	        is_queue ? PyCapsule_New(ref, queue_name, end_queue) : PyCapsule_New(ref, context_name, end_context);
	if (!capsule) is_queue ? usmb_sycl_queue_delete(ref) : usmb_sycl_context_delete(ref);
	return capsule;
}

static void sycl_object_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	/* Deleting calls SYCL, which a forked child must not. */
	if (!usmb_py_in_child()) {
		usmb_sycl_queue_delete(((sycl_object *)self)->queue);
		usmb_place_release(((sycl_object *)self)->place);
	}
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *sycl_object_repr(PyObject *self)
{
	usmb_place *p = ((sycl_object *)self)->place;
	return PyUnicode_FromFormat("<usmbridge.%s on %s at %p>",
	                            Py_TYPE(self) == queue_type ? "SyclQueue" : "SyclContext",
	                            p->filter ? p->filter : "?", sycl_object_ref(self));
}

static PyObject *sycl_object_compare(PyObject *a, PyObject *b, int op)
{
	if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE)) return Py_NewRef(Py_NotImplemented);
	if (sycl_object_ref(a) != sycl_object_ref(b) && usmb_go_allowed() < 0) return NULL;
	int same = Py_TYPE(a) == queue_type ? usmb_sycl_queue_equal(sycl_object_ref(a), sycl_object_ref(b))
	                                    : usmb_sycl_context_equal(sycl_object_ref(a), sycl_object_ref(b));
	return PyBool_FromLong(same == (op == Py_EQ));
}

/* Equal objects are on the same root device. */
static Py_hash_t sycl_object_hash(PyObject *self)
{
	return ((sycl_object *)self)->place->root + 1024;
}

static PyObject *sycl_object_of(PyTypeObject *type, usmb_place *place);

static PyObject *sycl_object_context(PyObject *self, void *closure)
{
	(void)closure;
	return sycl_object_of(context_type, ((sycl_object *)self)->place);
}

static PyObject *sycl_object_device(PyObject *self, void *closure)
{
	(void)closure;
	return usmb_device_of_place(((sycl_object *)self)->place);
}

static PyMethodDef sycl_object_methods[] = {
        {"_get_capsule", USMB_PY_CFUNC(sycl_object_capsule), METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
};
static PyGetSetDef sycl_object_getset[] = {
        {"sycl_context", sycl_object_context, NULL, NULL, NULL},
        {"sycl_device", sycl_object_device, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

#define LIGHT_SLOTS \
	{ \
		{Py_tp_dealloc, sycl_object_dealloc}, {Py_tp_repr, sycl_object_repr}, \
		        {Py_tp_richcompare, sycl_object_compare}, {Py_tp_hash, sycl_object_hash}, \
		        {Py_tp_methods, sycl_object_methods}, {Py_tp_getset, sycl_object_getset}, {Py_tp_doc, NULL}, \
		{ \
			0, NULL \
		} \
	}
static PyType_Slot queue_slots[] = LIGHT_SLOTS;
static PyType_Slot context_slots[] = LIGHT_SLOTS;
static PyType_Spec queue_spec = {"usmbridge.SyclQueue", sizeof(sycl_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, queue_slots};
static PyType_Spec context_spec = {"usmbridge.SyclContext", sizeof(sycl_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, context_slots};

static PyObject *sycl_object_of(PyTypeObject *type, usmb_place *place)
{
	sycl_object *l = PyObject_Malloc(sizeof *l);
	if (!l) return PyErr_NoMemory();
	PyObject_Init((PyObject *)l, type);
	usmb_place_retain(place);
	l->place = place;
	l->queue = NULL;
	return (PyObject *)l;
}

PyObject *usmb_place_queue(usmb_place *place)
{
	return sycl_object_of(queue_type, place);
}

/* Returns the object of dpctl for a sycl_object object, if dpctl is loaded: consumers such as dpnp check for
   that exact type. Takes over the reference of l. */
static PyObject *as_dpctl(PyObject *l)
{
	if (!l) return NULL;
	PyObject *type = dpctl_class(Py_TYPE(l) == queue_type ? "SyclQueue" : "SyclContext");
	if (!type && !PyErr_Occurred()) return l;
	PyObject *capsule = type ? sycl_object_capsule(l, NULL) : NULL;
	PyObject *r = capsule ? call_dpctl(type, capsule) : NULL;
	Py_XDECREF(capsule);
	Py_XDECREF(type);
	Py_DECREF(l);
	return r;
}

PyObject *usmb_public_context(usmb_place *place)
{
	return usmb_go_allowed() < 0 ? NULL : as_dpctl(sycl_object_of(context_type, place));
}

/* ---- the queue of a place, if the caller passed none --------------------------------- */

/* A cache, under the GIL, of the objects that dpctl keeps for places, by the places' small ids.
   dpctl keeps them until the process ends. */
enum { KEPT = 16 };
static struct {
	uint64_t serial; /* of the place */
	PyObject *queue;
	void *context; /* owned: the context of the queue */
} kept[KEPT];

static void keep_at(unsigned at, uint64_t serial, PyObject *queue, void *context)
{
	PyObject *old = usmb_py_in_child() ? NULL : kept[at].queue;
	if (!usmb_py_in_child()) usmb_sycl_context_delete(kept[at].context);
	kept[at].serial = serial;
	kept[at].queue = queue;
	kept[at].context = context;
	Py_XDECREF(old);
}

static PyObject *find_queue(usmb_place *place, int *keep)
{
	PyObject *own = as_dpctl(sycl_object_of(queue_type, place));
	*keep = 0;
	if (!own || Py_TYPE(own) == queue_type) return own;
	PyObject *theirs = dpctl_kept_queue(own);
	*keep = theirs != NULL;
	if (!theirs && !PyErr_Occurred()) return own;
	Py_DECREF(own);
	return theirs;
}

int usmb_note_dpctl_queue(usmb_place *place)
{
	if (__builtin_expect(usmb_kept_queue(place) != NULL, 1)) return 1;
	if (usmb_py_in_child()) return 0;
	PyObject *m = PyImport_GetModule(usmb_name.dpctl);
	if (!m) return PyErr_Occurred() ? -1 : 0;
	Py_DECREF(m);
	PyObject *queue = usmb_public_queue(place);
	Py_XDECREF(queue);
	return queue ? usmb_kept_queue(place) != NULL : -1;
}

PyObject *usmb_kept_queue(const usmb_place *place)
{
	unsigned at = place->id % KEPT;
	return kept[at].serial == place->serial ? kept[at].queue : NULL;
}

PyObject *usmb_public_queue(usmb_place *place)
{
	PyObject *known = usmb_kept_queue(place);
	unsigned at = place->id % KEPT;
	int keep;
	if (usmb_go_allowed() < 0) return NULL;
	if (__builtin_expect(known != NULL, 1)) return Py_NewRef(known);
	PyObject *queue = find_queue(place, &keep);
	void *ref = queue ? usmb_queue_ref(queue) : NULL;
	if (ref && usmb_place_show(place, ref) != USMB_SYCL_OK) {
		Py_DECREF(queue);
		return usmb_raise(PyExc_RuntimeError, "recording the queue of the array's memory: %s",
		                  usmb_sycl_strerror(USMB_SYCL_EFAILED));
	}
	if (keep) keep_at(at, place->serial, Py_NewRef(queue), usmb_sycl_context_copy(place->context));
	return queue;
}

void *usmb_syclref_context(const usmb_syclref *r)
{
	if (r->context || r->form != USMB_FORM_QUEUE) return r->context;
	for (int i = 0; i < KEPT; i++)
		if (kept[i].queue == r->keep) return kept[i].context;
	return NULL;
}

/* Whether r is the queue that dpctl keeps for the context and device of place. */
static int is_kept(const usmb_syclref *r, usmb_place *place)
{
	unsigned at = place->id % KEPT;
	return kept[at].queue == r->keep && kept[at].serial == place->serial;
}

int usmb_syclref_in_context(const usmb_syclref *r, usmb_place *place)
{
	if (r->form == USMB_FORM_CONTEXT) return usmb_sycl_context_equal(r->ref, place->context);
	if (r->form == USMB_FORM_FILTER)
		return place->default_context && !place->is_subdevice && (size_t)r->nfilter == strlen(place->filter) &&
		       !memcmp(r->filter, place->filter, (size_t)r->nfilter);
	if (is_kept(r, place)) return 1;
	void *context = usmb_sycl_queue_context(r->ref);
	int same = context && usmb_sycl_context_equal(context, place->context);
	usmb_sycl_context_delete(context);
	return same;
}

int usmb_syclref_of_place(const usmb_syclref *r, usmb_place *place)
{
	if (!usmb_syclref_in_context(r, place)) return 0;
	if (place->kind != USMB_USM_HOST || r->form != USMB_FORM_QUEUE || is_kept(r, place)) return 1;
	void *device = usmb_sycl_queue_device(r->ref);
	int same = usmb_sycl_device_equal(device, place->device);
	usmb_sycl_device_delete(device);
	return same;
}

void usmb_syclref_clear(void)
{
	for (unsigned i = 0; i < KEPT; i++) keep_at(i, 0, NULL, NULL);
}

void *usmb_queue_ref(PyObject *queue)
{
	void *ref = NULL;
	int is_queue;
	if (Py_TYPE(queue) == queue_type) return sycl_object_ref(queue);
	return dpctl_ref(queue, &is_queue, &ref) > 0 ? ref : NULL;
}

int usmb_syclref_register(PyObject *module)
{
	queue_type = usmb_new_type(&queue_spec);
	context_type = queue_type ? usmb_new_type(&context_spec) : NULL;
	if (!context_type) return -1;
	if (PyModule_AddObjectRef(module, "SyclQueue", (PyObject *)queue_type) < 0) return -1;
	return PyModule_AddObjectRef(module, "SyclContext", (PyObject *)context_type);
}

/* ---- reading a syclobj ------------------------------------------------------------------ */

/* Reads a capsule; takes over keep. Returns 1 if it is not a queue or context capsule. */
static int from_capsule(PyObject *keep, usmb_syclref *out, const char *what)
{
	const char *name = PyCapsule_GetName(keep);
	if (!name) PyErr_Clear();
	if (name && !strcmp(name, queue_name))
		out->form = USMB_FORM_QUEUE;
	else if (name && !strcmp(name, context_name))
		out->form = USMB_FORM_CONTEXT;
	else {
		if (name && (!strcmp(name, queue_used) || !strcmp(name, context_used)))
			usmb_raise(PyExc_ValueError,
			           "%s: the capsule \"%s\" was consumed before; such a capsule can be used once", what,
			           name);
		else
			usmb_raise(PyExc_ValueError,
			           "%s: a capsule named \"%s\" is neither \"SyclQueueRef\" nor \"SyclContextRef\"",
			           what, name ? name : "");
		usmb_decref_aside(keep);
		return -1;
	}
	out->ref = PyCapsule_GetPointer(keep, name);
	if (out->form == USMB_FORM_CONTEXT) out->context = out->ref;
	out->keep = keep;
	out->capsule = 1;
	return 0;
}

static int refuse(PyObject *o, const char *what)
{
	char type[64];
	usmb_raise(PyExc_TypeError,
	           "%s must be a filter string, a SyclQueue, a SyclContext, a capsule \"SyclQueueRef\" or "
	           "\"SyclContextRef\", "
	           "or an object with _get_capsule(), not %s",
	           what, usmb_type_name(o, type, sizeof type));
	return -1;
}

/* Reads a filter string; takes over keep. */
static int from_filter(PyObject *keep, usmb_syclref *out)
{
	out->keep = keep;
	out->filter = PyUnicode_AsUTF8AndSize(keep, &out->nfilter);
	if (out->filter) {
		out->form = USMB_FORM_FILTER;
		return 0;
	}
	Py_CLEAR(out->keep);
	return -1;
}

int usmb_syclref_get(PyObject *o, usmb_syclref *out, const char *what)
{
	char type[64];
	memset(out, 0, sizeof *out);
	if (PyUnicode_Check(o)) return from_filter(Py_NewRef(o), out);
	if (usmb_go_allowed() < 0) return -1;
	int is_queue, found = dpctl_ref(o, &is_queue, &out->ref);
	if (found < 0) return -1;
	if (found) {
		out->form = is_queue ? USMB_FORM_QUEUE : USMB_FORM_CONTEXT;
		out->context = is_queue ? NULL : out->ref;
		out->keep = Py_NewRef(o);
		return 0;
	}
	if (Py_TYPE(o) == queue_type || Py_TYPE(o) == context_type) {
		out->form = Py_TYPE(o) == queue_type ? USMB_FORM_QUEUE : USMB_FORM_CONTEXT;
		out->ref = sycl_object_ref(o);
		out->context = ((sycl_object *)o)->place->context;
		out->keep = Py_NewRef(o);
		return 0;
	}
	if (PyCapsule_CheckExact(o)) return from_capsule(Py_NewRef(o), out, what);
	PyObject *capsule = PyObject_CallMethodObjArgs(o, usmb_name._get_capsule, NULL);
	if (!capsule) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
		PyErr_Clear();
		return refuse(o, what);
	}
	if (PyCapsule_CheckExact(capsule)) return from_capsule(capsule, out, what);
	usmb_raise(PyExc_TypeError, "%s: _get_capsule() returned a %s, not a capsule", what,
	           usmb_type_name(capsule, type, sizeof type));
	Py_DECREF(capsule);
	return -1;
}

/* Reads a dpctl.SyclDevice. Sub-devices have no filter string. */
static int from_sycl_device(PyObject *o, usmb_syclref *out, const char *what)
{
	PyObject *filter = PyObject_GetAttr(o, usmb_name.filter_string);
	if (filter && PyUnicode_Check(filter)) return from_filter(filter, out);
	Py_XDECREF(filter);
	if (!filter && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
	PyErr_Clear();
	usmb_raise(PyExc_ValueError,
	           "%s: the SyclDevice has no filter string, because sub-devices have none; give a SyclQueue on it",
	           what);
	return -1;
}

static int no_device(PyObject *o, const char *what)
{
	char type[64];
	usmb_raise(PyExc_TypeError,
	           "%s must be a filter string such as \"opencl:cpu:0\" or \"host\", a Device, a dpctl.SyclDevice, a "
	           "SyclQueue or a Device of dpnp, not %s",
	           what, usmb_type_name(o, type, sizeof type));
	return -1;
}

int usmb_is_device(PyObject *o)
{
	if (device_filter(o)) return 1;
	const usmb_typeinfo *info = usmb_typeinfo_of(o);
	if (usmb_clear_exception() < 0) return -1;
	return info && (info->kind == USMB_KIND_DEVICE || info->kind == USMB_KIND_ARRAY_DEVICE);
}

int usmb_syclref_device(PyObject *o, usmb_syclref *out, const char *what)
{
	PyObject *filter = device_filter(o), *queue = NULL;
	memset(out, 0, sizeof *out);
	if (!filter && PyUnicode_Check(o)) filter = o;
	if (filter) return from_filter(Py_NewRef(filter), out);
	if (usmb_go_allowed() < 0) return -1;
	const usmb_typeinfo *info = usmb_typeinfo_of(o);
	if (!info) return -1;
	if (info->kind == USMB_KIND_DEVICE) return from_sycl_device(o, out, what);
	if (info->kind == USMB_KIND_ARRAY_DEVICE) {
		queue = PyObject_GetAttr(o, usmb_name.sycl_queue);
		if (!queue) return -1;
	} else {
		PyObject *capsule = usmb_optional_attr(o, usmb_name._get_capsule);
		if (!capsule) return PyErr_Occurred() ? -1 : no_device(o, what);
		Py_DECREF(capsule);
		queue = Py_NewRef(o);
	}
	int r = usmb_syclref_get(queue, out, what);
	Py_DECREF(queue);
	if (r == 0 && out->form != USMB_FORM_QUEUE) {
		usmb_syclref_release(out, 0);
		r = no_device(o, what);
	}
	return r;
}

/* Finding the device takes less than a microsecond and keeps the GIL; loading SYCL drops it. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue)
{
	usmb_goerr err;
	*queue = r->form == USMB_FORM_QUEUE ? r->ref : NULL;
	if (r->form != USMB_FORM_FILTER) return 0;
	if (!usmb_sycl_loaded() && usmb_open_sycl() < 0 && PyErr_Occurred()) return -1;
	if (usmb_go_allowed() < 0) return -1;
	if (usmb_go_queue_of((char *)r->filter, (uint64_t)r->nfilter, queue, &err) == 0) return 0;
	usmb_raise(usmb_goerr_exception(&err), "%s: %s", what, err.message);
	return -1;
}

/* A sycl_object object without a queue of its own stands for the queue of its place, and the queue that dpctl
   keeps is the one that users see, so that the array needs no queue object. */
int usmb_queue_of(const usmb_syclref *r, usmb_place *place, PyObject **out)
{
	*out = NULL;
	if (r->form != USMB_FORM_QUEUE || !place || !r->keep) return 0;
	if (is_kept(r, place)) return 0;
	if (Py_TYPE(r->keep) == queue_type) {
		if (((sycl_object *)r->keep)->queue) *out = Py_NewRef(r->keep);
		return 0;
	}
	if (!r->capsule) {
		*out = Py_NewRef(r->keep);
		return 0;
	}
	sycl_object *l = (sycl_object *)sycl_object_of(queue_type, place);
	if (!l) return -1;
	l->queue = usmb_sycl_queue_copy(r->ref);
	if (l->queue)
		*out = as_dpctl((PyObject *)l);
	else
		Py_DECREF(l);
	return PyErr_Occurred() ? -1 : 0;
}

void usmb_syclref_release(usmb_syclref *r, int used)
{
	if (r->keep && r->capsule && used)
		PyCapsule_SetName(r->keep, r->form == USMB_FORM_QUEUE ? queue_used : context_used);
	PyObject *keep = r->keep;
	r->keep = NULL;
	r->form = USMB_FORM_NONE;
	if (keep && r->capsule)
		usmb_decref_aside(keep);
	else
		Py_XDECREF(keep);
}
