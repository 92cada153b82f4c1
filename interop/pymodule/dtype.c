/* dtype.c: element types as Python objects, and a cache of facts about the types of other libraries'
   objects. */
#include <string.h>

#include "support.h"

/* ==== Types of other libraries ================================================================ */

/* A direct-mapped cache. The callback of a weak reference removes an entry with its type, so the
   cache keeps no type alive, and a new type at the same address finds no old entry. */
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

/* A string attribute of a type as UTF-8 in buf; empty if there is none. -1 with an exception that must end
   the call: a metaclass can run code. */
static int attribute(PyTypeObject *type, PyObject *name, char *buf, size_t n)
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
	return usmb_clear_exception();
}

static int begins(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* A class of a loaded module, a new reference; NULL without an exception if there is none. */
static PyObject *loaded_class(const char *module, const char *name)
{
	/* PyImport_GetModule would wait for a thread that is importing the module. */
	PyObject *m = PyDict_GetItemString(PyImport_GetModuleDict(), module); /* borrowed */
	if (!m) return NULL;
	Py_INCREF(m);
	PyObject *class = PyObject_GetAttrString(m, name);
	Py_DECREF(m);
	PyErr_Clear();
	if (class && !PyType_Check(class)) Py_CLEAR(class);
	return class;
}

/* Compares with the classes themselves, because any class can have their names. To call PyTorch's
   exchange API with an object of another class, or another library's with one of PyTorch's, may
   crash. */
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
	if (attribute(type, usmb_name.__module__, module, sizeof module) < 0 ||
	    attribute(type, usmb_name.__qualname__, name, sizeof name) < 0)
		return -1;
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
	/* Tensors of tvm-ffi are never read-only, and it prefers the legacy form. */
	if (begins(module, "tvm_ffi") && !strcmp(name, "Tensor")) return USMB_KIND_LEGACY;
	/* NumPy before 2.1 has the legacy form only, and refuses to export read-only arrays. */
	if (!strcmp(module, "numpy") && !strcmp(name, "ndarray")) return USMB_KIND_WRITABLE;
	if (begins(module, "onedal") || begins(module, "daal4py") || begins(module, "sklearnex"))
		return USMB_KIND_ONEDAL;
	return torch_kind_of(type);
}

/* An exchange API lives as long as the process, and DLPack allows consumers to cache it for each
   type. So it is read once: a later change or deletion of the attribute has no effect, and the API
   that was found stays valid. */
static const usmb_dl_exchange_api *api_of(PyTypeObject *type)
{
	PyObject *capsule = PyObject_GetAttr((PyObject *)type, usmb_name.__dlpack_c_exchange_api__);
	const void *api = NULL;
	if (capsule && PyCapsule_IsValid(capsule, usmb_dl_name_exchange_api))
		api = PyCapsule_GetPointer(capsule, usmb_dl_name_exchange_api);
	Py_XDECREF(capsule);
	if (usmb_clear_exception() < 0) return NULL;
	const usmb_dl_exchange_api *found = api ? usmb_dl_exchange_find(api) : NULL;
	return found && found->managed_tensor_from_py_object_no_sync ? found : NULL;
}

/* The type's __dlpack__ if all its instances must have the same: the type is static and cannot be
   changed, attribute access is the generic one, and instances have no dictionary. */
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
	int kind = kind_of(type);
	const usmb_dl_exchange_api *api = kind < 0 ? NULL : api_of(type);
	if (PyErr_Occurred()) return NULL;
	usmb_typeinfo found = {type, NULL, api, method_of(type), kind};
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

/* ==== Element types =========================================================================== */

/* ---- names of element types --------------------------------------------------------- */

/* The sizes of C's long and of a pointer. */
#define LONG(name) (sizeof(long) == 8 ? name "64" : name "32")
#define POINTER(name) (sizeof(void *) == 8 ? name "64" : name "32")

