/* typeinfo.c: what is remembered about the types of others, so that hot paths
   look nothing up by name. */
#include <string.h>

#include "usmb_support.h"
#include "usmb_typeinfo.h"

/* Direct-mapped. An entry goes with its type, by a weak reference's callback, so
   that nothing is kept alive and no address is taken for another type's. */
enum { ENTRIES = 64 };
static usmb_typeinfo cache[ENTRIES];
static PyObject *forget; /* the callback */

static void clear_entry(usmb_typeinfo *e)
{
	PyObject *weak = e->weak, *method = e->method;
	memset(e, 0, sizeof *e);
	Py_XDECREF(weak);
	Py_XDECREF(method);
}

static PyObject *forget_type(PyObject *self, PyObject *weak)
{
	(void)self;
	for (int i = 0; i < ENTRIES; i++)
		if (cache[i].weak == weak) clear_entry(&cache[i]);
	Py_RETURN_NONE;
}

static PyMethodDef forget_def = {"_forget_type", USMB_PY_CFUNC(forget_type), METH_O, NULL};

static size_t slot_of(PyTypeObject *type)
{
	return ((uintptr_t)type >> 5) * 0x9E3779B1u >> 7 & (ENTRIES - 1);
}

/* A string attribute of a type as UTF-8 in buf; empty when there is none. */
static void attribute(PyTypeObject *type, PyObject *name, char *buf, size_t n)
{
	buf[0] = 0;
	PyObject *o = PyObject_GetAttr((PyObject *)type, name);
	if (o && PyUnicode_Check(o)) {
		const char *s = PyUnicode_AsUTF8AndSize(o, NULL);
		if (s) {
			strncpy(buf, s, n - 1);
			buf[n - 1] = 0;
		}
	}
	Py_XDECREF(o);
	PyErr_Clear();
}

static int begins(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* The class of that name in a module that is loaded, a new reference; NULL, without an
   exception, if there is none. */
static PyObject *loaded_class(const char *module, const char *name)
{
	/* Not PyImport_GetModule, which waits for a thread that imports the module. */
	PyObject *m = PyDict_GetItemString(PyImport_GetModuleDict(), module); /* borrowed */
	if (!m) return NULL;
	Py_INCREF(m);
	PyObject *class = PyObject_GetAttrString(m, name);
	Py_DECREF(m);
	PyErr_Clear();
	if (class && !PyType_Check(class)) Py_CLEAR(class);
	return class;
}

/* Compares with the classes themselves: any class can have their names, and calling
   PyTorch's exchange API with another class's object, or another library's exchange API
   with this one's, may crash. */
static int torch_kind_of(PyTypeObject *type)
{
	int kind = USMB_KIND_PLAIN;
	PyObject *tensor = loaded_class("torch", "Tensor");
	if (tensor && PyType_IsSubtype(type, (PyTypeObject *)tensor)) {
		PyObject *parameter = loaded_class("torch.nn.parameter", "Parameter"), *t = (PyObject *)type;
		kind = t == tensor || t == parameter ? USMB_KIND_TORCH : USMB_KIND_TORCH_OTHER;
		Py_XDECREF(parameter);
	}
	Py_XDECREF(tensor);
	return kind;
}

static int kind_of(PyTypeObject *type)
{
	char module[96], name[96];
	attribute(type, usmb_name.__module__, module, sizeof module);
	attribute(type, usmb_name.__qualname__, name, sizeof name);
	if (begins(module, "dpctl")) {
		if (begins(name, "MemoryUSM") || !strcmp(name, "_Memory")) return USMB_KIND_DPCTL_MEMORY;
		if (!strcmp(name, "SyclQueue")) return USMB_KIND_QUEUE;
		if (!strcmp(name, "SyclContext")) return USMB_KIND_CONTEXT;
		if (!strcmp(name, "SyclDevice")) return USMB_KIND_DEVICE;
	}
	if (begins(module, "dpctl") || begins(module, "dpnp")) {
		if (!strcmp(name, "usm_ndarray")) return USMB_KIND_TENSOR;
		if (!strcmp(name, "Device")) return USMB_KIND_ARRAY_DEVICE;
		if (begins(module, "dpnp") && (!strcmp(name, "dpnp_array") || !strcmp(name, "ndarray")))
			return USMB_KIND_DPNP_ARRAY;
	}
	/* tvm-ffi's tensors are never read-only, and it prefers the legacy form itself. */
	if (begins(module, "tvm_ffi") && !strcmp(name, "Tensor")) return USMB_KIND_LEGACY;
	/* NumPy before 2.1, which has no other form, refuses read-only arrays. */
	if (!strcmp(module, "numpy") && !strcmp(name, "ndarray")) return USMB_KIND_WRITABLE;
	if (begins(module, "onedal") || begins(module, "daal4py") || begins(module, "sklearnex"))
		return USMB_KIND_ONEDAL;
	return torch_kind_of(type);
}

/* DLPack has a table live as long as the process, and lets a consumer keep what it
   found for each type. So the type is asked once, and what is published later in
   another's place, or deleted, changes nothing: the table that was found stays right
   to call. */
static const usmb_dl_exchange_api *api_of(PyTypeObject *type)
{
	PyObject *capsule = PyObject_GetAttr((PyObject *)type, usmb_name.__dlpack_c_exchange_api__);
	const void *api = NULL;
	if (capsule && PyCapsule_IsValid(capsule, usmb_dl_name_exchange_api))
		api = PyCapsule_GetPointer(capsule, usmb_dl_name_exchange_api);
	Py_XDECREF(capsule);
	PyErr_Clear();
	const usmb_dl_exchange_api *found = api ? usmb_dl_exchange_find(api) : NULL;
	return found && found->managed_tensor_from_py_object_no_sync ? found : NULL;
}

/* The type's own __dlpack__, which then is that of all its instances: the type is a
   static one (which nobody can change), looks attributes up in the ordinary way, and
   its instances have no dictionary. */
static PyObject *method_of(PyTypeObject *type)
{
	if (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) return NULL;
	if (PyType_GetSlot(type, Py_tp_getattro) != (void *)PyObject_GenericGetAttr) return NULL;
	PyObject *offset = PyObject_GetAttrString((PyObject *)type, "__dictoffset__");
	int none = offset && PyLong_Check(offset) && PyLong_AsLongLong(offset) == 0;
	Py_XDECREF(offset);
	PyObject *method = none ? PyObject_GetAttr((PyObject *)type, usmb_name.__dlpack__) : NULL;
	PyErr_Clear();
	if (method && !(PyType_GetFlags(Py_TYPE(method)) & Py_TPFLAGS_METHOD_DESCRIPTOR)) Py_CLEAR(method);
	return method;
}

const usmb_typeinfo *usmb_typeinfo_of(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);
	usmb_typeinfo *e = &cache[slot_of(type)];
	if (__builtin_expect(e->type == type, 1)) return e;
	if (!forget && !(forget = PyCFunction_NewEx(&forget_def, NULL, NULL))) return NULL;
	usmb_typeinfo found = {type, NULL, api_of(type), method_of(type), kind_of(type)};
	found.weak = PyWeakref_NewRef((PyObject *)type, forget);
	if (!found.weak) return NULL;
	clear_entry(e);
	*e = found;
	return e;
}

void usmb_typeinfo_clear(void)
{
	for (int i = 0; i < ENTRIES; i++) clear_entry(&cache[i]);
}
