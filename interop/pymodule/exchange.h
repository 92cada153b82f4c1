/*
 * exchange.h: the exchange protocols: imports, and the parts of exports that several files use.
 */
#ifndef USMB_PYMODULE_EXCHANGE_H
#define USMB_PYMODULE_EXCHANGE_H

#include "support.h"
#include "array.h"
#include "create.h"
#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"

/* ---- dlpack ---- */

PyObject *usmb_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_dlpack_device(PyObject *self, PyObject *unused);
/* The DLPack device of the array; -1 with BufferError if it has none. */
int usmb_array_device(usmb_array *a, usmb_dl_device *out);
/* 0 if the elements are aligned as DLPack requires, else -1 with BufferError. */
int usmb_array_check_aligned(usmb_array *a);
/* The array's flags in DLPack's encoding. */
static inline uint64_t usmb_array_dlflags(const usmb_array *a)
{
	return (a->flags & USMB_ARR_READONLY ? USMB_DL_FLAG_READ_ONLY : 0) |
	       (a->flags & USMB_ARR_PADDED ? USMB_DL_FLAG_SUBBYTE_PADDED : 0);
}
int usmb_dlpack_register(void); /* publishes the exchange API on the type */
void usmb_dlpack_clear(void);

PyObject *usmb_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* Imports x by DLPack, without a copy. */
PyObject *usmb_import_object(PyObject *x);

/* Makes an object of a managed tensor; takes over the tensor on success only. */
typedef PyObject *(*usmb_take_fn)(void *managed, int versioned, void *ctx);

/* Gets a DLPack tensor from x, an object or a capsule, and returns the result of take for it. Does
   not wait for pending work. x may be an Array. */
PyObject *usmb_tensor_take(PyObject *x, usmb_take_fn take, void *ctx);

/* The owner of a tensor on kDLCPU or kDLOneAPI. Makes all the checks of an import that s, a
   snapshot of the tensor, does not have yet; does not read the tensor again. Takes over the tensor
   on success only; NULL with an exception. An empty tensor without an address gets one in s. May
   drop the GIL. */
usmb_cell *usmb_tensor_cell(void *managed, int versioned, usmb_dl_snapshot *s);

/* The device under which libraries of CUDA know the array: kDLCUDA with CUDA's ordinal, or (kDLCUDAHost, 0)
   for host USM. Returns USMB_SYCL_OK, or the reason why it has none. */
int usmb_array_cuda_device(usmb_array *a, usmb_dl_device *out);
/* The place of memory of CUDA, for usmb_cuda_import, and memory for a tensor without elements. Load SYCL if
   needed; BufferError that says what is missing. ordinal is -1 if it is unknown. */
int usmb_cuda_place(int32_t ordinal, const char *lo, const char *hi, usmb_place **out);
usmb_cell *usmb_cuda_stand_in(int32_t ordinal);
/* Waits for the stream on which the owner of an imported array has work, 0 for all streams, with the GIL
   dropped. -1 with RuntimeError if the wait fails: the import fails too. */
int usmb_cuda_arrived(usmb_array *a, uintptr_t stream);
/* Allocates memory for a DLPack device; device memory for kDLOneAPI. */
int usmb_go_alloc_for(int32_t device_type, int32_t device_id, int64_t bytes, usmb_cell **out, usmb_goerr *err);

/* ---- cuda ---- */

PyObject *usmb_array_cuda(PyObject *self, void *closure);           /* cuda */
PyObject *usmb_array_cuda_interface(PyObject *self, void *closure); /* __cuda_array_interface__ */
/* An array on the memory of __cuda_array_interface__, without a copy; NULL without an exception if obj has
   none. */
PyObject *usmb_import_cuda_interface(PyObject *obj);

/* ---- buffer ---- */

int usmb_array_getbuffer(PyObject *self, Py_buffer *view, int flags);
/* Checks that the host can use the memory as the flags of a buffer ask, waits for pending work, and begins a loan: holds
   the array and observes its memory until usmb_array_end_loan. Returns -1 with an exception if not. */
int usmb_array_lend(usmb_array *a, int flags);
void usmb_array_end_loan(usmb_array *a);
/* The stride of an axis in bytes. If it overflows, the axis has one element or the array has none, so that it is not
   used. */
int64_t usmb_array_byte_stride(usmb_array *a, int32_t i);
void usmb_array_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *usmb_array_interface(PyObject *self, void *closure);
/* An array on the buffer of obj, without a copy; NULL with TypeError if it has none. */
PyObject *usmb_import_buffer(PyObject *obj);

/* ---- suai ---- */

