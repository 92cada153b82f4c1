/* cute.c: the submodule usmbridge.cute and its from_dlpack. */
#include <string.h>

#include "docstrings.h"
#include "usmb_array.h"
#include "usmb_cute.h"
#include "usmb_export.h"
#include "usmb_storage.h"
#include "usmb_support.h"
#include "usmb_tensor.h"

/* Keyword names, interned. */
static struct {
	PyObject *tensor, *assumed_align, *use_32bit_stride, *leading, *unit_strides;
} name;

/* ---- making tensors ------------------------------------------------------------ */

static int describe(usmb_dl_tensor *view, uint64_t flags, usmb_cute_options *o, usmb_cute_tensor *t)
{
	usmb_goerr err;
	err.kind = USMB_ERR_NONE;
	if (__builtin_expect(usmb_go_cute_convert(view, flags, o, t->words, t->ob_base.ob_size, &err) == 0, 1))
		return 0;
	return usmb_raise_go(&err);
}

/* Converts what view shows, with its first element at view->data and its strides
   filled in. The result has no owner yet. */
static usmb_cute_tensor *convert(usmb_dl_tensor *view, uint64_t flags, usmb_cute_options *o)
{
	usmb_cute_tensor *t = usmb_cute_raw(view->ndim);
	if (!t) return NULL;
	if (describe(view, flags, o, t) < 0) {
		Py_DECREF(t);
		return NULL;
	}
	t->first = view->data;
	return t;
}

/* Host USM belongs to the host; shared USM may move to the device. */
static int is_host_usm(const usmb_cell *cell)
{
	const usmb_place *place = cell->place;
	return place && place->kind == USMB_USM_HOST;
}

/* An Array of ours, if DLPack can describe it. */
static PyObject *take_own(usmb_array *a, usmb_cute_options *o)
{
	usmb_dl_tensor view = {a->first, {USMB_DL_CPU, 0}, a->ndim, a->dtype, usmb_shape(a), usmb_strides(a), 0};
	if (usmb_array_device(a, &view.device) < 0) return NULL;
	if (is_host_usm(a->cell)) o->space = USMB_CUTE_SPACE_GENERIC;
	usmb_cute_tensor *t = convert(&view, usmb_array_dlflags(a), o);
	if (!t) return NULL;
	usmb_cell_retain(a->cell);
	t->cell = a->cell;
	return (PyObject *)t;
}

/* Gives t the managed tensor of kDLOneAPI memory that s shows, after all the
   checks of an import. Takes the tensor on success only, so nothing after the
   import may fail: describing it again, as the host's, cannot. */
static int own_usm(usmb_cute_tensor *t, void *managed, int versioned, usmb_dl_snapshot *s, usmb_cute_options *o)
{
	usmb_cell *cell = usmb_tensor_cell(managed, versioned, s);
	if (!cell) return -1;
	t->cell = cell;
	t->first = s->span.first;
	if (is_host_usm(cell)) {
		o->space = USMB_CUTE_SPACE_GENERIC;
		if (describe(&s->t, s->flags, o, t) < 0) PyErr_Clear();
	}
	return 0;
}

/* Gives t a managed tensor on any other device. Only its layout can be checked,
   and more is not needed: nothing here touches the memory. */
static int own_managed(usmb_cute_tensor *t, void *managed, int versioned, const usmb_dl_snapshot *s)
{
	usmb_cell *cell = usmb_cell_of_managed(managed, versioned, (char *)s->span.first + s->span.lo,
	                                       (uint64_t)(s->span.hi - s->span.lo), NULL);
	if (!cell) return -1;
	if (__builtin_expect(s->t.device.type != USMB_DL_CPU, 0))
		atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_HOST_READABLE, memory_order_relaxed);
	t->cell = cell;
	return 0;
}

static PyObject *take_managed(void *managed, int versioned, void *ctx)
{
	usmb_dl_snapshot s;
	char text[512];
	int code = usmb_dl_read_managed(managed, versioned, &s);
	if (__builtin_expect(code != USMB_DL_OK, 0))
		return usmb_raise(PyExc_BufferError, "cute.from_dlpack: %s",
		                  usmb_dl_explain_snapshot(code, &s, text, sizeof text));
	s.t.data = s.span.first;
	s.t.strides = s.strides;
	s.t.byte_offset = 0;
	usmb_cute_tensor *r = convert(&s.t, s.flags, ctx);
	if (!r) return NULL;
	int owned = s.t.device.type == USMB_DL_ONEAPI ? own_usm(r, managed, versioned, &s, ctx)
	                                              : own_managed(r, managed, versioned, &s);
	if (owned < 0) Py_CLEAR(r);
	return (PyObject *)r;
}

/* ---- arguments ------------------------------------------------------------------ */

static int want_bool(PyObject *o, const char *what, int *out)
{
	char type[64];
	if (PyBool_Check(o)) {
		*out = o == Py_True;
		return 0;
	}
	usmb_raise(PyExc_TypeError, "cute.from_dlpack: %s must be True or False, not %s", what,
	           usmb_type_name(o, type, sizeof type));
	return -1;
}

