/*
 * support.h: names, errors, arguments, element types: the declarations that every file uses.
 *
 * Functions returning PyObject * return a new reference, or NULL with an exception
 * set; functions returning int return 0, or -1 with an exception set. The GIL is
 * needed unless a comment says otherwise. This holds for all headers of this package.
 */
#ifndef USMB_PYMODULE_SUPPORT_H
#define USMB_PYMODULE_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "usmb_dlpack.h"
#include "usmb_pyapi.h"
#include "usmb_pystate.h"

/* ---- support ---- */

/* Interned strings. */
#define USMB_NAMES(X) \
	X(version) \
	X(data) \
	X(shape) \
	X(strides) \
	X(typestr) \
	X(typedescr) \
	X(offset) \
	X(syclobj) \
	X(stream) \
	X(max_version) \
	X(dl_device) \
	X(copy) \
	X(device) \
	X(dtype) \
	X(usm_type) \
	X(sycl_queue) \
	X(filter_string) \
	X(order) \
	X(name) \
	X(isnative) \
	X(usm_data) \
	X(_pointer) \
	X(nbytes) \
	X(get_array) \
	X(_get_capsule) \
	X(dpctl) \
	X(__dlpack__) \
	X(ndarray) \
	X(__dlpack_device__) \
	X(__dlpack_c_exchange_api__) \
	X(__sycl_usm_array_interface__) \
	X(__module__) \
	X(__name__) \
	X(__qualname__) \
	X(__array_interface__) \
	X(__cuda_array_interface__) \
	X(__array__) \
	X(__array_struct__) \
	X(__array_ufunc__) \
	X(__array_priority__) \
	X(requested_schema) \
	X(requires_grad) \
	X(is_conj) \
	X(is_neg) \
	X(__arrow_c_array__) \
	X(__arrow_c_stream__) \
	X(isna) \
	X(storage) \
	X(__arrow_c_device_array__) \
	X(api_version) \
	X(ndim) \
	X(interprocess)
struct usmb_names {
#define X(n) PyObject *n;
	USMB_NAMES(X)
#undef X
};
extern struct usmb_names usmb_name;

int usmb_support_register(void); /* makes the strings */

/* ---- docstrings -------------------------------------------------------------------------- */

/* Sets the texts of docstrings.txt, which are kept: the name and the text of each, both terminated, and an
   empty name at the end. */
void usmb_docs_set(const char *texts);
/* The text of "owner.name", or of the one of the two that is not empty; NULL if there is none. */
const char *usmb_doc(const char *owner, const char *name);
/* Sets the texts of a module's functions or a type's methods. */
void usmb_document(const char *owner, PyMethodDef *functions);
/* Makes a type of the package with the texts of it, its methods and its attributes. */
PyTypeObject *usmb_new_type(PyType_Spec *spec);

/* ---- errors ------------------------------------------------------------------------------ */

/* The error of a Go function, which writes it only when it returns -1. */
enum {
	USMB_ERR_VALUE = 1,
	USMB_ERR_TYPE,
	USMB_ERR_BUFFER,
	USMB_ERR_MEMORY,
	USMB_ERR_RUNTIME,
	USMB_ERR_OVERFLOW,
	USMB_ERR_TIMEOUT,
	USMB_ERR_CONNECTION,
	USMB_ERR_KEY,
	USMB_ERR_REFERENCE,
	USMB_ERR_RAISED /* an exception is set already: a signal handler of Python raised it */
};
typedef struct {
	int32_t kind;       /* USMB_ERR_* */
	char message[1020]; /* terminated */
} usmb_goerr;

