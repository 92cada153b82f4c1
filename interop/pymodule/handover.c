/* handover.c: arrays between Go and Python, on the same memory. Go calls these functions as it
   calls the operations of interop/python: they take the GIL themselves. */
#include "array.h"
#include "exchange.h"
#include "handover.h"
#include "order.h"
#include "storage.h"
#include "support.h"

/* Whether a ModuleNotFoundError is for usmbridge itself, not for a module that it imports. Does not
   use usmb_name, which is empty until the module is imported. */
static int not_found(PyObject *value)
{
	PyObject *name = PyObject_GetAttrString(value, "name");
	int r = name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "usmbridge") == 0;
	Py_XDECREF(name);
	PyErr_Clear();
	return r;
}

/* Raises ImportError if the interpreter lacks this program's module usmbridge, or has another
   module of that name. Any other exception of the import is left: it is the reason why the package
   cannot be imported. */
static int not_imported(void)
{
	PyObject *type = NULL, *value = NULL, *trace = NULL;
	int raised = PyErr_Occurred() != NULL;
	if (raised && !PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) return 0;
	PyErr_Fetch(&type, &value, &trace);
	if (raised) PyErr_NormalizeException(&type, &value, &trace);
	if (raised && !not_found(value)) {
		PyErr_Restore(type, value, trace);
		return 0;
	}
	PyObject *text = value ? PyObject_Str(value) : NULL;
	const char *why = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
	if (!why)
		why = raised ? "the import failed"
		             : "the module of that name is another one, or this thread is importing it";
	usmb_raise(PyExc_ImportError,
	           "this interpreter lacks the program's module usmbridge (%s); call pymodule.Register before Python "
	           "starts, or add pymodule.InitFunc to the inittab of the program that starts Python",
	           why);
	Py_XDECREF(text);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	return 0;
}

int usmb_handover_ready;

/* Imports the package, or waits for the thread that is importing it. That thread itself does not
   wait: the types exist before the import completes, because they are made first and Numba is
   registered last. */
static int imported(void)
{
	if (__builtin_expect(usmb_handover_ready, 1)) return 1;
	PyObject *module = PyImport_ImportModule("usmbridge");
	Py_XDECREF(module);
	return module && usmb_array_type ? 1 : not_imported();
}

PyObject *usmb_handover_array(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                              const int64_t *shape, const int64_t *strides)
{
	usmb_owner_drain();
	usmb_array *a = imported() ? usmb_array_laid_out(ndim, shape, strides) : NULL;
	if (!a) return NULL;
	usmb_array_settle(a, cell, (char *)first, dtype, flags);
	return (PyObject *)a;
}

usmb_pyret usmb_handover_to_python(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                                   const int64_t *shape, const int64_t *strides)
{
	USMB_PY_BEGIN(r);
	r.val = usmb_handover_array(cell, first, dtype, flags, ndim, shape, strides);
	return usmb_py_end(r, st, r.val != NULL);
}

int usmb_handover_settle(usmb_cell *cell)
{
	return usmb_cell_wait(cell);
}

static void describe(usmb_array *a, usmb_handover *out)
{
	usmb_cell_retain(a->cell);
	out->cell = a->cell;
	out->first = (uintptr_t)a->first;
	out->dtype = a->dtype;
	out->flags = a->flags;
	out->itembits = a->itembits;
	out->ndim = a->ndim;
	for (int32_t i = 0; i < a->ndim; i++) {
		out->shape[i] = usmb_shape(a)[i];
		out->strides[i] = usmb_strides(a)[i];
	}
}

usmb_pyret usmb_handover_from_python(void *o, usmb_handover *out)
{
	USMB_PY_BEGIN(r);
	usmb_owner_drain();
	usmb_array *a = imported() ? (usmb_array *)usmb_take_object(o) : NULL;
	if (a && usmb_array_begin(a) < 0) Py_CLEAR(a);
	int ok = a && usmb_array_tell_go(a) == 0 && usmb_array_wait(a) == 0;
	if (ok) describe(a, out);
	if (a) usmb_array_unhold(a);
	Py_XDECREF(a);
	return usmb_py_end(r, st, ok);
}