static int parse_leading(PyObject *o, int32_t *out)
{
	char type[64];
	if (!PyUnicode_Check(o)) {
		usmb_raise(PyExc_TypeError, "cute.from_dlpack: leading must be \"unique\" or \"skip_size_one\", not %s",
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	if (PyUnicode_CompareWithASCIIString(o, "unique") == 0) {
		*out = USMB_CUTE_LEADING_UNIQUE;
		return 0;
	}
	if (PyUnicode_CompareWithASCIIString(o, "skip_size_one") == 0) {
		*out = USMB_CUTE_LEADING_SKIP_SIZE_ONE;
		return 0;
	}
	const char *s = PyUnicode_AsUTF8AndSize(o, NULL);
	if (s)
		usmb_raise(PyExc_ValueError,
		           "cute.from_dlpack: leading must be \"unique\" or \"skip_size_one\", not \"%s\"", s);
	return -1;
}

/* v: the slots after the tensor, NULL where not given. */
static int parse_options(PyObject **v, usmb_cute_options *o)
{
	int yes;
	if (v[0] && v[0] != Py_None) {
		if (usmb_cute_int(v[0], "assumed_align", &o->align) < 0) return -1;
		o->has_align = 1;
	}
	if (v[1] && v[1] != Py_None) {
		if (want_bool(v[1], "use_32bit_stride", &yes) < 0) return -1;
		o->strides = yes ? USMB_CUTE_STRIDES_32 : USMB_CUTE_STRIDES_64;
	}
	if (v[2] && parse_leading(v[2], &o->leading) < 0) return -1;
	if (v[3]) {
		if (want_bool(v[3], "unit_strides", &yes) < 0) return -1;
		o->unit = yes;
	}
	return 0;
}

static PyObject *from_dlpack(const char *func, int dynamic, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	usmb_cute_options o;
	memset(&o, 0, sizeof o);
	o.dynamic = dynamic;
	usmb_owner_drain();
	if (usmb_go_allowed() < 0) return NULL;
	PyObject *x = n > 0 ? args[0] : NULL; /* without arguments there may be no place for them */
	if (n != 1 || kwnames) {
		PyObject *const names[5] = {name.tensor, name.assumed_align, name.use_32bit_stride, name.leading,
		                            name.unit_strides};
		PyObject *v[5] = {NULL, NULL, NULL, NULL, NULL};
		if (usmb_args(func, args, n, kwnames, names, 5, 1, 3, v) < 0 || parse_options(v + 1, &o) < 0)
			return NULL;
		x = v[0];
	}
	if (!usmb_is_array(x)) return usmb_tensor_take(x, take_managed, &o);
	usmb_array *own = (usmb_array *)x;
	if (!usmb_array_alive(own)) return NULL;
	usmb_array_hold(own);
	PyObject *t = take_own(own, &o);
	usmb_array_let(own);
	return t;
}

static PyObject *py_from_dlpack(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	(void)m;
	return from_dlpack("cute.from_dlpack", 0, args, n, kwnames);
}

static PyObject *py_from_dlpack_dynamic(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	(void)m;
	return from_dlpack("cute.from_dlpack_dynamic", 1, args, n, kwnames);
}

/* ---- the submodule ---------------------------------------------------------------- */

static PyMethodDef functions[] = {
        {"from_dlpack", USMB_PY_CFUNC(py_from_dlpack), METH_FASTCALL | METH_KEYWORDS, doc_cute_from_dlpack},
        {"from_dlpack_dynamic", USMB_PY_CFUNC(py_from_dlpack_dynamic), METH_FASTCALL | METH_KEYWORDS,
	 doc_cute_from_dlpack_dynamic},
        {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "usmbridge.cute", doc_cute, -1, functions, NULL, NULL, NULL, NULL,
};

int usmb_cute_register(PyObject *module)
{
	if (!(name.tensor = PyUnicode_InternFromString("tensor")) ||
	    !(name.assumed_align = PyUnicode_InternFromString("assumed_align")) ||
	    !(name.use_32bit_stride = PyUnicode_InternFromString("use_32bit_stride")) ||
	    !(name.leading = PyUnicode_InternFromString("leading")) ||
	    !(name.unit_strides = PyUnicode_InternFromString("unit_strides")))
		return -1;
	PyObject *m = PyModule_Create2(&definition, USMB_PYTHON_ABI_VERSION);
	if (!m) return -1;
	/* The import system looks here before it asks the parent, which is no
	   package, for a path. */
	PyObject *modules = PyImport_GetModuleDict();
	int r = usmb_cute_tensor_register(m);
	if (r == 0) r = PyDict_SetItemString(modules, "usmbridge.cute", m);
	if (r == 0) r = PyModule_AddObjectRef(module, "cute", m);
	Py_DECREF(m);
	return r;
}
