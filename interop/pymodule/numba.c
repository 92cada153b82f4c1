/* numba.c: Arrays as arguments and results of functions that Numba compiles. Compiled code calls these
   functions with the GIL held. It only has Numba's structure of an array. */
#include <stdint.h>

#include "array.h"
#include "exchange.h"
#include "module.h"
#include "support.h"

/* Numba's array structure, as its extension modules declare it. The extents follow, then the
   strides in bytes. */
typedef struct {
	void *meminfo;
	PyObject *parent;
	intptr_t nitems;
	intptr_t itemsize;
	void *data;
	intptr_t dims[];
} native_array;

/* ---- holds ------------------------------------------------------------------------ */

/* Keeps an Array and its memory for compiled code, as long as the structure's meminfo. That can be
   longer than the call: a returned view, an array in a list. */
typedef struct {
	PyObject_HEAD usmb_array *array; /* owned, with a loan (usmb_array_lend) */
} hold;

static PyTypeObject *hold_type;
/* Freed holds for reuse; guarded by the GIL. */
enum { HOLDS = 16 };
static hold *dead[HOLDS];
static int ndead;

/* Takes over the loan of an array. */
static PyObject *hold_of(usmb_array *a)
{
	hold *h = ndead > 0 ? dead[--ndead] : PyObject_Malloc(sizeof *h);
	if (!h) {
		usmb_array_end_loan(a);
		return PyErr_NoMemory();
	}
	PyObject_Init((PyObject *)h, hold_type);
	h->array = (usmb_array *)Py_NewRef(a);
	return (PyObject *)h;
}

static void hold_dealloc(PyObject *self)
{
	hold *h = (hold *)self;
	PyTypeObject *type = Py_TYPE(self);
	usmb_array_end_loan(h->array);
	Py_DECREF(h->array);
	if (ndead < HOLDS)
		dead[ndead++] = h;
	else
		PyObject_Free(h);
	Py_DECREF(type);
}

static PyType_Slot hold_slots[] = {{Py_tp_dealloc, hold_dealloc}, {0, NULL}};
static PyType_Spec hold_spec = {"usmbridge._native.Hold", sizeof(hold), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, hold_slots};

/* ---- in and out ------------------------------------------------------------------- */

/* Whether elements of type t are those of NumPy's kind letter and number of bits. */
static int same_elements(usmb_dl_dtype t, int32_t kind, int32_t bits)
{
	static const struct {
		uint8_t code;
		char kind;
	} kinds[] = {{USMB_DL_BOOL, 'b'},
	             {USMB_DL_INT, 'i'},
	             {USMB_DL_UINT, 'u'},
	             {USMB_DL_FLOAT, 'f'},
	             {USMB_DL_COMPLEX, 'c'}};
	if (t.bits != bits) return 0;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].kind == kind) return kinds[i].code == t.code;
	return 0;
}

/* Fills Numba's structure of an array (out) from an Array. Returns a new object that holds the
   Array and its memory even after release(); the caller makes it the owner of the structure's
   meminfo. kind, bits: the element type as NumPy describes it; layout: 'C', 'F' or 'A'. */
static PyObject *numba_take(PyObject *obj, void *out, int32_t kind, int32_t bits, int32_t ndim, int32_t layout,
                            int32_t writable)
{
	native_array *native = out;
	usmb_array *a = (usmb_array *)obj;
	if (!usmb_is_array(obj) || a->ndim != ndim || !same_elements(a->dtype, kind, bits)) {
		char name[200];
		return usmb_raise(
		        PyExc_TypeError,
		        "this compiled function takes a usmbridge.Array with other elements or dimensions, not %s",
		        usmb_type_name(obj, name, sizeof name));
	}
	if (!usmb_array_aligned(a))
		return usmb_raise(
		        PyExc_ValueError,
		        "a compiled function takes aligned elements, and those of this Array are not; pass a.copy()");
	int flags = PyBUF_ND | PyBUF_STRIDES;
	if (writable) flags |= PyBUF_WRITABLE;
	if (layout == 'C') flags |= PyBUF_C_CONTIGUOUS;
	if (layout == 'F') flags |= PyBUF_F_CONTIGUOUS;
	if (usmb_array_lend(a, flags) < 0) return NULL;
	native->meminfo = NULL;
	native->parent = obj;
	native->nitems = (intptr_t)a->nelem;
	native->itemsize = (intptr_t)usmb_itemsize(a);
	native->data = a->first;
	for (int32_t i = 0; i < ndim; i++) {
		native->dims[i] = usmb_shape(a)[i];
		native->dims[ndim + i] = usmb_array_byte_stride(a, i);
	}
	return hold_of(a);
}

/* Returns the Array that a structure was filled from, a new reference. NULL without an exception if
   there is none, or if the structure is not of the whole Array. */
static PyObject *numba_box(void *in, int32_t ndim)
{
	native_array *native = in;
	if (!native->parent || !usmb_is_array(native->parent)) return NULL;
	usmb_array *a = (usmb_array *)native->parent;
	if (a->ndim != ndim || a->first != native->data) return NULL;
	for (int32_t i = 0; i < ndim; i++) {
		if (usmb_shape(a)[i] != native->dims[i]) return NULL;
		if (a->nelem > 1 && native->dims[i] > 1 && usmb_array_byte_stride(a, i) != native->dims[ndim + i])
			return NULL;
	}
	return Py_NewRef(native->parent);
}

static int add_address(PyObject *module, const char *name, void *address)
{
	PyObject *v = PyLong_FromVoidPtr(address);
	int r = v ? PyModule_AddObjectRef(module, name, v) : -1;
	Py_XDECREF(v);
	return r;
}

int usmb_numba_register(PyObject *module)
{
	hold_type = usmb_new_type(&hold_spec);
	if (!hold_type) return -1;
	if (add_address(module, "_numba_take", (void *)(uintptr_t)numba_take) < 0) return -1;
	return add_address(module, "_numba_box", (void *)(uintptr_t)numba_box);
}
