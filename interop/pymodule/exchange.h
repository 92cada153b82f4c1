/*
 * exchange.h: the exchange protocols: arrays from other libraries' objects, and the parts of exports
 * that several files use.
 */
#ifndef USMB_PYMODULE_EXCHANGE_H
#define USMB_PYMODULE_EXCHANGE_H

#include "support.h"
#include "array.h"
#include "create.h"
#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"

/* ---- tensor ---- */

/* Makes an object of a managed tensor; takes it on success, leaves it on failure. */
typedef PyObject *(*usmb_take_fn)(void *managed, int versioned, void *ctx);

/* Has x, an object or a capsule, give a tensor by any of DLPack's ways, and take make
   something of it. Nothing is waited for; an Array of ours is like any other object
   here. */
PyObject *usmb_tensor_take(PyObject *x, usmb_take_fn take, void *ctx);
/* The same with the tensor on the host, copied there by x itself; copy is passed on. */
PyObject *usmb_tensor_take_on_host(PyObject *x, PyObject *copy, usmb_take_fn take, void *ctx);
/* Whether x says that it lies where none of its memory can be taken; -1 on error. */
int usmb_tensor_is_far(PyObject *x);

/* The owner of a tensor on kDLCPU or kDLOneAPI, after all the checks of an import
   beyond those of s, which was read of it: the struct is not looked at again. Takes
   the tensor on success, leaves it on failure; NULL with an exception. An empty
   tensor without an address gets one in s. May drop the GIL. */
usmb_cell *usmb_tensor_cell(void *managed, int versioned, usmb_dl_snapshot *s);
int usmb_tensor_register(void);

/* Memory for a DLPack device; device memory for kDLOneAPI. */
int usmb_go_alloc_for(int32_t device_type, int32_t device_id, int64_t bytes, usmb_cell **out, usmb_goerr *err);

/* ---- export ---- */

PyObject *usmb_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_dlpack_device(PyObject *self, PyObject *unused);
/* DLPack device of the array: 0, or -1 with BufferError when there is none. */
int usmb_array_device(usmb_array *a, usmb_dl_device *out);
/* 0 when the elements are aligned as DLPack has it, else -1 with BufferError. */
int usmb_array_check_aligned(usmb_array *a);
/* The standard's flags of the array. */
static inline uint64_t usmb_array_dlflags(const usmb_array *a)
{
	return (a->flags & USMB_ARR_READONLY ? USMB_DL_FLAG_READ_ONLY : 0) |
	       (a->flags & USMB_ARR_PADDED ? USMB_DL_FLAG_SUBBYTE_PADDED : 0);
}
void usmb_export_clear(void);
int usmb_exchange_register(void); /* publishes the exchange API on the type */

/* Notes the queue that will use the memory next. */
void usmb_go_used_on(usmb_cell *cell, void *queue);

/* ---- import ---- */

PyObject *usmb_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* The array of x by any of DLPack's ways, without copying. */
PyObject *usmb_import_object(PyObject *x);

/* ---- buffer ---- */

int usmb_array_getbuffer(PyObject *self, Py_buffer *view, int flags);
void usmb_array_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *usmb_array_interface(PyObject *self, void *closure);
/* A host array on obj's buffer, without a copy; -1 and TypeError without one. */
PyObject *usmb_import_buffer(PyObject *obj);

/* ---- suai ---- */

PyObject *usmb_array_suai(PyObject *self, void *closure);
PyObject *usmb_from_suai(PyObject *module, PyObject *obj);
/* The array of obj's dictionary. iface: the dictionary (borrowed). */
PyObject *usmb_import_suai(PyObject *obj, PyObject *iface);
/* The array of one of dpctl.memory's objects, whose dictionary need not be asked for:
   the same facts, and the same checks. NULL without an exception for anything else. */
PyObject *usmb_import_memory(PyObject *obj);
int usmb_suai_register(void);
void usmb_suai_clear(void);

/* A __sycl_usm_array_interface__ taken apart; everything is borrowed. */
typedef struct {
	uint64_t data;
	int64_t offset;
	int64_t *shape;   /* ndim extents */
	int64_t *strides; /* NULL: C order */
	char *typestr;
	uint64_t ntypestr;
	char *fieldtype; /* of the first field of typedescr */
	uint64_t nfieldtype;
	uint64_t owner;      /* the owner's allocation, where its size is known */
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

/* The read-only array on o's memory by __arrow_c_device_array__, else by
   __arrow_c_array__; NULL without an exception where o has neither. may_copy: whether
   booleans, which are bits in Arrow, may be copied to bytes. Errors: BufferError for
   structs that don't fit, nulls, memory of another device; TypeError for element types
   that no array has; ValueError for booleans without may_copy. */
PyObject *usmb_import_arrow(PyObject *o, int may_copy);

/* ---- numpy ---- */

PyObject *usmb_array_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw); /* __array__ */
PyObject *usmb_array_function(PyObject *self, PyObject *const *args, Py_ssize_t n);            /* __array_function__ */
PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused);
/* The array of an ndarray whose element type NumPy has from ml_dtypes, and so gives
   by no protocol, without a copy. NULL without an exception where o is none. */
PyObject *usmb_import_ml(PyObject *o);

enum {
	USMB_NUMPY_NONE,
	USMB_NUMPY_SHARES,  /* __array_interface__ or __array_struct__, which describe memory */
	USMB_NUMPY_MAY_COPY /* __array__ only */
};
/* Which of NumPy's array protocols o has: USMB_NUMPY_NONE also where NumPy cannot be imported; -1 with
   an exception. */
int usmb_numpy_protocol(PyObject *o);
/* The ndarray of o.__array__(copy=False), which is on the memory of o. A ValueError for an __array__
   that does not take copy. */
PyObject *usmb_numpy_view(PyObject *o);
/* numpy.asarray(o), which may copy where o has __array__ only. */
PyObject *usmb_numpy_asarray(PyObject *o);

/* ---- asarray ---- */

PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* The array of an object by SUAI, DLPack, its buffer, NumPy's array protocols or Arrow, never
   a copy; TypeError for an object that has none of them. */
PyObject *usmb_take_object(PyObject *o);

/* Whether o's type has one of the array protocols. */
int usmb_is_exporter(PyObject *o);

/* The array of o, by all of asarray's ways. */
PyObject *usmb_array_of(PyObject *o);
/* The same of what is to be assigned to elements of type t: numbers are checked as t,
   and lie there as of a type that holds them. */
PyObject *usmb_array_of_value(PyObject *o, usmb_dl_dtype t);

#endif