PyObject *usmb_array_suai(PyObject *self, void *closure);
PyObject *usmb_from_suai(PyObject *module, PyObject *obj);
PyObject *usmb_py_described(PyObject *module, PyObject *const *args, Py_ssize_t n);
/* Imports obj by its dictionary, which is borrowed. */
PyObject *usmb_import_suai(PyObject *obj, PyObject *iface);
/* Imports an object of dpctl.memory without reading its dictionary, with the same checks. NULL
   without an exception for other objects. */
PyObject *usmb_import_memory(PyObject *obj);
void usmb_suai_clear(void);

/* The contents of a __sycl_usm_array_interface__; everything is borrowed. */
typedef struct {
	uint64_t data;
	int64_t offset;
	int64_t *shape;   /* ndim extents */
	int64_t *strides; /* NULL: C order */
	char *typestr;
	uint64_t ntypestr;
	char *fieldtype; /* of the first field of typedescr */
	uint64_t nfieldtype;
	uint64_t owner;      /* the owner's allocation, if its size is known */
	uint64_t owner_size; /* UINT64_MAX: unknown */
	int32_t ndim;
	int32_t nfields; /* fields of typedescr, 0 for none */
	int32_t named;   /* the first one has a name */
	int32_t shaped;  /* the first one has a shape */
	int32_t readonly;
} usmb_suai_in;
typedef struct {
	uint64_t first;  /* address of element [0, ..., 0] */
	uint64_t lo, hi; /* addresses used: [lo, hi) */
	usmb_dl_dtype dtype;
} usmb_suai_out;
int usmb_go_suai(usmb_suai_in *in, usmb_suai_out *out, usmb_goerr *err);

/* ---- arrow ---- */

PyObject *usmb_array_arrow(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* Imports o read-only by __arrow_c_device_array__, else by __arrow_c_array__; NULL without an
   exception if it has neither. may_copy: booleans, which are bits in Arrow, may be copied to bytes. want: the
   element type that the caller converts to, or NULL; nulls become NaN in a copy of that type, or of the type of the
   values, if it is a floating-point type.
   Raises BufferError for invalid structs, other nulls and memory of other devices, TypeError for other
   element types, and ValueError for a copy without may_copy. Sets *missing if the exception is about nulls: other
   protocols of the object can lose them. */
PyObject *usmb_import_arrow(PyObject *o, int may_copy, const usmb_dl_dtype *want, int *missing);
/* The same by __arrow_c_stream__. */
PyObject *usmb_import_arrow_stream(PyObject *o, int may_copy, const usmb_dl_dtype *want, int *missing);

/* ---- numpy ---- */

PyObject *usmb_array_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw); /* __array__ */
PyObject *usmb_array_function(PyObject *self, PyObject *const *args, Py_ssize_t n);            /* __array_function__ */
PyObject *usmb_array_ufunc(PyObject *self, PyObject *args, PyObject *kwargs);                  /* __array_ufunc__ */
PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused);
/* The elements as NumPy prints them, by its print options, or with number the element of an Array of 0
   dimensions. NULL without an exception if NumPy is not loaded or has no such element type. */
PyObject *usmb_numpy_text(PyObject *self, int number);
/* Imports an ndarray of an element type of ml_dtypes, which no protocol of NumPy can describe,
   without a copy. NULL without an exception for other objects. */
PyObject *usmb_import_ml(PyObject *o);

enum {
	USMB_NUMPY_NONE,
	USMB_NUMPY_SHARES,  /* __array_interface__ or __array_struct__, which describe memory */
	USMB_NUMPY_MAY_COPY /* __array__ only */
};
/* The array protocol of NumPy that o has; USMB_NUMPY_NONE also if NumPy cannot be imported. -1 with
   an exception. */
int usmb_numpy_protocol(PyObject *o);
/* The ndarray that a function of _numpy.py makes of o, or None; *f caches the function. NULL without an exception
   if NumPy cannot be imported. want: the element type that the caller converts to, or NULL. */
PyObject *usmb_numpy_made(PyObject **f, const char *function, PyObject *o, int may_copy, const usmb_dl_dtype *want);

/* ---- asarray ---- */

PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* Imports o by SUAI, DLPack, its buffer, NumPy's array protocols or Arrow, never by a copy;
   TypeError if it has none of them. */
PyObject *usmb_take_object(PyObject *o);

/* Reports whether o's type has __sycl_usm_array_interface__ or __dlpack__; -1 with an exception. */
int usmb_is_tensor(PyObject *o);

/* asarray(o) for an assignment to elements of type t: numbers are range-checked for t, but may be
   stored in a wider type. */
PyObject *usmb_array_of_value(PyObject *o, usmb_dl_dtype t);

#endif