/* Reads a name ("float32"), a type string ("<f4", "f4") or an alias. */
static int dtype_of_text(const char *s, size_t n, usmb_dl_dtype *out)
{
	static const struct {
		const char *alias, *name;
	} aliases[] = {{"float", "float64"},
	               {"int", "int64"},
	               {"complex", "complex128"},
	               {"bool_", "bool"},
	               /* NumPy's names of C's types */
	               {"byte", "int8"},
	               {"ubyte", "uint8"},
	               {"short", "int16"},
	               {"ushort", "uint16"},
	               {"intc", "int32"},
	               {"uintc", "uint32"},
	               {"long", LONG("int")},
	               {"ulong", LONG("uint")},
	               {"longlong", "int64"},
	               {"ulonglong", "uint64"},
	               {"intp", POINTER("int")},
	               {"uintp", POINTER("uint")},
	               {"int_", POINTER("int")},
	               {"uint", POINTER("uint")},
	               {"half", "float16"},
	               {"single", "float32"},
	               {"double", "float64"},
	               {"csingle", "complex64"},
	               {"cdouble", "complex128"},
	               /* and its type codes */
	               {"?", "bool"},
	               {"b", "int8"},
	               {"B", "uint8"},
	               {"h", "int16"},
	               {"H", "uint16"},
	               {"i", "int32"},
	               {"I", "uint32"},
	               {"l", LONG("int")},
	               {"L", LONG("uint")},
	               {"q", "int64"},
	               {"Q", "uint64"},
	               {"p", POINTER("int")},
	               {"P", POINTER("uint")},
	               {"e", "float16"},
	               {"f", "float32"},
	               {"d", "float64"},
	               {"F", "complex64"},
	               {"D", "complex128"}};
	if (strlen(s) != n) return -1; /* no name has a NUL in it */
	if (usmb_dl_dtype_by_name(s, out) == USMB_DL_OK) return 0;
	for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
		if (!strcmp(s, aliases[i].alias)) return usmb_dl_dtype_by_name(aliases[i].name, out);
	return usmb_dl_dtype_by_typestr(s, n, out) == USMB_DL_OK ? 0 : -1;
}

int usmb_native_order(PyObject *o)
{
	PyObject *v = usmb_optional_attr(o, usmb_name.isnative);
	int native = v ? v != Py_False : PyErr_Occurred() ? -1 : 1;
	Py_XDECREF(v);
	return native;
}

/* Raises TypeError for an object that is not an element type; s is its text, or NULL. */
static int bad_dtype(PyObject *o, const char *s)
{
	char type[64];
	if (s)
		usmb_raise(PyExc_TypeError,
		           "dtype \"%s\" is not known; names are those of the array API (float32, int64, bool, "
		           "bfloat16, ...)",
		           s);
	else
		usmb_raise(PyExc_TypeError,
		           "dtype must be a name such as \"float32\", a type string or a NumPy dtype, not %s",
		           usmb_type_name(o, type, sizeof type));
	return -1;
}

int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out)
{
	if (!usmb_given(o) && dflt) return usmb_dl_dtype_by_name(dflt, out);
	if (!o) o = Py_None;
	PyObject *text = PyUnicode_Check(o) ? Py_NewRef(o) : usmb_optional_attr(o, usmb_name.name);
	if (!text && !PyErr_Occurred()) text = usmb_optional_attr(o, usmb_name.__name__);
	if (!text && PyErr_Occurred()) return -1;
	Py_ssize_t n = 0;
	const char *s = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &n) : NULL;
	int r = s ? dtype_of_text(s, (size_t)n, out) : -1;
	if (r < 0) {
		PyErr_Clear();
		bad_dtype(o, s);
	} else if (!PyUnicode_Check(o)) {
		/* The name of a NumPy dtype does not contain its byte order. */
		int native = usmb_native_order(o);
		if (!native)
			usmb_raise(PyExc_TypeError,
			           "dtype \"%s\" has another byte order than this machine, which arrays do not "
			           "support; use dtype.newbyteorder(\"=\")",
			           s);
		r = native > 0 ? 0 : -1;
	}
	Py_XDECREF(text);
	return r;
}

/* ---- objects ------------------------------------------------------------------------- */

/* A DType. The class is in Python. */
static PyObject *make(usmb_dl_dtype t)
{
	static PyObject *f;
	const char *name = usmb_dl_dtype_name(t);
	PyObject *text = name ? PyUnicode_FromString(name) : PyUnicode_FromFormat("code%dbits%d", t.code, t.bits);
	PyObject *o = text ? usmb_call_python(&f, "usmbridge._dtype", "named", &text, 1) : NULL;
	Py_XDECREF(text);
	return o;
}

PyObject *usmb_dtype_cached(usmb_dtype_place *places, usmb_dl_dtype t, PyObject *(*make_object)(usmb_dl_dtype))
{
	usmb_dtype_place *p = &places[(t.code * 11u + t.bits) % USMB_DTYPE_PLACES];
	if (p->object && p->type.code == t.code && p->type.bits == t.bits) return Py_NewRef(p->object);
	PyObject *o = make_object(t), *old = p->object;
	if (!o) return NULL;
	p->type = t;
	p->object = Py_NewRef(o);
	Py_XDECREF(old);
	return o;
}

PyObject *usmb_dtype_object(usmb_dl_dtype t)
{
	static usmb_dtype_place made[USMB_DTYPE_PLACES];
	return usmb_dtype_cached(made, t, make);
}

PyObject *usmb_py_dtype_of(PyObject *m, PyObject *o)
{
	usmb_dl_dtype t;
	(void)m;
	return usmb_parse_dtype(o, NULL, &t) < 0 ? NULL : usmb_dtype_object(t);
}
