/* syclref.c: the six forms of a syclobj, and the light objects that carry a
   queue or a context to others. */
#include <string.h>

#include "usmb_device.h"
#include "usmb_support.h"
#include "usmb_syclref.h"
#include "usmb_typeinfo.h"

static const char queue_name[] = "SyclQueueRef";
static const char queue_used[] = "used_SyclQueueRef";
static const char context_name[] = "SyclContextRef";
static const char context_used[] = "used_SyclContextRef";

/* ---- the light objects ------------------------------------------------------------ */

typedef struct {
	PyObject_HEAD usmb_place *place; /* retained: holds the queue and the context */
} light;

static PyTypeObject *queue_type, *context_type;

static void *light_ref(PyObject *self)
{
	light *l = (light *)self;
	return Py_TYPE(self) == queue_type ? l->place->queue : l->place->context;
}

/* The producer's destructor frees under both names: a consumer renames the
   capsule after it has copied the object. */
static void end_queue(PyObject *capsule)
{
	const char *name = usmb_py.PyCapsule_GetName(capsule);
	if (name && (!strcmp(name, queue_name) || !strcmp(name, queue_used)))
		usmb_sycl_queue_delete(usmb_py.PyCapsule_GetPointer(capsule, name));
}

static void end_context(PyObject *capsule)
{
	const char *name = usmb_py.PyCapsule_GetName(capsule);
	if (name && (!strcmp(name, context_name) || !strcmp(name, context_used)))
		usmb_sycl_context_delete(usmb_py.PyCapsule_GetPointer(capsule, name));
}

static PyObject *light_capsule(PyObject *self, PyObject *unused)
{
	int is_queue = Py_TYPE(self) == queue_type;
	void *ref = is_queue ? usmb_sycl_queue_copy(light_ref(self)) : usmb_sycl_context_copy(light_ref(self));
	(void)unused;
	if (!ref)
		return usmb_raise(usmb_py.PyExc_RuntimeError, "the SYCL runtime could not copy the %s",
		                  is_queue ? "queue" : "context");
	PyObject *capsule = is_queue ? usmb_py.PyCapsule_New(ref, queue_name, end_queue)
	                             : usmb_py.PyCapsule_New(ref, context_name, end_context);
	if (!capsule) is_queue ? usmb_sycl_queue_delete(ref) : usmb_sycl_context_delete(ref);
	return capsule;
}

static void light_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	usmb_place_release(((light *)self)->place);
	usmb_py.PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *light_repr(PyObject *self)
{
	usmb_place *p = ((light *)self)->place;
	return usmb_py.PyUnicode_FromFormat("<usmbridge.%s on %s at %p>",
	                                    Py_TYPE(self) == queue_type ? "SyclQueue" : "SyclContext",
	                                    p->filter ? p->filter : "?", light_ref(self));
}

static PyObject *light_compare(PyObject *a, PyObject *b, int op)
{
	if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE)) return Py_NewRef(usmb_py.Py_NotImplemented);
	int same = Py_TYPE(a) == queue_type ? usmb_sycl_queue_equal(light_ref(a), light_ref(b))
	                                    : usmb_sycl_context_equal(light_ref(a), light_ref(b));
	USMB_PY_RETURN_BOOL(same == (op == Py_EQ));
}

/* Equal ones lie on the same root device. */
static Py_hash_t light_hash(PyObject *self)
{
	return ((light *)self)->place->root + 1024;
}

static PyObject *light_context(PyObject *self, void *closure)
{
	(void)closure;
	return usmb_syclcontext_of(((light *)self)->place);
}

static PyObject *light_device(PyObject *self, void *closure)
{
	(void)closure;
	return usmb_device_of_place(((light *)self)->place);
}

