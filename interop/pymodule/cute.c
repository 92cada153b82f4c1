/* cute.c: the submodule usmbridge.cute: from_dlpack and the type Tensor. */
#include <string.h>

#include "array.h"
#include "cute.h"
#include "exchange.h"
#include "storage.h"
#include "support.h"

/* ==== The type Tensor ========================================================================= */

/* Positions in the flat form. Python tests compare the values there with the texts that Go makes
   from the same words. */
enum {
	CUTE_ALIGN = 1,    /* word with the assumed alignment */
	CUTE_HEADER = 3,   /* words before the extents */
	CUTE_RANK_BYTE = 5 /* byte of word 0 with the rank */
};

/* Number of words: header, four words for each mode, a byte for each mode. */
static inline Py_ssize_t cute_word_count(int32_t rank)
{
	return CUTE_HEADER + 4 * (Py_ssize_t)rank + (rank + 7) / 8;
}

/* A tensor. It owns one reference of its cell until it is released. Only the marks change it: they
   change words. */
typedef struct cute_tensor {
	PyObject_VAR_HEAD usmb_cell *cell; /* owner of the memory; NULL once released */
	char *first;                       /* address of the first element */
	int64_t words[];                   /* ob_size words */
} cute_tensor;

static inline int32_t cute_rank(const cute_tensor *t)
{
	return (int32_t)(t->words[0] >> (8 * CUTE_RANK_BYTE) & 0xff);
}
/* The four tables of one word for each mode. */
static inline int64_t *cute_shape(cute_tensor *t)
{
	return t->words + CUTE_HEADER;
}
static inline int64_t *cute_stride(cute_tensor *t)
{
	return cute_shape(t) + cute_rank(t);
}
static inline int64_t *cute_shape_div(cute_tensor *t)
{
	return cute_shape(t) + 2 * cute_rank(t);
}
static inline int64_t *cute_stride_div(cute_tensor *t)
{
	return cute_shape(t) + 3 * cute_rank(t);
}

static PyTypeObject *cute_type;

/* Keyword names, interned. */
#define NAMES(X) \
	X(leading_dim) \
	X(mode) \
	X(stride_order) \
	X(divisibility) \
	X(tensor) \
	X(assumed_align) \
	X(use_32bit_stride) \
	X(leading) \
	X(unit_strides)
static struct {
#define X(n) PyObject *n;
	NAMES(X)
#undef X
} name;

/* ---- life --------------------------------------------------------------------------- */

/* A tensor without owner and address, which the caller must fill at once. */
static cute_tensor *cute_raw(int32_t rank)
{
	Py_ssize_t n = cute_word_count(rank);
	cute_tensor *t = PyObject_Malloc(sizeof *t + (size_t)n * sizeof *t->words);
	if (!t) {
		PyErr_NoMemory();
		return NULL;
	}
	PyObject_Init((PyObject *)t, cute_type);
	t->ob_base.ob_size = n;
	t->cell = NULL;
	t->first = NULL;
	return t;
}

static void drop(cute_tensor *t)
{
	usmb_cell *cell = t->cell;
	t->cell = NULL;
	if (cell) usmb_cell_drop_gil(cell);
	usmb_owner_drain();
}

static void tensor_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	drop((cute_tensor *)self);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* Returns self; NULL with an exception if it was released. */
static cute_tensor *live(PyObject *self, const char *what)
{
	cute_tensor *t = (cute_tensor *)self;
	if (__builtin_expect(t->cell != NULL, 1)) return t;
	usmb_raise(PyExc_ValueError,
	           "%s was used on a tensor after its release(): keep it until the last use, or clone() it", what);
	return NULL;
}

/* The same for operations that call Go. */
static cute_tensor *live_go(PyObject *self, const char *what)
{
	usmb_owner_drain();
	return usmb_go_allowed() < 0 ? NULL : live(self, what);
}

static PyObject *tensor_release(PyObject *self, PyObject *unused)
{
	(void)unused;
	drop((cute_tensor *)self);
	Py_RETURN_NONE;
}

static PyObject *tensor_clone(PyObject *self, PyObject *unused)
{
	(void)unused;
	cute_tensor *t = live(self, "clone");
	cute_tensor *c = t ? cute_raw(cute_rank(t)) : NULL;
	if (!c) return NULL;
	for (Py_ssize_t i = 0; i < t->ob_base.ob_size; i++) c->words[i] = t->words[i];
	usmb_cell_retain(t->cell);
	c->cell = t->cell;
	c->first = t->first;
	return (PyObject *)c;
}

