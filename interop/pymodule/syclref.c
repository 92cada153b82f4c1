/* syclref.c: the six forms of a syclobj, the light objects that carry a queue or a
   context to others, and which queue object an array names. */
#include <string.h>

#include "docstrings.h"
#include "usmb_device.h"
#include "usmb_dpctl.h"
#include "usmb_support.h"
#include "usmb_syclref.h"
#include "usmb_typeinfo.h"

static const char queue_name[] = "SyclQueueRef";
static const char queue_used[] = "used_SyclQueueRef";
static const char context_name[] = "SyclContextRef";
static const char context_used[] = "used_SyclContextRef";

/* ---- the light objects ------------------------------------------------------------ */

typedef struct {
	PyObject_HEAD usmb_place *place; /* retained: holds the context, and a queue */
	void *queue;                     /* owned: another queue than the place's, or NULL */
} light;

static PyTypeObject *queue_type, *context_type;

static void *light_ref(PyObject *self)
{
	light *l = (light *)self;
	if (Py_TYPE(self) == context_type) return l->place->context;
	return l->queue ? l->queue : l->place->queue;
}

/* The producer's destructor frees under both names: a consumer renames the
   capsule after it has copied the object. */
static void end_queue(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);
	if (name && (!strcmp(name, queue_name) || !strcmp(name, queue_used)))
		usmb_sycl_queue_delete(PyCapsule_GetPointer(capsule, name));
}

static void end_context(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);
	if (name && (!strcmp(name, context_name) || !strcmp(name, context_used)))
		usmb_sycl_context_delete(PyCapsule_GetPointer(capsule, name));
}

static PyObject *light_capsule(PyObject *self, PyObject *unused)
{
	int is_queue = Py_TYPE(self) == queue_type;
	void *own = light_ref(self);
	void *ref = !own ? NULL : is_queue ? usmb_sycl_queue_copy(own) : usmb_sycl_context_copy(own);
	(void)unused;
	if (!ref)
		return usmb_raise(PyExc_RuntimeError, "the SYCL runtime could not copy the %s",
		                  is_queue ? "queue" : "context");
	PyObject *capsule =
	        is_queue ? PyCapsule_New(ref, queue_name, end_queue) : PyCapsule_New(ref, context_name, end_context);
	if (!capsule) is_queue ? usmb_sycl_queue_delete(ref) : usmb_sycl_context_delete(ref);
	return capsule;
}

static void light_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	usmb_sycl_queue_delete(((light *)self)->queue);
	usmb_place_release(((light *)self)->place);
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *light_repr(PyObject *self)
{
	usmb_place *p = ((light *)self)->place;
	return PyUnicode_FromFormat("<usmbridge.%s on %s at %p>",
	                            Py_TYPE(self) == queue_type ? "SyclQueue" : "SyclContext",
	                            p->filter ? p->filter : "?", light_ref(self));
}

static PyObject *light_compare(PyObject *a, PyObject *b, int op)
{
	if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE)) return Py_NewRef(Py_NotImplemented);
	int same = Py_TYPE(a) == queue_type ? usmb_sycl_queue_equal(light_ref(a), light_ref(b))
	                                    : usmb_sycl_context_equal(light_ref(a), light_ref(b));
	return PyBool_FromLong(same == (op == Py_EQ));
}

/* Equal ones lie on the same root device. */
static Py_hash_t light_hash(PyObject *self)
{
	return ((light *)self)->place->root + 1024;
}

static PyObject *light_of(PyTypeObject *type, usmb_place *place);

static PyObject *light_context(PyObject *self, void *closure)
{
	(void)closure;
	return light_of(context_type, ((light *)self)->place);
}

static PyObject *light_device(PyObject *self, void *closure)
{
	(void)closure;
	return usmb_device_of_place(((light *)self)->place);
}

