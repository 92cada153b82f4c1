/* pyarray.c: arrays between Go and Python, on the same memory. */
#include "usmb_pymod.h"

/* Go hands a usmb_go_array over in a capsule of this name. */
static usmb_go_array *of_capsule(PyObject *capsule)
{
	return usmb_py.PyCapsule_GetPointer(capsule, usmb_pymod_capsule);
}

const char usmb_pymod_capsule[] = "usmbridge.go_array";

PyObject *usmb_py_wrap(PyObject *m, PyObject *capsule)
{
	(void)m;
	usmb_go_array *g = of_capsule(capsule);
	usmb_owner_drain();
	usmb_array *a = g ? usmb_array_raw(g->ndim) : NULL;
	if (!a) return NULL;
	for (int32_t i = 0; i < g->ndim; i++) {
		usmb_shape(a)[i] = g->shape[i];
		usmb_strides(a)[i] = g->strides[i];
	}
	usmb_cell_retain(g->cell);
	usmb_array_settle(a, g->cell, (char *)(uintptr_t)g->first, g->dtype, g->flags);
	return (PyObject *)a;
}

PyObject *usmb_py_take(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
	(void)m;
	if (n != 2) return usmb_raise(usmb_py.PyExc_TypeError, "_take() takes an object and a capsule");
	usmb_go_array *g = of_capsule(args[1]);
	if (!g) return NULL;
	usmb_owner_drain();
	PyObject *x = usmb_take_object(args[0]);
	if (!x) return NULL;
	usmb_array *a = (usmb_array *)x;
	/* Go knows pending events, but not the queue of a producer. */
	if (usmb_owned_by_python(a->cell) && usmb_cell_producer(a->cell) && usmb_array_wait(a) < 0) {
		Py_DECREF(x);
		return NULL;
	}
	usmb_cell_retain(a->cell);
	g->cell = a->cell;
	g->first = (uint64_t)(uintptr_t)a->first;
	g->dtype = a->dtype;
	g->flags = a->flags;
	g->ndim = a->ndim;
	g->itembits = a->itembits;
	for (int32_t i = 0; i < a->ndim; i++) {
		g->shape[i] = usmb_shape(a)[i];
		g->strides[i] = usmb_strides(a)[i];
	}
	Py_DECREF(x);
	USMB_PY_RETURN_NONE;
}
