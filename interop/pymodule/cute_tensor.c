/* cute_tensor.c: the type usmbridge.cute.Tensor. */
#include "docstrings.h"
#include "usmb_cute.h"
#include "usmb_storage.h"
#include "usmb_support.h"

PyTypeObject *usmb_cute_type;

static struct {
	PyObject *leading_dim, *mode, *stride_order, *divisibility;
} name;

/* ---- life --------------------------------------------------------------------------- */

usmb_cute_tensor *usmb_cute_raw(int32_t rank)
{
	Py_ssize_t n = usmb_cute_word_count(rank);
	usmb_cute_tensor *t = PyObject_Malloc(sizeof *t + (size_t)n * sizeof *t->words);
	if (!t) {
		PyErr_NoMemory();
		return NULL;
	}
	PyObject_Init((PyObject *)t, usmb_cute_type);
	t->ob_base.ob_size = n;
	t->cell = NULL;
	t->first = NULL;
	return t;
}

static void drop(usmb_cute_tensor *t)
{
	usmb_cell *cell = t->cell;
	t->cell = NULL;
	if (cell) usmb_cell_drop_gil(cell);
	usmb_owner_drain();
}

static void tensor_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	drop((usmb_cute_tensor *)self);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* self, unless it was released. */
static usmb_cute_tensor *live(PyObject *self, const char *what)
{
	usmb_cute_tensor *t = (usmb_cute_tensor *)self;
	if (__builtin_expect(t->cell != NULL, 1)) return t;
	usmb_raise(PyExc_ValueError,
	           "%s was used on a tensor after its release(): keep it until the last use, or clone() it", what);
	return NULL;
}

/* live, for what needs Go. */
static usmb_cute_tensor *live_go(PyObject *self, const char *what)
{
	usmb_owner_drain();
	return usmb_go_allowed() < 0 ? NULL : live(self, what);
}

static PyObject *tensor_release(PyObject *self, PyObject *unused)
{
	(void)unused;
	drop((usmb_cute_tensor *)self);
	Py_RETURN_NONE;
}

static PyObject *tensor_clone(PyObject *self, PyObject *unused)
{
	(void)unused;
	usmb_cute_tensor *t = live(self, "clone");
	usmb_cute_tensor *c = t ? usmb_cute_raw(usmb_cute_rank(t)) : NULL;
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

int usmb_cute_int(PyObject *o, const char *what, int64_t *out)
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
	/* The smallest number stands for "not given" in Go. */
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
	usmb_cute_tensor *t = live_go(self, "mark_layout_dynamic");
	if (!t) return NULL;
	if ((n != 0 || kwnames) && usmb_args("mark_layout_dynamic", args, n, kwnames, names, 1, 0, 1, v) < 0)
		return NULL;
	int deduce = !v[0] || v[0] == Py_None;
	if (!deduce && usmb_cute_int(v[0], "leading_dim", &leading) < 0) return NULL;
	err.kind = USMB_ERR_NONE;
	if (!(t = live(self, "mark_layout_dynamic"))) return NULL; /* __index__ may have released it */
	if (usmb_go_cute_mark_layout(t->words, t->ob_base.ob_size, deduce, leading, &err) == 0) return Py_NewRef(self);
	usmb_raise_go(&err);
	return NULL;
}

/* Reads stride_order into out; the number of modes, or -1. */
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
		if (usmb_cute_int(PyTuple_GetItem(tuple, i), "a number in stride_order", &out[i]) < 0) n = -1;
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
	usmb_cute_tensor *t = live_go(self, "mark_compact_shape_dynamic");
	if (!t || usmb_args("mark_compact_shape_dynamic", args, n, kwnames, names, 3, 1, 3, v) < 0) return NULL;
	int given = v[1] && v[1] != Py_None;
	if (usmb_cute_int(v[0], "mode", &mode) < 0) return NULL;
	if (given && (norder = parse_order(v[1], usmb_cute_rank(t), order)) < 0) return NULL;
	if (v[2] && usmb_cute_int(v[2], "divisibility", &divisibility) < 0) return NULL;
	err.kind = USMB_ERR_NONE;
	if (!(t = live(self, "mark_compact_shape_dynamic"))) return NULL;
	if (usmb_go_cute_mark_compact(t->words, t->ob_base.ob_size, mode, given ? order : NULL, norder, divisibility,
	                              &err) == 0)
		return Py_NewRef(self);
	usmb_raise_go(&err);
	return NULL;
}

/* ---- attributes --------------------------------------------------------------------------- */

static PyObject *text_of(usmb_cute_tensor *t, int what)
{
	char buf[USMB_CUTE_TEXT_MAX];
	int64_t n = 0;
	usmb_goerr err;
	err.kind = USMB_ERR_NONE;
	if (usmb_go_cute_text(t->words, t->ob_base.ob_size, what, t->first, buf, &n, &err) == 0)
		return PyUnicode_FromStringAndSize(buf, (Py_ssize_t)n);
	usmb_raise_go(&err);
	return NULL;
}

