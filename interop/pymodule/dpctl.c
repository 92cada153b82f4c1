/* dpctl.c: dpctl as this process has loaded it, if it has: what its objects hold, and
   its own objects for others. Nothing here imports it. */
#include <string.h>

#include "usmb_dpctl.h"
#include "usmb_support.h"
#include "usmb_typeinfo.h"

/* dpctl publishes functions that give the reference inside its objects; they are
   used for these very types alone. Filled in when first such an object comes. */
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

/* Learns a type if o is of the class in that module of dpctl; else nothing. */
static void learn(PyObject *o, const char *module, const char *class, const char *function, PyTypeObject **type,
                  ref_of *get)
{
	PyObject *m = loaded(module);
	PyObject *t = m ? PyObject_GetAttrString(m, class) : NULL;
	ref_of f = t == (PyObject *)Py_TYPE(o) ? capi_function(m, function) : NULL;
	PyErr_Clear();
	if (f) {
		*type = (PyTypeObject *)Py_NewRef(t);
		*get = f;
	}
	Py_XDECREF(t);
	Py_XDECREF(m);
}

/* What is asked with every object must be a comparison of pointers. */
int usmb_dpctl_ref(PyObject *o, int *is_queue, void **ref)
{
	PyTypeObject *type = Py_TYPE(o);
	if (!dpctl_queue.type || !dpctl_context.type) {
		const usmb_typeinfo *info = usmb_typeinfo_of(o);
		int kind = info ? info->kind : USMB_KIND_PLAIN;
		PyErr_Clear();
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

/* ---- its memory ---------------------------------------------------------------------- */

enum { SORTS = 3 };
static struct {
	PyTypeObject *types[SORTS]; /* owned; NULL where not met yet */
	void *(*pointer)(PyObject *);
	size_t (*bytes)(PyObject *);
} dpctl_memory;

/* Learns the type of o, if it is one of dpctl's own. */
static int learn_memory(PyObject *o)
{
	static const char *const names[SORTS] = {"MemoryUSMDevice", "MemoryUSMShared", "MemoryUSMHost"};
	const usmb_typeinfo *info = usmb_typeinfo_of(o);
	PyErr_Clear();
	if (!info || info->kind != USMB_KIND_DPCTL_MEMORY) return 0;
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

/* ---- its objects for others ---------------------------------------------------------- */

static PyObject *name_dpctl, *name_manager; /* interned */

int usmb_dpctl_register(void)
{
	name_dpctl = PyUnicode_InternFromString("dpctl");
	name_manager = PyUnicode_InternFromString("dpctl._sycl_queue_manager");
	return name_dpctl && name_manager ? 0 : -1;
}

/* An attribute of a module of dpctl's; NULL without an exception where there is none: a
   dpctl that is being imported has not all of them yet. */
static PyObject *attribute(PyObject *module, const char *name)
{
	PyObject *m = PyImport_GetModule(module);
	PyObject *v = m ? PyObject_GetAttrString(m, name) : NULL;
	Py_XDECREF(m);
	if (!v && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
	return v;
}

PyObject *usmb_dpctl_class(const char *name)
{
	return attribute(name_dpctl, name);
}

PyObject *usmb_dpctl_kept_queue(PyObject *queue)
{
	PyObject *get = attribute(name_manager, "get_device_cached_queue");
	if (!get) return NULL;
	PyObject *context = PyObject_GetAttrString(queue, "sycl_context");
	PyObject *device = context ? PyObject_GetAttrString(queue, "sycl_device") : NULL;
	PyObject *key = device ? PyTuple_Pack(2, context, device) : NULL;
	PyObject *kept = key ? PyObject_CallFunctionObjArgs(get, key, NULL) : NULL;
	Py_DECREF(get);
	Py_XDECREF(context);
	Py_XDECREF(device);
	Py_XDECREF(key);
	return kept;
}
