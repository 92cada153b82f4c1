/* pickle.c: what pickles of arrays need from C: the bytes of an array, and an array of bytes. The module
   usmbridge._pickle makes and reads the pickles. */
#include <string.h>

#include "array.h"
#include "create.h"
#include "exchange.h"
#include "module.h"
#include "storage.h"
#include "support.h"

static const usmb_dl_dtype bytes_type = {USMB_DL_UINT, 8, 1};

PyObject *usmb_array_reduce(PyObject *self, PyObject *protocol)
{
	static PyObject *f;
	usmb_array *a = (usmb_array *)self;
	int64_t version;
	usmb_owner_drain();
	if (usmb_parse_dim(protocol, &version, "__reduce_ex__") < 0) return NULL;
	/* A view, because reading the protocol can have released the array. */
	PyObject *args[] = {usmb_array_alone(a), PyLong_FromLongLong(version)};
	PyObject *r = args[0] && args[1] ? usmb_call_python(&f, "usmbridge._pickle", "reduce", args, 2) : NULL;
	Py_XDECREF(args[0]);
	Py_XDECREF(args[1]);
	return r;
}

PyObject *usmb_py_unpickle(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
	static PyObject *f;
	(void)m;
	usmb_owner_drain();
	return usmb_call_python(&f, "usmbridge._pickle", "unpickle", args, n);
}

/* _bytes_of(array): an Array of its bytes, the name of the element type, the order of the elements, whether they
   are padded, and the kind and the device of USM. None: the elements are not contiguous (bytes and order), the
   type has no name, or the memory is not USM. */
PyObject *usmb_py_bytes_of(PyObject *m, PyObject *o)
{
	usmb_array *a = (usmb_array *)o;
	PyObject *bytes = NULL;
	(void)m;
	if (!usmb_is_array(o)) return usmb_raise(PyExc_TypeError, "_bytes_of takes an Array");
	if (!usmb_array_alive(a)) return NULL;
	int64_t n = usmb_nbytes(a), one = 1;
	if (!(a->flags & (USMB_ARR_C | USMB_ARR_F)))
		bytes = Py_NewRef(Py_None);
	else
		bytes = usmb_array_view_as(a, bytes_type, a->flags & USMB_ARR_READONLY, a->first, 1, &n, &one);
	const char *order = a->flags & USMB_ARR_C ? "C" : a->flags & USMB_ARR_F ? "F" : NULL;
	usmb_place *place = usmb_array_place(a);
	return bytes ? Py_BuildValue("(Nzzizz)", bytes, usmb_dl_dtype_name(a->dtype), order,
	                             (a->flags & USMB_ARR_PADDED) != 0, place ? usmb_kind_names[place->kind & 3] : NULL,
	                             place ? place->filter : NULL)
	             : NULL;
}

/* _of_buffer(object): the Array that exported the object's buffer, or a new one on its memory. */
PyObject *usmb_py_of_buffer(PyObject *m, PyObject *o)
{
	Py_buffer view;
	(void)m;
	if (PyObject_GetBuffer(o, &view, PyBUF_SIMPLE) < 0) return NULL;
	PyObject *own = view.obj && usmb_is_array(view.obj) ? Py_NewRef(view.obj) : NULL;
	PyBuffer_Release(&view);
	return own ? own : usmb_import_buffer(o);
}

/* Whether elements of dtype can start at the first byte of a: it must be aligned, or for packed
   elements, a whole number of elements after the start of the memory. No elements can start anywhere:
   an empty bytearray of Python can be at an odd address. */
static int may_begin(usmb_array *a, usmb_dl_dtype dtype)
{
	if (!a->nelem) return 1;
	if (dtype.bits >= 8) return (uintptr_t)a->first % (dtype.bits / 8) == 0;
	return (uint64_t)(a->first - (char *)a->cell->data) * 8 % dtype.bits == 0;
}

/* _of_bytes(bytes, dtype, shape, fortran, padded, readonly): an Array on the memory of an Array of bytes. None if
   elements of dtype cannot start at its address. */
PyObject *usmb_py_of_bytes(PyObject *m, PyObject *args)
{
	usmb_array *a;
	PyObject *name, *extents, *r = NULL;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
	int fortran, padded, readonly, ndim;
	usmb_dl_dtype t;
	(void)m;
	if (!PyArg_ParseTuple(args, "O!OOppp:_of_bytes", usmb_array_type, &a, &name, &extents, &fortran, &padded,
	                      &readonly) ||
	    usmb_parse_dtype(name, NULL, &t) < 0 || (ndim = usmb_parse_dims(extents, shape, "_unpickle")) < 0)
		return NULL;
	int64_t n = usmb_dense_bytes(ndim, shape, padded && t.bits < 8 ? bytes_type : t);
	if (n < 0 || usmb_array_begin(a) < 0) return NULL;
	usmb_fill_strides(ndim, shape, strides, fortran);
	uint32_t extra = (padded ? USMB_ARR_PADDED : 0) | (readonly ? USMB_ARR_READONLY : 0);
	if (a->ndim != 1 || a->itembits != 8 || a->nelem != n || !(a->flags & USMB_ARR_C))
		usmb_raise(PyExc_ValueError, "the pickled array has %lld bytes, its buffer has another size",
		           (long long)n);
	else if (!may_begin(a, t))
		r = Py_NewRef(Py_None);
	else
		r = usmb_array_view_as(a, t, extra, a->first, ndim, shape, strides);
	usmb_array_unhold(a);
	return r;
}