static PyMethodDef light_methods[] = {
        {"_get_capsule", USMB_PY_CFUNC(light_capsule), METH_NOARGS,
	 "_get_capsule()\n--\n\nA fresh capsule (\"SyclQueueRef\" or \"SyclContextRef\"), as dpctl's objects give."},
        {NULL, NULL, 0, NULL},
};
static PyGetSetDef light_getset[] = {
        {"sycl_context", light_context, NULL, "The context.", NULL},
        {"sycl_device", light_device, NULL, "The Device.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static const char queue_doc[] = "A queue; dpctl.SyclQueue(q._get_capsule()) makes dpctl's object of it.";
static const char context_doc[] = "A context; dpctl.SyclContext(c._get_capsule()) makes dpctl's object of it.";

#define LIGHT_SLOTS(d) \
	{ \
		{Py_tp_dealloc, light_dealloc}, {Py_tp_repr, light_repr}, {Py_tp_richcompare, light_compare}, \
		        {Py_tp_hash, light_hash}, {Py_tp_methods, light_methods}, {Py_tp_getset, light_getset}, \
		        {Py_tp_doc, (void *)(d)}, \
		{ \
			0, NULL \
		} \
	}
static PyType_Slot queue_slots[] = LIGHT_SLOTS(queue_doc);
static PyType_Slot context_slots[] = LIGHT_SLOTS(context_doc);
static PyType_Spec queue_spec = {"usmbridge.SyclQueue", sizeof(light), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, queue_slots};
static PyType_Spec context_spec = {"usmbridge.SyclContext", sizeof(light), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, context_slots};

static PyObject *light_of(PyTypeObject *type, usmb_place *place)
{
	light *l = usmb_py.PyObject_Malloc(sizeof *l);
	if (!l) return usmb_py.PyErr_NoMemory();
	usmb_py.PyObject_Init((PyObject *)l, type);
	usmb_place_retain(place);
	l->place = place;
	return (PyObject *)l;
}

PyObject *usmb_syclqueue_of(usmb_place *place)
{
	return light_of(queue_type, place);
}
PyObject *usmb_syclcontext_of(usmb_place *place)
{
	return light_of(context_type, place);
}

/* dpctl's own object for a light one (taken over), where the process has dpctl
   loaded: consumers such as dpnp check for that very type. */
static PyObject *as_dpctl(PyObject *l, const char *class)
{
	if (!l) return NULL;
	PyObject *key = usmb_py.PyUnicode_FromString("dpctl");
	PyObject *dpctl = key ? usmb_py.PyImport_GetModule(key) : NULL;
	PyObject *type = dpctl ? usmb_py.PyObject_GetAttrString(dpctl, class) : NULL;
	Py_XDECREF(key);
	/* A dpctl that is being imported has no such attribute yet. */
	if (dpctl && !type && usmb_py.PyErr_ExceptionMatches(usmb_py.PyExc_AttributeError)) usmb_py.PyErr_Clear();
	Py_XDECREF(dpctl);
	if (!type && !usmb_py.PyErr_Occurred()) return l;
	PyObject *capsule = type ? light_capsule(l, NULL) : NULL;
	PyObject *r = capsule ? usmb_py.PyObject_CallFunctionObjArgs(type, capsule, NULL) : NULL;
	Py_XDECREF(capsule);
	Py_XDECREF(type);
	Py_DECREF(l);
	return r;
}

PyObject *usmb_public_queue(usmb_place *place)
{
	return as_dpctl(usmb_syclqueue_of(place), "SyclQueue");
}
PyObject *usmb_public_context(usmb_place *place)
{
	return as_dpctl(usmb_syclcontext_of(place), "SyclContext");
}

int usmb_syclref_register(PyObject *module)
{
	queue_type = (PyTypeObject *)usmb_py.PyType_FromSpec(&queue_spec);
	context_type = queue_type ? (PyTypeObject *)usmb_py.PyType_FromSpec(&context_spec) : NULL;
	if (!context_type) return -1;
	if (usmb_py.PyModule_AddObjectRef(module, "SyclQueue", (PyObject *)queue_type) < 0) return -1;
	return usmb_py.PyModule_AddObjectRef(module, "SyclContext", (PyObject *)context_type);
}

/* ---- recognising ------------------------------------------------------------------------ */

/* A capsule's reference; takes over keep. 1 when it is neither sort of capsule. */
static int from_capsule(PyObject *keep, usmb_syclref *out, const char *what)
{
	const char *name = usmb_py.PyCapsule_GetName(keep);
	if (!name) usmb_py.PyErr_Clear();
	if (name && !strcmp(name, queue_name))
		out->form = USMB_FORM_QUEUE;
	else if (name && !strcmp(name, context_name))
		out->form = USMB_FORM_CONTEXT;
	else {
		if (name && (!strcmp(name, queue_used) || !strcmp(name, context_used)))
			usmb_raise(usmb_py.PyExc_ValueError,
			           "%s: the capsule \"%s\" was consumed before; such a capsule can be taken once", what,
			           name);
		else
			usmb_raise(usmb_py.PyExc_ValueError,
			           "%s: a capsule named \"%s\" is neither \"SyclQueueRef\" nor \"SyclContextRef\"",
			           what, name ? name : "");
		Py_DECREF(keep);
		return -1;
	}
	out->ref = usmb_py.PyCapsule_GetPointer(keep, name);
	if (out->form == USMB_FORM_CONTEXT) out->context = out->ref;
	out->keep = keep;
	out->capsule = 1;
	return 0;
}

static int refuse(PyObject *o, const char *what)
{
	char type[64];
	usmb_raise(usmb_py.PyExc_TypeError,
	           "%s must be a filter string, a SyclQueue, a SyclContext, a capsule \"SyclQueueRef\" or "
	           "\"SyclContextRef\", "
	           "or an object with _get_capsule(), not %s",
	           what, usmb_type_name(o, type, sizeof type));
	return -1;
}

/* ---- dpctl's exact types ------------------------------------------------------------------ */

/* dpctl publishes functions that give the reference inside its objects; they are
   used for these very types alone. Filled in when first such an object comes. */
typedef void *(*ref_of)(PyObject *);
static struct {
	PyTypeObject *type; /* owned */
	ref_of get;
} dpctl_queue, dpctl_context;

static ref_of capi_function(PyObject *module, const char *name)
{
	PyObject *capi = usmb_py.PyObject_GetAttrString(module, "__pyx_capi__");
	PyObject *capsule = capi ? usmb_py.PyMapping_GetItemString(capi, name) : NULL;
	void *p = capsule && PyCapsule_CheckExact(capsule)
	                  ? usmb_py.PyCapsule_GetPointer(capsule, usmb_py.PyCapsule_GetName(capsule))
	                  : NULL;
	Py_XDECREF(capi);
	Py_XDECREF(capsule);
	usmb_py.PyErr_Clear();
	return (ref_of)p;
}

/* Learns a type if o is of the class in that module of dpctl; else nothing. */
static void learn(PyObject *o, const char *module, const char *class, const char *function, PyTypeObject **type,
                  ref_of *get)
{
	PyObject *key = usmb_py.PyUnicode_FromString(module);
	PyObject *m = key ? usmb_py.PyImport_GetModule(key) : NULL;
	PyObject *t = m ? usmb_py.PyObject_GetAttrString(m, class) : NULL;
	ref_of f = t == (PyObject *)Py_TYPE(o) ? capi_function(m, function) : NULL;
	usmb_py.PyErr_Clear();
	if (f) {
		*type = (PyTypeObject *)Py_NewRef(t);
		*get = f;
	}
	Py_XDECREF(t);
	Py_XDECREF(m);
	Py_XDECREF(key);
}

/* 1 when o is one of dpctl's own objects, whose reference is in out then. */
static int from_dpctl(PyObject *o, usmb_syclref *out)
{
	PyTypeObject *type = Py_TYPE(o);
	if (!dpctl_queue.type || !dpctl_context.type) {
		const usmb_typeinfo *info = usmb_typeinfo_of(o);
		int kind = info ? info->kind : USMB_KIND_PLAIN;
		usmb_py.PyErr_Clear();
		if (kind == USMB_KIND_QUEUE && !dpctl_queue.type)
			learn(o, "dpctl._sycl_queue", "SyclQueue", "SyclQueue_GetQueueRef", &dpctl_queue.type,
			      &dpctl_queue.get);
		if (kind == USMB_KIND_CONTEXT && !dpctl_context.type)
			learn(o, "dpctl._sycl_context", "SyclContext", "SyclContext_GetContextRef", &dpctl_context.type,
			      &dpctl_context.get);
	}
	int is_queue = type == dpctl_queue.type;
	if (!is_queue && type != dpctl_context.type) return 0;
	out->ref = is_queue ? dpctl_queue.get(o) : dpctl_context.get(o);
	if (!out->ref) return 0;
	out->form = is_queue ? USMB_FORM_QUEUE : USMB_FORM_CONTEXT;
	out->context = is_queue ? NULL : out->ref;
	out->keep = Py_NewRef(o);
	return 1;
}

int usmb_syclref_get(PyObject *o, usmb_syclref *out, const char *what)
{
	char type[64];
	memset(out, 0, sizeof *out);
	if (from_dpctl(o, out)) return 0;
	if (Py_TYPE(o) == queue_type || Py_TYPE(o) == context_type) {
		out->form = Py_TYPE(o) == queue_type ? USMB_FORM_QUEUE : USMB_FORM_CONTEXT;
		out->ref = light_ref(o);
		out->context = ((light *)o)->place->context;
		out->keep = Py_NewRef(o);
		return 0;
	}
	if (PyCapsule_CheckExact(o)) return from_capsule(Py_NewRef(o), out, what);
	if (PyUnicode_Check(o)) {
		out->filter = usmb_py.PyUnicode_AsUTF8AndSize(o, &out->nfilter);
		if (!out->filter) return -1;
		out->form = USMB_FORM_FILTER;
		out->keep = Py_NewRef(o);
		return 0;
	}
	PyObject *capsule = usmb_py.PyObject_CallMethodObjArgs(o, usmb_name._get_capsule, NULL);
	if (!capsule) {
		if (!usmb_py.PyErr_ExceptionMatches(usmb_py.PyExc_AttributeError)) return -1;
		usmb_py.PyErr_Clear();
		return refuse(o, what);
	}
	if (PyCapsule_CheckExact(capsule)) return from_capsule(capsule, out, what);
	usmb_raise(usmb_py.PyExc_TypeError, "%s: _get_capsule() returned a %s, not a capsule", what,
	           usmb_type_name(capsule, type, sizeof type));
	Py_DECREF(capsule);
	return -1;
}

/* Finding the device takes a fraction of a microsecond and keeps the GIL; loading
   SYCL, where that is still to be done, gives it up. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue)
{
	usmb_goerr err;
	*queue = r->form == USMB_FORM_QUEUE ? r->ref : NULL;
	if (r->form != USMB_FORM_FILTER) return 0;
	err.kind = USMB_ERR_NONE;
	if (!usmb_sycl_loaded() && usmb_open_sycl() < 0 && usmb_py.PyErr_Occurred()) return -1;
	if (usmb_go_allowed() < 0) return -1;
	if (usmb_go_queue_of((char *)r->filter, (uint64_t)r->nfilter, queue, &err) == 0) return 0;
	usmb_raise(usmb_goerr_exception(&err), "%s: %s", what, err.message);
	return -1;
}

void usmb_syclref_release(usmb_syclref *r, int used)
{
	if (r->keep && r->capsule && used)
		usmb_py.PyCapsule_SetName(r->keep, r->form == USMB_FORM_QUEUE ? queue_used : context_used);
	Py_CLEAR(r->keep);
	r->form = USMB_FORM_NONE;
}
