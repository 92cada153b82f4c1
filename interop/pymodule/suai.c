/* suai.c: __sycl_usm_array_interface__ of our arrays, for others. */
#include <string.h>

#include "usmb_array.h"
#include "usmb_storage.h"
#include "usmb_suai.h"
#include "usmb_support.h"
#include "usmb_syclref.h"

/* What does not change between arrays of one type: the dictionary to begin with,
   copied for each access. A few are kept; guarded by the GIL. */
typedef struct {
	usmb_dl_dtype dtype;
	PyObject *dict;  /* all keys; those of one array are None */
	PyObject *field; /* ("", typestr) */
	PyObject *descr; /* [field], in dict as typedescr */
} pattern;

enum { PATTERNS = 16 };
static pattern patterns[PATTERNS];
static unsigned oldest;
static PyObject *zero;
PyObject *usmb_suai_one;

int usmb_suai_register(void)
{
	zero = PyLong_FromLong(0);
	usmb_suai_one = PyLong_FromLong(1);
	return zero && usmb_suai_one ? 0 : -1;
}

static void clear_pattern(pattern *p)
{
	pattern old = *p;
	memset(p, 0, sizeof *p);
	Py_XDECREF(old.dict);
	Py_XDECREF(old.field);
	Py_XDECREF(old.descr);
}

void usmb_suai_clear(void)
{
	for (int i = 0; i < PATTERNS; i++) clear_pattern(&patterns[i]);
}

static PyObject *no_attribute(const char *why, const char *what)
{
	return usmb_raise(PyExc_AttributeError, "this Array has no __sycl_usm_array_interface__: %s%s", why, what);
}

static PyObject *list_of(PyObject *field)
{
	PyObject *list = PyList_New(1);
	if (list) PyList_SetItem(list, 0, Py_NewRef(field));
	return list;
}

/* The list in typedescr is shared by the dictionaries; one that somebody changed
   is not given out again. Returns the pattern's dictionary, a new reference. */
static PyObject *clean_dict(pattern *p)
{
	if (PyList_Size(p->descr) == 1 && PyList_GetItem(p->descr, 0) == p->field) return Py_NewRef(p->dict);
	/* A new list may set off the collector, and that code which asks for other
	   dictionaries, until this pattern is another one. */
	PyObject *dict = Py_NewRef(p->dict), *field = Py_NewRef(p->field), *list = list_of(field), *old = NULL;
	int r = list ? PyDict_SetItem(dict, usmb_name.typedescr, list) : -1;
	if (r == 0 && p->dict == dict) {
		old = p->descr;
		p->descr = Py_NewRef(list);
	}
	Py_XDECREF(old);
	Py_XDECREF(list);
	Py_DECREF(field);
	if (r < 0) Py_CLEAR(dict);
	return dict;
}

static int fill_pattern(pattern *p, usmb_array *a)
{
	const char *typestr = usmb_dl_dtype_typestr(a->dtype);
	PyObject *text = PyUnicode_InternFromString(typestr);
	PyObject *empty = PyUnicode_InternFromString("");
	PyObject *dict = PyDict_New();
	PyObject *field = text && empty ? PyTuple_Pack(2, empty, text) : NULL;
	PyObject *descr = field ? list_of(field) : NULL;
	PyObject *none = Py_None;
	int ok = dict && descr && PyDict_SetItem(dict, usmb_name.shape, none) == 0 &&
	         PyDict_SetItem(dict, usmb_name.typestr, text) == 0 &&
	         PyDict_SetItem(dict, usmb_name.typedescr, descr) == 0 &&
	         PyDict_SetItem(dict, usmb_name.data, none) == 0 &&
	         PyDict_SetItem(dict, usmb_name.strides, none) == 0 &&
	         PyDict_SetItem(dict, usmb_name.offset, zero) == 0 &&
	         PyDict_SetItem(dict, usmb_name.version, usmb_suai_one) == 0 &&
	         PyDict_SetItem(dict, usmb_name.syclobj, none) == 0;
	Py_XDECREF(text);
	Py_XDECREF(empty);
	if (!ok) {
		Py_XDECREF(dict);
		Py_XDECREF(field);
		Py_XDECREF(descr);
		return -1;
	}
	p->dtype = a->dtype;
	p->dict = dict;
	p->field = field;
	p->descr = descr;
	return 0;
}

static pattern *pattern_for(usmb_array *a)
{
	for (int i = 0; i < PATTERNS; i++) {
		pattern *p = &patterns[i];
		if (p->dict && p->dtype.code == a->dtype.code && p->dtype.bits == a->dtype.bits) return p;
	}
	pattern *p = &patterns[oldest++ % PATTERNS];
	clear_pattern(p);
	return fill_pattern(p, a) < 0 ? NULL : p;
}

/* Sets and gives up value; -1 when it is NULL or cannot be set. */
static int put(PyObject *dict, PyObject *key, PyObject *value)
{
	if (!value) return -1;
	int r = PyDict_SetItem(dict, key, value);
	Py_DECREF(value);
	return r;
}

static PyObject *data_pair(usmb_array *a)
{
	PyObject *pair = PyTuple_New(2);
	PyObject *address = PyLong_FromVoidPtr(a->first);
	if (!pair || !address) {
		Py_XDECREF(pair);
		Py_XDECREF(address);
		return NULL;
	}
	PyTuple_SetItem(pair, 0, address);
	/* True means read-only: the specification's meaning. */
	PyTuple_SetItem(pair, 1, Py_NewRef(a->flags & USMB_ARR_READONLY ? Py_True : Py_False));
	return pair;
}

int usmb_suai_check(usmb_array *a)
{
	const char *name = usmb_dl_dtype_name(a->dtype);
	if (!a->cell->place)
		no_attribute("its memory is plain host memory, not USM", "");
	else if (!usmb_dl_dtype_typestr(a->dtype))
		no_attribute("the interface has no type string for ", name ? name : "its element type");
	else
		return 0;
	return -1;
}

PyObject *usmb_array_suai(PyObject *self, void *closure)
{
	usmb_array *a = (usmb_array *)self;
	(void)closure;
	usmb_owner_drain();
	if (usmb_suai_check(a) < 0 || usmb_array_wait_known(a) < 0) return NULL;
	usmb_array_note_async(a);
	pattern *p = pattern_for(a);
	PyObject *clean = p ? clean_dict(p) : NULL;
	PyObject *dict = clean ? PyDict_Copy(clean) : NULL;
	Py_XDECREF(clean);
	if (!dict) return NULL;
	PyObject *queue = a->queue ? Py_NewRef(a->queue) : usmb_public_queue(usmb_array_place(a));
	int bad = put(dict, usmb_name.syclobj, queue) < 0 || put(dict, usmb_name.data, data_pair(a)) < 0 ||
	          put(dict, usmb_name.shape, usmb_tuple_i64(usmb_shape(a), a->ndim)) < 0;
	if (!bad && !(a->flags & USMB_ARR_C))
		bad = put(dict, usmb_name.strides, usmb_tuple_i64(usmb_strides(a), a->ndim)) < 0;
	if (bad) {
		Py_DECREF(dict);
		return NULL;
	}
	usmb_array_show(a);
	return dict;
}