static PyObject *tensor_str(PyObject *self)
{
	if (!((usmb_cute_tensor *)self)->cell) return PyUnicode_FromString("Tensor<released>");
	usmb_cute_tensor *t = live_go(self, "str()");
	return t ? text_of(t, USMB_CUTE_TEXT_TENSOR) : NULL;
}

#define TEXT(attribute, what) \
	static PyObject *get_##attribute(PyObject *self, void *closure) \
	{ \
		(void)closure; \
		usmb_cute_tensor *t = live_go(self, #attribute); \
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
		usmb_cute_tensor *t = live(self, #attribute); \
		return t ? (expression) : NULL; \
	}
GETTER(shape, usmb_tuple_i64(usmb_cute_shape(t), usmb_cute_rank(t)))
GETTER(stride, usmb_tuple_i64(usmb_cute_stride(t), usmb_cute_rank(t)))
GETTER(assumed_align, PyLong_FromLongLong(t->words[USMB_CUTE_ALIGN]))
GETTER(data_ptr, PyLong_FromVoidPtr(t->first))

/* 1 for what is dynamic. */
static PyObject *mask(const int64_t *div, int32_t rank)
{
	int64_t ones[USMB_CUTE_MAX_RANK];
	for (int32_t i = 0; i < rank; i++) ones[i] = div[i] != 0;
	return usmb_tuple_i64(ones, rank);
}
GETTER(dynamic_shapes_mask, mask(usmb_cute_shape_div(t), usmb_cute_rank(t)))
GETTER(dynamic_strides_mask, mask(usmb_cute_stride_div(t), usmb_cute_rank(t)))

static PyObject *get_released(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(!((usmb_cute_tensor *)self)->cell);
}

/* ---- the type --------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
        {"mark_layout_dynamic", USMB_PY_CFUNC(mark_layout), METH_FASTCALL | METH_KEYWORDS,
	 doc_cute_Tensor_mark_layout_dynamic},
        {"mark_compact_shape_dynamic", USMB_PY_CFUNC(mark_compact), METH_FASTCALL | METH_KEYWORDS,
	 doc_cute_Tensor_mark_compact_shape_dynamic},
        {"clone", USMB_PY_CFUNC(tensor_clone), METH_NOARGS, doc_cute_Tensor_clone},
        {"release", USMB_PY_CFUNC(tensor_release), METH_NOARGS, doc_cute_Tensor_release},
        {"__enter__", USMB_PY_CFUNC(tensor_enter), METH_NOARGS, doc_cute_Tensor___enter__},
        {"__exit__", USMB_PY_CFUNC(tensor_exit), METH_FASTCALL, doc_cute_Tensor___exit__},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"shape", get_shape, NULL, doc_cute_Tensor_shape, NULL},
        {"stride", get_stride, NULL, doc_cute_Tensor_stride, NULL},
        {"memspace", get_memspace, NULL, doc_cute_Tensor_memspace, NULL},
        {"element_type", get_element_type, NULL, doc_cute_Tensor_element_type, NULL},
        {"layout", get_layout, NULL, doc_cute_Tensor_layout, NULL},
        {"key", get_key, NULL, doc_cute_Tensor_key, NULL},
        {"assumed_align", get_assumed_align, NULL, doc_cute_Tensor_assumed_align, NULL},
        {"data_ptr", get_data_ptr, NULL, doc_cute_Tensor_data_ptr, NULL},
        {"dynamic_shapes_mask", get_dynamic_shapes_mask, NULL, doc_cute_Tensor_dynamic_shapes_mask, NULL},
        {"dynamic_strides_mask", get_dynamic_strides_mask, NULL, doc_cute_Tensor_dynamic_strides_mask, NULL},
        {"released", get_released, NULL, doc_cute_Tensor_released, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, tensor_dealloc}, {Py_tp_repr, tensor_str}, {Py_tp_doc, (void *)doc_cute_Tensor},
        {Py_tp_methods, methods},        {Py_tp_getset, getset},   {0, NULL},
};

static PyType_Spec spec = {
        "usmbridge.cute.Tensor",
        sizeof(usmb_cute_tensor),
        sizeof(int64_t),
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        slots,
};

int usmb_cute_tensor_register(PyObject *module)
{
	if (!(name.leading_dim = PyUnicode_InternFromString("leading_dim")) ||
	    !(name.mode = PyUnicode_InternFromString("mode")) ||
	    !(name.stride_order = PyUnicode_InternFromString("stride_order")) ||
	    !(name.divisibility = PyUnicode_InternFromString("divisibility")))
		return -1;
	usmb_cute_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (!usmb_cute_type) return -1;
	return PyModule_AddObjectRef(module, "Tensor", (PyObject *)usmb_cute_type);
}
