/* dtype.c: element types as Python's objects, and the objects that name them. */
#include <string.h>

#include "docstrings.h"
#include "usmb_dtype.h"
#include "usmb_support.h"

static PyTypeObject *dtype_type;

/* ---- what names an element type ------------------------------------------------------ */

/* A name ("float32"), a type string ("<f4", "f4"), or an object with such a name
   (NumPy's types and dtypes, Python's bool, int, float, complex). */
static int dtype_of_text(const char *s, size_t n, usmb_dl_dtype *out)
{
	static const struct {
		const char *alias, *name;
	} aliases[] = {{"float", "float64"}, {"int", "int64"}, {"complex", "complex128"}, {"bool_", "bool"}};
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

/* Raises the TypeError for an object that names no element type; s is its text, or NULL. */
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
			           "dtype \"%s\" has another byte order than this machine, which arrays here cannot "
			           "have; use dtype.newbyteorder(\"=\")",
			           s);
		r = native > 0 ? 0 : -1;
	}
	Py_XDECREF(text);
	return r;
}

/* ---- equality ------------------------------------------------------------------------ */

/* Whether an attribute of o is the text s; what asking for it raises counts as no. */
static int attribute_is(PyObject *o, PyObject *name, PyObject *s)
{
	PyObject *v = PyObject_GetAttr(o, name);
	int same = v && PyUnicode_Check(v) && PyUnicode_Compare(v, s) == 0;
	Py_XDECREF(v);
	PyErr_Clear();
	return same;
}

/* Whether a type is of NumPy's making, or of ml_dtypes'. */
static int is_numpys(PyObject *type)
{
	PyObject *module = PyObject_GetAttr(type, usmb_name.__module__);
	const char *s = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
	int is = s && (!strcmp(s, "numpy") || !strncmp(s, "numpy.", 6) || !strcmp(s, "ml_dtypes"));
	Py_XDECREF(module);
	PyErr_Clear();
	return is;
}

/* Whether o is NumPy's scalar type of the name, or a dtype of it. -1: neither. */
static int equals(PyObject *self, PyObject *o)
{
	if (PyType_Check(o)) {
		if (!is_numpys(o)) return -1;
		if (attribute_is(o, usmb_name.__name__, self)) return 1;
		PyObject *older = PyUnicode_FromString("bool_"); /* NumPy 1's bool */
		int is = older && attribute_is(o, usmb_name.__name__, older) &&
		         PyUnicode_CompareWithASCIIString(self, "bool") == 0;
		Py_XDECREF(older);
		return is;
	}
	if (!is_numpys((PyObject *)Py_TYPE(o))) return -1;
	int is = attribute_is(o, usmb_name.name, self) && usmb_native_order(o) > 0;
	PyErr_Clear();
	return is;
}

static PyObject *richcompare(PyObject *self, PyObject *other, int op)
{
	typedef PyObject *(*comparison)(PyObject *, PyObject *, int);
	int same = (op == Py_EQ || op == Py_NE) && !PyUnicode_Check(other) ? equals(self, other) : -1;
	if (same >= 0) return PyBool_FromLong(same == (op == Py_EQ));
	return ((comparison)PyType_GetSlot(&PyUnicode_Type, Py_tp_richcompare))(self, other, op);
}

static Py_hash_t hash(PyObject *self)
{
	typedef Py_hash_t (*hashing)(PyObject *);
	return ((hashing)PyType_GetSlot(&PyUnicode_Type, Py_tp_hash))(self);
}

/* ---- the type ------------------------------------------------------------------------- */

static PyObject *make(usmb_dl_dtype t)
{
	typedef PyObject *(*making)(PyTypeObject *, PyObject *, PyObject *);
	const char *name = usmb_dl_dtype_name(t);
	PyObject *text = name ? PyUnicode_FromString(name) : PyUnicode_FromFormat("code%dbits%d", t.code, t.bits);
	PyObject *args = text ? PyTuple_Pack(1, text) : NULL;
	PyObject *o = NULL;
	if (args) o = ((making)PyType_GetSlot(&PyUnicode_Type, Py_tp_new))(dtype_type, args, NULL);
	Py_XDECREF(args);
	Py_XDECREF(text);
	return o;
}

/* Made once for each type that comes; a place that two types share is the later one's. */
PyObject *usmb_dtype_object(usmb_dl_dtype t)
{
	enum { PLACES = 128 };
	static struct {
		usmb_dl_dtype type;
		PyObject *object;
	} made[PLACES];
	size_t i = (t.code * 11u + t.bits) % PLACES;
	if (made[i].object && made[i].type.code == t.code && made[i].type.bits == t.bits)
		return Py_NewRef(made[i].object);
	PyObject *o = make(t), *old = made[i].object;
	if (!o) return NULL;
	made[i].type = t;
	made[i].object = Py_NewRef(o);
	Py_XDECREF(old);
	return o;
}

static PyObject *new_dtype(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	usmb_dl_dtype t;
	(void)type;
	if (PyTuple_Size(args) != 1 || (kwargs && PyDict_Size(kwargs) > 0) || PyTuple_GetItem(args, 0) == Py_None)
		return usmb_raise(PyExc_TypeError, "DType takes one name, type string or NumPy dtype");
	return usmb_parse_dtype(PyTuple_GetItem(args, 0), NULL, &t) < 0 ? NULL : usmb_dtype_object(t);
}

static PyObject *get_name(PyObject *self, void *closure)
{
	(void)closure;
	const char *s = PyUnicode_AsUTF8AndSize(self, NULL);
	return s ? PyUnicode_InternFromString(s) : NULL;
}

static PyObject *get_itemsize(PyObject *self, void *closure)
{
	usmb_dl_dtype t;
	(void)closure;
	if (usmb_parse_dtype(self, NULL, &t) < 0) return NULL;
	return PyLong_FromLong(t.bits >= 8 ? t.bits / 8 : 1);
}

static PyObject *reduce(PyObject *self, PyObject *unused)
{
	(void)unused;
	PyObject *name = get_name(self, NULL);
	PyObject *r = name ? Py_BuildValue("(O(O))", (PyObject *)dtype_type, name) : NULL;
	Py_XDECREF(name);
	return r;
}

static PyMethodDef methods[] = {
        {"__reduce__", USMB_PY_CFUNC(reduce), METH_NOARGS, doc_DType___reduce__},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"name", get_name, NULL, doc_DType_name, NULL},
        {"itemsize", get_itemsize, NULL, doc_DType_itemsize, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_richcompare, richcompare},
        {Py_tp_hash, hash},
        {Py_tp_new, new_dtype},
        {Py_tp_doc, (void *)doc_DType},
        {Py_tp_getset, getset},
        {Py_tp_methods, methods},
        {0, NULL},
};

/* Sizes 0: those of str. */
static PyType_Spec spec = {"usmbridge.DType", 0, 0, Py_TPFLAGS_DEFAULT, slots};

int usmb_dtype_register(PyObject *module)
{
	PyObject *bases = PyTuple_Pack(1, &PyUnicode_Type);
	dtype_type = bases ? (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases) : NULL;
	Py_XDECREF(bases);
	return dtype_type ? PyModule_AddObjectRef(module, "DType", (PyObject *)dtype_type) : -1;
}