/* Raises the error of a Go function, unless its exception is set already; returns -1. */
int usmb_raise_go(const usmb_goerr *e);
/* The class of that exception, borrowed. */
PyObject *usmb_goerr_exception(const usmb_goerr *e);
/* Raises an exception of class kind with a message in the format of printf; returns NULL. */
PyObject *usmb_raise(PyObject *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The gate of forked children, before each operation that reaches Go, SYCL, dpctl or dpnp: 0; -1 with RuntimeError in a
   forked child, where none of them runs. */
int usmb_go_allowed(void);
/* The same for an object of a library of SYCL, which a forked child must not ask for its memory; 0 for others. */
int usmb_object_allowed_in_child(PyObject *o);
static inline int usmb_object_allowed(PyObject *o)
{
	return __builtin_expect(usmb_py_in_child(), 0) ? usmb_object_allowed_in_child(o) : 0;
}
/* The attribute name of o. NULL without an exception if there is none, with one if the access
   raised anything but AttributeError. */
PyObject *usmb_optional_attr(PyObject *o, PyObject *name);
/* Whether the type of o has an attribute of one of n names; -1 with an exception that must end the running
   call. */
int usmb_type_has(PyObject *o, PyObject *const *names, size_t n);
/* Clears an instance of Exception and returns 0. Any other exception, such as KeyboardInterrupt,
   must end the running call: it stays set, and the result is -1. */
int usmb_clear_exception(void);
/* The same for a step whose failure changes the result without an error: MemoryError stays set too. */
int usmb_ignore_exception(void);
/* Drops a foreign object, such as a capsule, whose deallocation may run code, and keeps the
   exception that is set. */
void usmb_decref_aside(PyObject *o);
/* The name of o's type for messages, in buf. */
const char *usmb_type_name(PyObject *o, char *buf, size_t n);

/* ---- entries into Go: each returns 0, or -1 and *err -------------------------------------- */

/* Loads SYCL if it is not loaded. Returns 1 if it is available, else 0. */
int usmb_go_open(usmb_goerr *err);
/* The same with the GIL dropped: 0 if SYCL is available, else -1, with or without an exception. */
int usmb_open_sycl(void);

/* A counter. */
typedef struct {
	char name[120];
	int64_t value;
} usmb_stat;
/* A function of Go that returns counters; free the array with free. */
typedef int usmb_go_counters(usmb_stat **out, int64_t *n, usmb_goerr *err);
usmb_go_counters usmb_go_stats, usmb_go_share_stats;
/* A dict of counters. */
PyObject *usmb_counters(usmb_go_counters *f);

/* Calls a function of a module of the package; *f caches it. */
PyObject *usmb_call_python(PyObject **f, const char *module, const char *function, PyObject *const *args, Py_ssize_t n);

/* Calls a function of Go, whose last argument is &err, without the GIL. Declares err and r, the result;
   if r is negative, *err is raised. */
#define USMB_GO(call) \
	usmb_goerr err; \
	PyThreadState *saved = usmb_py_release_gil(); \
	int r = call; \
	usmb_py_acquire_gil(saved); \
	if (r < 0) usmb_raise_go(&err)

/* ---- arguments --------------------------------------------------------------------------- */

/* Whether an optional argument was given and is not None. */
static inline int usmb_given(PyObject *o)
{
	return o && o != Py_None;
}
/* Matches the arguments of a fast call to names (interned) and fills slots with borrowed values.
   Positional arguments fill the first slots: at least min of them are required, at most maxpos
   allowed. */
int usmb_args(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject *const *names,
              int count, int min, int maxpos, PyObject **slots);
/* usmb_parse_dims reads a shape, which is an integer or a sequence or 1-d array of integers, and
   returns its length or -1; usmb_parse_dim reads one integer. */
int usmb_parse_dims(PyObject *o, int64_t *out, const char *what);
int usmb_parse_dim(PyObject *o, int64_t *out, const char *what);
/* The same for a call f(shape) or f(extent, extent, ...) with n arguments, at least one. */
int usmb_parse_dim_args(PyObject *const *args, Py_ssize_t n, int64_t *out, const char *what);
/* Reads a text that must be one of n names; *out: its index. rule begins the message of the TypeError or
   ValueError. */
int usmb_parse_choice(PyObject *o, const char *const *names, int n, const char *rule, int *out);
/* Reads a copy argument: 1 always, 0 never, 2 (None or NULL) if needed; -1 with an exception. */
static inline int usmb_parse_copy(PyObject *o)
{
	return usmb_given(o) ? PyObject_IsTrue(o) : 2;
}
/* A tuple of integers. */
PyObject *usmb_tuple_i64(const int64_t *v, Py_ssize_t n);

/* ---- dtype ---- */

/* The Python object of an element type: its name, a str that also equals NumPy's objects for the
   type. Mostly the same object for the same type. */
PyObject *usmb_dtype_object(usmb_dl_dtype t);
/* A cache of one object for each element type. */
enum { USMB_DTYPE_PLACES = 128 };
typedef struct {
	usmb_dl_dtype type;
	PyObject *object;
} usmb_dtype_place;
/* Returns a new reference to the object of t in a cache with USMB_DTYPE_PLACES places. make_object returns a
   new object on demand, or NULL with an exception. If two types share a place, the later one replaces
   the earlier. */
PyObject *usmb_dtype_cached(usmb_dtype_place *places, usmb_dl_dtype t, PyObject *(*make_object)(usmb_dl_dtype));
/* The dtype of an Array: NumPy's, or usmb_dtype_object where NumPy has none. Imports NumPy. */
PyObject *usmb_dtype_public(usmb_dl_dtype t);
/* Reads a dtype argument: a name, a type string, or a type or dtype of NumPy or ml_dtypes in this machine's
   byte order. NULL and None mean dflt. */
int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out);
/* Reports whether o, such as a NumPy dtype, has this machine's byte order or none: 1 or 0, -1
   with an exception. */
int usmb_native_order(PyObject *o);
/* _dtype_of(object): the DType that a dtype argument names. */
PyObject *usmb_py_dtype_of(PyObject *m, PyObject *o);

/* ---- typeinfo ---- */

enum {
	USMB_KIND_PLAIN = 0,
	USMB_KIND_DPCTL_MEMORY, /* dpctl.memory.MemoryUSM* : _pointer, nbytes */
	USMB_KIND_TENSOR,       /* usm_ndarray of dpctl or dpnp: usm_data */
	USMB_KIND_DPNP_ARRAY,   /* dpnp.ndarray: get_array() */
	USMB_KIND_QUEUE,        /* dpctl.SyclQueue */
	USMB_KIND_CONTEXT,      /* dpctl.SyclContext */
	USMB_KIND_DEVICE,       /* dpctl.SyclDevice: filter_string */
	USMB_KIND_ARRAY_DEVICE, /* the Device of dpnp's arrays: sycl_queue */
	USMB_KIND_LEGACY,       /* producers whose tensors have no flags and which are faster without keywords */
	USMB_KIND_WRITABLE,     /* producers that export no read-only memory in tensors without flags */
	USMB_KIND_TORCH,        /* exactly torch.Tensor or torch.nn.Parameter */
	USMB_KIND_TORCH_OTHER,  /* another subclass of torch.Tensor */
	USMB_KIND_ONEDAL        /* oneDAL's tables: data's second item means mutable */
};

typedef struct {
	PyTypeObject *type;              /* borrowed while weak is alive */
	PyObject *weak;                  /* weak reference to it */
	const usmb_dl_exchange_api *api; /* exchange API of our major version, or NULL */
	PyObject *method; /* owned: the __dlpack__ of all instances, or NULL if instances can have their own */
	int kind;         /* USMB_KIND_* */
} usmb_typeinfo;

/* The entry for o's type; NULL with an exception on failure. */
const usmb_typeinfo *usmb_typeinfo_of(PyObject *o);
void usmb_typeinfo_clear(void);

#endif