static PyMethodDef light_methods[] = {
        {"_get_capsule", USMB_PY_CFUNC(light_capsule), METH_NOARGS, doc_light__get_capsule},
        {NULL, NULL, 0, NULL},
};
static PyGetSetDef light_getset[] = {
        {"sycl_context", light_context, NULL, doc_light_sycl_context, NULL},
        {"sycl_device", light_device, NULL, doc_light_sycl_device, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

#define LIGHT_SLOTS(d) \
	{ \
		{Py_tp_dealloc, light_dealloc}, {Py_tp_repr, light_repr}, {Py_tp_richcompare, light_compare}, \
		        {Py_tp_hash, light_hash}, {Py_tp_methods, light_methods}, {Py_tp_getset, light_getset}, \
		        {Py_tp_doc, (void *)(d)}, \
		{ \
			0, NULL \
		} \
	}
static PyType_Slot queue_slots[] = LIGHT_SLOTS(doc_SyclQueue);
static PyType_Slot context_slots[] = LIGHT_SLOTS(doc_SyclContext);
static PyType_Spec queue_spec = {"usmbridge.SyclQueue", sizeof(light), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, queue_slots};
static PyType_Spec context_spec = {"usmbridge.SyclContext", sizeof(light), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, context_slots};

static PyObject *light_of(PyTypeObject *type, usmb_place *place)
{
	light *l = PyObject_Malloc(sizeof *l);
	if (!l) return PyErr_NoMemory();
	PyObject_Init((PyObject *)l, type);
	usmb_place_retain(place);
	l->place = place;
	l->queue = NULL;
	return (PyObject *)l;
}

/* dpctl's own object for a light one (taken over), where the process has dpctl
   loaded: consumers such as dpnp check for that very type. */
static PyObject *as_dpctl(PyObject *l)
{
	if (!l) return NULL;
	PyObject *type = usmb_dpctl_class(Py_TYPE(l) == queue_type ? "SyclQueue" : "SyclContext");
	if (!type && !PyErr_Occurred()) return l;
	PyObject *capsule = type ? light_capsule(l, NULL) : NULL;
	PyObject *r = capsule ? PyObject_CallFunctionObjArgs(type, capsule, NULL) : NULL;
	Py_XDECREF(capsule);
	Py_XDECREF(type);
	Py_DECREF(l);
	return r;
}

PyObject *usmb_public_context(usmb_place *place)
{
	return as_dpctl(light_of(context_type, place));
}

/* ---- the queue where nobody named one --------------------------------------------- */

/* The objects that dpctl keeps for places, by their small ids: a cache, under the GIL.
   dpctl keeps them as long as the process. */
enum { KEPT = 16 };
static struct {
	uint64_t serial; /* of the place */
	PyObject *queue;
	void *context; /* owned: the queue's */
} kept[KEPT];

static void keep_at(unsigned at, uint64_t serial, PyObject *queue, void *context)
{
	PyObject *old = kept[at].queue;
	if (!usmb_py_in_child()) usmb_sycl_context_delete(kept[at].context);
	kept[at].serial = serial;
	kept[at].queue = queue;
	kept[at].context = context;
	Py_XDECREF(old);
}

static PyObject *find_queue(usmb_place *place, int *keep)
{
	PyObject *own = as_dpctl(light_of(queue_type, place));
	*keep = 0;
	if (!own || Py_TYPE(own) == queue_type) return own;
	PyObject *theirs = usmb_dpctl_kept_queue(own);
	*keep = theirs != NULL;
	if (!theirs && !PyErr_Occurred()) return own;
	Py_DECREF(own);
	return theirs;
}

PyObject *usmb_public_queue(usmb_place *place)
{
	unsigned at = place->id % KEPT;
	int keep;
	if (__builtin_expect(kept[at].serial == place->serial && kept[at].queue != NULL, 1))
		return Py_NewRef(kept[at].queue);
	PyObject *queue = find_queue(place, &keep);
	void *ref = queue ? usmb_queue_ref(queue) : NULL;
	if (ref) usmb_place_note_consumer(place, ref);
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

int usmb_syclref_in_context(const usmb_syclref *r, usmb_place *place)
{
	if (r->form == USMB_FORM_CONTEXT) return usmb_sycl_context_equal(r->ref, place->context);
	if (r->form == USMB_FORM_FILTER)
		return place->default_context && !place->is_subdevice && (size_t)r->nfilter == strlen(place->filter) &&
		       !memcmp(r->filter, place->filter, (size_t)r->nfilter);
	unsigned at = place->id % KEPT;
	if (kept[at].queue == r->keep && kept[at].serial == place->serial) return 1;
	void *context = usmb_sycl_queue_context(r->ref);
	int same = context && usmb_sycl_context_equal(context, place->context);
	usmb_sycl_context_delete(context);
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
	if (Py_TYPE(queue) == queue_type) return light_ref(queue);
	return usmb_dpctl_ref(queue, &is_queue, &ref) ? ref : NULL;
}

int usmb_syclref_register(PyObject *module)
{
	queue_type = (PyTypeObject *)PyType_FromSpec(&queue_spec);
	context_type = queue_type ? (PyTypeObject *)PyType_FromSpec(&context_spec) : NULL;
	if (!context_type) return -1;
	if (PyModule_AddObjectRef(module, "SyclQueue", (PyObject *)queue_type) < 0) return -1;
	return PyModule_AddObjectRef(module, "SyclContext", (PyObject *)context_type);
}

/* ---- recognising ------------------------------------------------------------------------ */

/* A capsule's reference; takes over keep. 1 when it is neither sort of capsule. */
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
			           "%s: the capsule \"%s\" was consumed before; such a capsule can be taken once", what,
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

/* The filter string keep, which is taken over. */
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
	int is_queue;
	if (usmb_dpctl_ref(o, &is_queue, &out->ref)) {
		out->form = is_queue ? USMB_FORM_QUEUE : USMB_FORM_CONTEXT;
		out->context = is_queue ? NULL : out->ref;
		out->keep = Py_NewRef(o);
		return 0;
	}
	if (Py_TYPE(o) == queue_type || Py_TYPE(o) == context_type) {
		out->form = Py_TYPE(o) == queue_type ? USMB_FORM_QUEUE : USMB_FORM_CONTEXT;
		out->ref = light_ref(o);
		out->context = ((light *)o)->place->context;
		out->keep = Py_NewRef(o);
		return 0;
	}
	if (PyCapsule_CheckExact(o)) return from_capsule(Py_NewRef(o), out, what);
	if (PyUnicode_Check(o)) return from_filter(Py_NewRef(o), out);
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

/* dpctl's devices; those that are a part of another have no filter string. */
static int from_sycl_device(PyObject *o, usmb_syclref *out, const char *what)
{
	PyObject *filter = PyObject_GetAttr(o, usmb_name.filter_string);
	if (filter && PyUnicode_Check(filter)) return from_filter(filter, out);
	Py_XDECREF(filter);
	if (!filter && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
	PyErr_Clear();
	usmb_raise(PyExc_ValueError,
	           "%s: the SyclDevice has no filter string, as parts of a device have none; give a SyclQueue on it",
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
	if (usmb_device_filter(o)) return 1;
	const usmb_typeinfo *info = usmb_typeinfo_of(o);
	if (!info) PyErr_Clear();
	return info && (info->kind == USMB_KIND_DEVICE || info->kind == USMB_KIND_ARRAY_DEVICE);
}

int usmb_syclref_device(PyObject *o, usmb_syclref *out, const char *what)
{
	PyObject *filter = usmb_device_filter(o), *queue = NULL;
	memset(out, 0, sizeof *out);
	if (!filter && PyUnicode_Check(o)) filter = o;
	if (filter) return from_filter(Py_NewRef(filter), out);
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

/* Finding the device takes a fraction of a microsecond and keeps the GIL; loading
   SYCL, where that is still to be done, gives it up. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue)
{
	usmb_goerr err;
	*queue = r->form == USMB_FORM_QUEUE ? r->ref : NULL;
	if (r->form != USMB_FORM_FILTER) return 0;
	err.kind = USMB_ERR_NONE;
	if (!usmb_sycl_loaded() && usmb_open_sycl() < 0 && PyErr_Occurred()) return -1;
	if (usmb_go_allowed() < 0) return -1;
	if (usmb_go_queue_of((char *)r->filter, (uint64_t)r->nfilter, queue, &err) == 0) return 0;
	usmb_raise(usmb_goerr_exception(&err), "%s: %s", what, err.message);
	return -1;
}

/* Our own light objects name the place's queue, which is to say none. */
int usmb_queue_of(const usmb_syclref *r, usmb_place *place, PyObject **out)
{
	*out = NULL;
	if (r->form != USMB_FORM_QUEUE || !place || !r->keep) return 0;
	if (Py_TYPE(r->keep) == queue_type) {
		if (((light *)r->keep)->queue) *out = Py_NewRef(r->keep);
		return 0;
	}
	if (!r->capsule) {
		*out = Py_NewRef(r->keep);
		return 0;
	}
	light *l = (light *)light_of(queue_type, place);
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