static PyObject *tensor_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	return live(self, "with") ? Py_NewRef(self) : NULL;
}

static PyObject *tensor_exit(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	(void)args;
	(void)n;
	return tensor_release(self, NULL);
}

/* ---- marks ---------------------------------------------------------------------------- */

/* Reads an integer argument; TypeError or OverflowError that begins with what. */
static int cute_int(PyObject *o, const char *what, int64_t *out)
{
	char type[64];
	int overflow = 0;
	if (!PyIndex_Check(o)) {
		usmb_raise(PyExc_TypeError, "%s must be an integer, not %s", what,
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	PyObject *i = PyNumber_Index(o);
	if (!i) return -1;
	*out = PyLong_AsLongLongAndOverflow(i, &overflow);
	Py_DECREF(i);
	/* The smallest integer means "not given" in Go. */
	if (!overflow && *out != INT64_MIN) return *out == -1 && PyErr_Occurred() ? -1 : 0;
	usmb_raise(PyExc_OverflowError, "%s does not fit 64 bits", what);
	return -1;
}

static PyObject *mark_layout(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	PyObject *const names[1] = {name.leading_dim};
	PyObject *v[1] = {NULL};
	int64_t leading = 0;
	usmb_goerr err;
	cute_tensor *t = live_go(self, "mark_layout_dynamic");
	if (!t) return NULL;
	if ((n != 0 || kwnames) && usmb_args("mark_layout_dynamic", args, n, kwnames, names, 1, 0, 1, v) < 0)
		return NULL;
	int deduce = !usmb_given(v[0]);
	if (!deduce && cute_int(v[0], "leading_dim", &leading) < 0) return NULL;
	if (!(t = live(self, "mark_layout_dynamic"))) return NULL; /* __index__ can have released it */
	if (usmb_go_cute_mark_layout(t->words, t->ob_base.ob_size, deduce, leading, &err) == 0) return Py_NewRef(self);
	usmb_raise_go(&err);
	return NULL;
}

/* Reads stride_order into out; returns the number of modes, or -1. */
static Py_ssize_t parse_order(PyObject *o, int32_t rank, int64_t out[USMB_CUTE_MAX_RANK])
{
	char type[64];
	if (PyUnicode_Check(o) || !PySequence_Check(o)) {
		usmb_raise(PyExc_TypeError, "stride_order must be a sequence of integers, not %s",
		           usmb_type_name(o, type, sizeof type));
		return -1;
	}
	PyObject *tuple = PySequence_Tuple(o);
	if (!tuple) return -1;
	Py_ssize_t n = PyTuple_Size(tuple);
	if (n > USMB_CUTE_MAX_RANK) {
		usmb_raise(PyExc_ValueError, "Expected stride_order to have %d elements, but got %lld.", rank,
		           (long long)n);
		n = -1;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		if (cute_int(PyTuple_GetItem(tuple, i), "a number in stride_order", &out[i]) < 0) n = -1;
	Py_DECREF(tuple);
	return n;
}

static PyObject *mark_compact(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	PyObject *const names[3] = {name.mode, name.stride_order, name.divisibility};
	PyObject *v[3] = {NULL, NULL, NULL};
	int64_t mode, divisibility = 1, order[USMB_CUTE_MAX_RANK];
	Py_ssize_t norder = 0;
	usmb_goerr err;
	cute_tensor *t = live_go(self, "mark_compact_shape_dynamic");
	if (!t || usmb_args("mark_compact_shape_dynamic", args, n, kwnames, names, 3, 1, 3, v) < 0) return NULL;
	int given = usmb_given(v[1]);
	if (cute_int(v[0], "mode", &mode) < 0) return NULL;
	if (given && (norder = parse_order(v[1], cute_rank(t), order)) < 0) return NULL;
	if (v[2] && cute_int(v[2], "divisibility", &divisibility) < 0) return NULL;
	if (!(t = live(self, "mark_compact_shape_dynamic"))) return NULL;
	if (usmb_go_cute_mark_compact(t->words, t->ob_base.ob_size, mode, given ? order : NULL, norder, divisibility,
	                              &err) == 0)
		return Py_NewRef(self);
	usmb_raise_go(&err);
	return NULL;
}

/* ---- attributes --------------------------------------------------------------------------- */

static PyObject *text_of(cute_tensor *t, int what)
{
	char buf[USMB_CUTE_TEXT_MAX];
	int64_t n = 0;
	usmb_goerr err;
	if (usmb_go_cute_text(t->words, t->ob_base.ob_size, what, t->first, buf, &n, &err) == 0)
		return PyUnicode_FromStringAndSize(buf, (Py_ssize_t)n);
	usmb_raise_go(&err);
	return NULL;
}

static PyObject *tensor_str(PyObject *self)
{
	if (!((cute_tensor *)self)->cell) return PyUnicode_FromString("Tensor<released>");
	cute_tensor *t = live_go(self, "str()");
	return t ? text_of(t, USMB_CUTE_TEXT_TENSOR) : NULL;
}

#define TEXT(attribute, what) \
	static PyObject *get_##attribute(PyObject *self, void *closure) \
	{ \
		(void)closure; \
		cute_tensor *t = live_go(self, #attribute); \
		return t ? text_of(t, what) : NULL; \
	}
TEXT(memspace, USMB_CUTE_TEXT_SPACE)
TEXT(element_type, USMB_CUTE_TEXT_ELEMENT)
TEXT(layout, USMB_CUTE_TEXT_LAYOUT)
TEXT(key, USMB_CUTE_TEXT_KEY)

#define GETTER(attribute, expression) \
	static PyObject *get_##attribute(PyObject *self, void *closure) \
	{ \
		(void)closure; \
		cute_tensor *t = live(self, #attribute); \
		return t ? (expression) : NULL; \
	}
GETTER(shape, usmb_tuple_i64(cute_shape(t), cute_rank(t)))
GETTER(stride, usmb_tuple_i64(cute_stride(t), cute_rank(t)))
GETTER(assumed_align, PyLong_FromLongLong(t->words[CUTE_ALIGN]))
GETTER(data_ptr, PyLong_FromVoidPtr(t->first))

/* A tuple with 1 for each dynamic mode. */
static PyObject *mask(const int64_t *div, int32_t rank)
{
	int64_t ones[USMB_CUTE_MAX_RANK];
	for (int32_t i = 0; i < rank; i++) ones[i] = div[i] != 0;
	return usmb_tuple_i64(ones, rank);
}
GETTER(dynamic_shapes_mask, mask(cute_shape_div(t), cute_rank(t)))
GETTER(dynamic_strides_mask, mask(cute_stride_div(t), cute_rank(t)))

static PyObject *get_released(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(!((cute_tensor *)self)->cell);
}

/* ---- the type --------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
        {"mark_layout_dynamic", USMB_PY_CFUNC(mark_layout), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"mark_compact_shape_dynamic", USMB_PY_CFUNC(mark_compact), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"clone", USMB_PY_CFUNC(tensor_clone), METH_NOARGS, NULL},
        {"release", USMB_PY_CFUNC(tensor_release), METH_NOARGS, NULL},
        {"__enter__", USMB_PY_CFUNC(tensor_enter), METH_NOARGS, NULL},
        {"__exit__", USMB_PY_CFUNC(tensor_exit), METH_FASTCALL, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"shape", get_shape, NULL, NULL, NULL},
        {"stride", get_stride, NULL, NULL, NULL},
        {"memspace", get_memspace, NULL, NULL, NULL},
        {"element_type", get_element_type, NULL, NULL, NULL},
        {"layout", get_layout, NULL, NULL, NULL},
        {"key", get_key, NULL, NULL, NULL},
        {"assumed_align", get_assumed_align, NULL, NULL, NULL},
        {"data_ptr", get_data_ptr, NULL, NULL, NULL},
        {"dynamic_shapes_mask", get_dynamic_shapes_mask, NULL, NULL, NULL},
        {"dynamic_strides_mask", get_dynamic_strides_mask, NULL, NULL, NULL},
        {"released", get_released, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, tensor_dealloc}, {Py_tp_repr, tensor_str}, {Py_tp_doc, NULL},
        {Py_tp_methods, methods},        {Py_tp_getset, getset},   {0, NULL},
};

static PyType_Spec spec = {
        "usmbridge.cute.Tensor",
        sizeof(cute_tensor),
        sizeof(int64_t),
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        slots,
};

static int cute_tensor_register(PyObject *module)
{
#define X(n) \
	if (!(name.n = PyUnicode_InternFromString(#n))) return -1;
	NAMES(X)
#undef X
	cute_type = usmb_new_type(&spec);
	if (!cute_type) return -1;
	return PyModule_AddObjectRef(module, "Tensor", (PyObject *)cute_type);
}

/* ==== from_dlpack, the submodule ============================================================== */

/* ---- making tensors ------------------------------------------------------------ */

static int describe(usmb_dl_tensor *view, uint64_t flags, usmb_cute_options *o, cute_tensor *t)
{
	usmb_goerr err;
	if (__builtin_expect(usmb_go_cute_convert(view, flags, o, t->words, t->ob_base.ob_size, &err) == 0, 1))
		return 0;
	return usmb_raise_go(&err);
}

/* Converts view, whose data is the address of its first element and whose strides are set. The
   result has no owner yet. */
static cute_tensor *convert(usmb_dl_tensor *view, uint64_t flags, usmb_cute_options *o)
{
	cute_tensor *t = cute_raw(view->ndim);
	if (!t) return NULL;
	if (describe(view, flags, o, t) < 0) {
		Py_DECREF(t);
		return NULL;
	}
	t->first = view->data;
	return t;
}

/* Host USM belongs to the host; shared USM can migrate to the device. */
static int is_host_usm(const usmb_cell *cell)
{
	const usmb_place *place = cell->place;
	return place && place->kind == USMB_USM_HOST;
}

/* Converts an Array, if DLPack can describe it. */
static PyObject *take_own(usmb_array *a, usmb_cute_options *o)
{
	usmb_dl_tensor view = {a->first, {USMB_DL_CPU, 0}, a->ndim, a->dtype, usmb_shape(a), usmb_strides(a), 0};
	if (usmb_array_device(a, &view.device) < 0) return NULL;
	if (is_host_usm(a->cell)) o->space = USMB_CUTE_SPACE_GENERIC;
	cute_tensor *t = convert(&view, usmb_array_dlflags(a), o);
	if (!t) return NULL;
	usmb_cell_retain(a->cell);
	t->cell = a->cell;
	return (PyObject *)t;
}

/* Makes t the owner of a managed tensor of kDLOneAPI memory, after all checks of an import. Takes
   over the tensor on success only, so no step after the import may fail. Describing host USM again
   as the host's memory cannot fail. */
static int own_usm(cute_tensor *t, void *managed, int versioned, usmb_dl_snapshot *s, usmb_cute_options *o)
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

/* Makes t the owner of a managed tensor on any other device. Only its layout is checked, because
   the memory is never accessed. */
static int own_managed(cute_tensor *t, void *managed, int versioned, const usmb_dl_snapshot *s)
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
	cute_tensor *r = convert(&s.t, s.flags, ctx);
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

/* v: the arguments after the tensor, NULL if not given. */
static int parse_options(PyObject **v, usmb_cute_options *o)
{
	static const char *const leading[] = {"unique", "skip_size_one"}; /* USMB_CUTE_LEADING_* */
	int yes;
	if (usmb_given(v[0])) {
		if (cute_int(v[0], "assumed_align", &o->align) < 0) return -1;
		o->has_align = 1;
	}
	if (usmb_given(v[1])) {
		if (want_bool(v[1], "use_32bit_stride", &yes) < 0) return -1;
		o->strides = yes ? USMB_CUTE_STRIDES_32 : USMB_CUTE_STRIDES_64;
	}
	if (v[2] &&
	    usmb_parse_choice(v[2], leading, 2, "cute.from_dlpack: leading must be \"unique\" or \"skip_size_one\"",
	                      &o->leading) < 0)
		return -1;
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
	PyObject *x = n > 0 ? args[0] : NULL; /* args may be NULL if there are no arguments */
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
	usmb_array_unhold(own);
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
        {"from_dlpack", USMB_PY_CFUNC(py_from_dlpack), METH_FASTCALL | METH_KEYWORDS, NULL},
        {"from_dlpack_dynamic", USMB_PY_CFUNC(py_from_dlpack_dynamic), METH_FASTCALL | METH_KEYWORDS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "usmbridge.cute", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

int usmb_cute_register(PyObject *module)
{
	definition.m_doc = usmb_doc("cute", "");
	usmb_document("cute", functions);
	PyObject *m = PyModule_Create2(&definition, USMB_PYTHON_ABI_VERSION);
	if (!m) return -1;
	/* The import system looks in sys.modules before it asks the parent for a path, which this
	   parent does not have. */
	PyObject *modules = PyImport_GetModuleDict();
	int r = cute_tensor_register(m);
	if (r == 0) r = PyDict_SetItemString(modules, "usmbridge.cute", m);
	if (r == 0) r = PyModule_AddObjectRef(module, "cute", m);
	Py_DECREF(m);
	return r;
}
