/*
 * usmb_pymod.h: what the C files of this package share.
 *
 * One file, one role:
 *   array.c      the type Array: life, attributes, views
 *   index.c      basic indexing, reshape, transpose
 *   export.c     __dlpack__ and __dlpack_device__
 *   exchange.c   the C exchange API of the type
 *   import.c     from_dlpack
 *   suai.c       __sycl_usm_array_interface__ out
 *   suai_in.c    __sycl_usm_array_interface__ in
 *   syclref.c    the light SyclQueue, SyclContext; the six forms of a syclobj
 *   buffer.c     the buffer protocol out, __array_interface__, and in
 *   sequence.c   arrays from nested sequences
 *   device.c     the type Device
 *   create.c     empty, zeros, asarray
 *   copy.c       copies and conversions, which Go makes
 *   handover.c   arrays between Go and Python
 *   owner.c      cells whose owner is Python's
 *   typeinfo.c   what is remembered about the types of others
 *   module.c     the module
 *
 * Everything here needs the GIL unless it says otherwise. Functions returning
 * PyObject * return a new reference, or NULL with an exception set; functions
 * returning int return 0, or -1 with an exception set.
 */
#ifndef USMB_PYMOD_H
#define USMB_PYMOD_H

#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>

#include "usmb_dlpack.h"
#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_pyresult.h"
#include "usmb_pystate.h"
#include "usmb_sycl.h"

/* ---- the array ------------------------------------------------------------ */

enum {
	USMB_ARR_READONLY = 1,
	USMB_ARR_C = 2,      /* C-contiguous */
	USMB_ARR_F = 4,      /* Fortran-contiguous */
	USMB_ARR_HOST = 8,   /* plain host memory: the host backend or a kDLCPU import */
	USMB_ARR_READ = 16,  /* the processor may read the memory */
	USMB_ARR_PADDED = 32 /* sub-byte elements, one to a byte */
};

/* An Array. It owns one reference of its cell; shape and strides follow the
   object, so that a view is one block of memory. Immutable after creation. */
typedef struct usmb_array {
	PyObject_VAR_HEAD usmb_cell *cell; /* owner of the memory; never NULL */
	char *first;                       /* address of element [0, ..., 0] */
	int64_t nelem;                     /* number of elements */
	usmb_dl_dtype dtype;               /* lanes 1 */
	int32_t ndim;                      /* 0..64 */
	uint32_t flags;                    /* USMB_ARR_* */
	uint32_t itembits;                 /* bits from one element to the next */
	int64_t dims[];                    /* shape[ndim], then strides[ndim] in elements */
} usmb_array;

static inline int64_t *usmb_shape(usmb_array *a)
{
	return a->dims;
}
static inline int64_t *usmb_strides(usmb_array *a)
{
	return a->dims + a->ndim;
}
static inline usmb_place *usmb_array_place(usmb_array *a)
{
	return (usmb_place *)a->cell->place;
}
/* Bytes of one element as Python reports them: a packed sub-byte type has 1. */
static inline int64_t usmb_itemsize(const usmb_array *a)
{
	return a->itembits >= 8 ? a->itembits / 8 : 1;
}
/* Bytes that the elements take when they lie one after the other. */
static inline int64_t usmb_nbytes(const usmb_array *a)
{
	return a->itembits >= 8 ? a->nelem * (a->itembits / 8) : (a->nelem * a->itembits + 7) / 8;
}

/* Whether the elements lie at multiples of their size; SUAI asks for no alignment. */
static inline int usmb_array_aligned(const usmb_array *a)
{
	return a->itembits < 8 || a->nelem == 0 || ((uintptr_t)a->first & (a->itembits / 8 - 1)) == 0;
}

extern PyTypeObject *usmb_array_type;
static inline int usmb_is_array(PyObject *o)
{
	return Py_TYPE(o) == usmb_array_type;
}

/* A new array without cell, first, flags; the caller fills it at once, shape
   and strides included, then calls usmb_array_settle. */
usmb_array *usmb_array_raw(int32_t ndim);
/* Computes nelem, contiguity and the flags that follow from the cell; takes
   over one reference of cell. extra: USMB_ARR_READONLY | USMB_ARR_PADDED. */
void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra);
/* The same where a check has found nelem, itembits and the contiguity already. */
void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra,
                          const usmb_dl_span *span);
/* Bits from one element to the next. */
uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags);
/* A view on src's cell with the layout given (copied); first is an address. */
PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides);
/* Fills C or Fortran order strides. */
void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran);
/* Tuple of integers. */
PyObject *usmb_tuple_i64(const int64_t *v, Py_ssize_t n);
/* Waits, with the GIL dropped, for work of ours pending on the memory, and for the
   queue of a producer that names one. */
int usmb_array_wait(usmb_array *a);
/* Byte range [lo, hi) of the elements relative to first. */
void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi);
PyObject *usmb_array_repr(PyObject *self);
int usmb_array_register(PyObject *module);

/* index.c */
PyObject *usmb_array_subscript(PyObject *self, PyObject *key);
PyObject *usmb_array_reshape(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_transpose(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *usmb_array_T(PyObject *self, void *closure);
/* Reads a shape: an integer or a sequence of integers; returns ndim or -1. */
int usmb_parse_dims(PyObject *o, int64_t *out, const char *what);

/* ---- DLPack ---------------------------------------------------------------- */

PyObject *usmb_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_dlpack_device(PyObject *self, PyObject *unused);
/* DLPack device of the array: 0, or -1 with BufferError when there is none. */
int usmb_array_device(usmb_array *a, usmb_dl_device *out);
/* 0 when the elements are aligned as DLPack has it, else -1 with BufferError. */
int usmb_array_check_aligned(usmb_array *a);
/* One managed tensor of the array as dev; -1 with BufferError or MemoryError. */
int usmb_array_export(usmb_array *a, usmb_dl_device dev, uint64_t flags, int versioned, void **out);
/* The standard's flags of the array. */
static inline uint64_t usmb_array_dlflags(const usmb_array *a)
{
	return (a->flags & USMB_ARR_READONLY ? USMB_DL_FLAG_READ_ONLY : 0) |
	       (a->flags & USMB_ARR_PADDED ? USMB_DL_FLAG_SUBBYTE_PADDED : 0);
}
void usmb_export_clear(void);
int usmb_exchange_register(void); /* publishes the exchange API on the type */

int usmb_import_register(void);
PyObject *usmb_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* The array of x by any of DLPack's ways, without copying. */
PyObject *usmb_import_object(PyObject *x);
/* The array of a managed tensor; takes it on success, leaves it on failure. */
PyObject *usmb_import_managed(void *managed, int versioned);
/* The owner of a tensor on kDLCPU or kDLOneAPI, after all the checks of an import
   beyond those of s, which was read of it: the struct is not looked at again. Takes
   the tensor on success, leaves it on failure; NULL with an exception. An empty
   tensor without an address gets one in s. May drop the GIL. */
usmb_cell *usmb_import_cell(void *managed, int versioned, usmb_dl_snapshot *s);
/* Makes an object of a managed tensor; takes it on success, leaves it on failure. */
typedef PyObject *(*usmb_take_fn)(void *managed, int versioned, void *ctx);
/* Has x give a tensor by any of DLPack's ways, and take make something of it.
   Nothing is waited for; an Array of ours is like any other object here. */
PyObject *usmb_import_by(PyObject *x, usmb_take_fn take, void *ctx);

/* ---- syclobj ---------------------------------------------------------------- */

enum { USMB_FORM_NONE = 0, USMB_FORM_FILTER, USMB_FORM_QUEUE, USMB_FORM_CONTEXT };

/* A syclobj, whichever of its six forms it came in. */
typedef struct {
	int form;           /* USMB_FORM_* */
	void *ref;          /* sycl::queue* or sycl::context*, borrowed from keep */
	void *context;      /* sycl::context*, where it is known without asking; likewise */
	const char *filter; /* filter string, borrowed from keep */
	Py_ssize_t nfilter; /* its length */
	PyObject *keep;     /* owned: what ref or filter belongs to */
	int capsule;        /* keep is a capsule that is to be renamed when used */
} usmb_syclref;

/* Recognises a syclobj; TypeError that names what for anything else. */
int usmb_syclref_get(PyObject *o, usmb_syclref *out, const char *what);
/* The queue that it names, borrowed: its own, or the default queue of the device of a
   filter string, loading SYCL if that was not done. NULL for a context and for the
   host backend. ValueError that begins with what when no device answers. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue);
/* Gives back what it holds; used: rename the capsule to used_... first. */
void usmb_syclref_release(usmb_syclref *r, int used);

/* The light objects that carry a queue or a context to others; cached by place. */
PyObject *usmb_syclqueue_of(usmb_place *place);
PyObject *usmb_syclcontext_of(usmb_place *place);
/* What users see: dpctl's own objects where dpctl is loaded, else the light ones. */
PyObject *usmb_public_queue(usmb_place *place);
PyObject *usmb_public_context(usmb_place *place);
int usmb_syclref_register(PyObject *module);

/* ---- SUAI -------------------------------------------------------------------- */

PyObject *usmb_array_suai(PyObject *self, void *closure);
PyObject *usmb_from_suai(PyObject *module, PyObject *obj);
/* The array of obj's dictionary. iface: the dictionary (borrowed). */
PyObject *usmb_import_suai(PyObject *obj, PyObject *iface);
int usmb_suai_register(void);
void usmb_suai_clear(void);
extern PyObject *usmb_suai_one; /* the integer 1 */

/* ---- buffer protocol ---------------------------------------------------------- */

int usmb_array_getbuffer(PyObject *self, Py_buffer *view, int flags);
void usmb_array_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *usmb_array_interface(PyObject *self, void *closure);
/* A host array on obj's buffer, without a copy; -1 and TypeError without one. */
PyObject *usmb_import_buffer(PyObject *obj);

/* ---- creating ------------------------------------------------------------------ */

/* Where new memory is wanted. */
typedef struct {
	usmb_syclref queue; /* form NONE: the device decides */
	PyObject *device;   /* owned str with a filter string, or NULL */
	int kind;           /* USMB_USM_*, or 0: what the device's default is */
	int host;           /* 1: the host backend */
} usmb_where;

PyObject *usmb_py_empty(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_zeros(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_py_asarray(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *kw);
/* New memory at w, laid out in C (or Fortran) order. */
PyObject *usmb_new_array(const usmb_where *w, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                         int zero);
void usmb_where_clear(usmb_where *w);
/* An array of the whole of new memory; takes over the cell. extra as for
   usmb_array_settle. */
PyObject *usmb_array_dense(usmb_cell *cell, int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype, int fortran,
                           uint32_t extra);
/* Bytes of a dense array; -1 with ValueError when they cannot be addressed. */
int64_t usmb_dense_bytes(int32_t ndim, const int64_t *shape, usmb_dl_dtype dtype);
/* A copy of src at w (NULL: beside src), C order. */
PyObject *usmb_copy_to(usmb_array *src, const usmb_where *w);
/* The same with the elements converted to dtype. */
PyObject *usmb_copy_as(usmb_array *src, usmb_dl_dtype dtype, const usmb_where *w);
/* A copy that DLPack consumers can take: on dev, or in the default context of
   the array's own device when dev is NULL. */
PyObject *usmb_copy_for(usmb_array *src, const usmb_dl_device *dev);
/* The same memory seen as plain host memory; NULL unless the host may read. */
PyObject *usmb_as_host(usmb_array *src);
PyObject *usmb_array_copy(PyObject *self, PyObject *unused);
PyObject *usmb_array_to_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw);
PyObject *usmb_array_asnumpy(PyObject *self, PyObject *unused);
/* Reads the device= argument: a Device, a filter string. */
int usmb_parse_device(PyObject *o, usmb_where *w);
/* Reads a dtype argument; NULL or None: dflt. */
int usmb_parse_dtype(PyObject *o, const char *dflt, usmb_dl_dtype *out);
/* Whether the array already lies where w says. */
int usmb_is_at(usmb_array *a, const usmb_where *w);

/* The array of an object by SUAI, DLPack or its buffer, never a copy; TypeError
   for what has none of them. */
PyObject *usmb_take_object(PyObject *o);

/* sequence.c: the array of a number or nested sequence of numbers, at w (NULL: in
   host memory); dtype may be NULL. */
PyObject *usmb_from_sequence(PyObject *o, const usmb_dl_dtype *dtype, const usmb_where *w);

/* ---- devices --------------------------------------------------------------------- */

PyObject *usmb_device_of_place(usmb_place *place);
PyObject *usmb_py_devices(PyObject *m, PyObject *unused);
PyObject *usmb_device_of(usmb_array *a);
PyObject *usmb_device_filter(PyObject *device); /* str of a Device, borrowed; NULL if it is none */
int usmb_device_register(PyObject *module);

/* ---- owners ------------------------------------------------------------------------ */

extern usmb_list *usmb_pylist; /* drop list of cells whose end needs Python */
/* A cell that owns a Python object (takes the reference), or a managed tensor,
   or a Py_buffer. MemoryError when there is none. They take over place. */
usmb_cell *usmb_cell_of_object(PyObject *o, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_managed(void *managed, int versioned, void *data, uint64_t size, usmb_place *place);
usmb_cell *usmb_cell_of_buffer(Py_buffer *owned, void *data, uint64_t size);
/* A cell that owns a block of malloc. */
usmb_cell *usmb_cell_of_block(void *block, uint64_t size);
/* Whether the cell is one of this file's, and not of Go's memory manager. */
static inline int usmb_owned_by_python(const usmb_cell *cell)
{
	return cell->home == usmb_pylist;
}

/* The queue on which a producer that says so may still be working on the memory,
   owned by the cell of its tensor; NULL: none is known. Written once, before others
   see the cell. */
static inline void *usmb_cell_producer(const usmb_cell *cell)
{
	return (void *)(uintptr_t)cell->private;
}
static inline void usmb_cell_set_producer(usmb_cell *cell, void *queue)
{
	cell->private = (uint64_t)(uintptr_t)queue;
}

/* Pending work of a cell. copy: an owned reference of its event, NULL for none;
   done: forgets the event once it is complete; set: puts an owned event in the
   place of what was there. No GIL needed. */
void *usmb_pending_copy(usmb_cell *cell);
void usmb_pending_done(usmb_cell *cell);
void usmb_pending_set(usmb_cell *cell, void *event);
/* Gives the cells back that are kept for the next imports. */
void usmb_owner_clear(void);
/* Drops a reference with the GIL held: ends Python's cells on the spot. */
void usmb_cell_drop_gil(usmb_cell *cell);
/* Ends what was dropped where the GIL could not be taken: every entry calls it,
   dealloc included. One read when idle. */
void usmb_owner_drain_slow(void);
static inline void usmb_owner_drain(void)
{
	if (!usmb_list_empty(usmb_pylist)) usmb_owner_drain_slow();
}
/* No GIL: takes it and drains; 0 when Python is gone. */
int usmb_owner_drain_locked(void);

/* ---- types of others ----------------------------------------------------------------- */

enum {
	USMB_KIND_PLAIN = 0,
	USMB_KIND_DPCTL_MEMORY, /* dpctl.memory.MemoryUSM* : _pointer, nbytes */
	USMB_KIND_TENSOR,       /* usm_ndarray of dpctl or dpnp: usm_data */
	USMB_KIND_DPNP_ARRAY,   /* dpnp.ndarray: get_array() */
	USMB_KIND_QUEUE,        /* dpctl.SyclQueue */
	USMB_KIND_CONTEXT,      /* dpctl.SyclContext */
	USMB_KIND_LEGACY,       /* producers whose tensors have no flags, quicker without keywords */
	USMB_KIND_ONEDAL        /* oneDAL's tables: data's second item means mutable */
};

typedef struct {
	PyTypeObject *type;              /* borrowed while weak lives */
	PyObject *weak;                  /* weak reference to it */
	const usmb_dl_exchange_api *api; /* exchange API of our major version, or NULL */
	PyObject *method;                /* owned: its __dlpack__ where no instance can have another, or NULL */
	int kind;                        /* USMB_KIND_* */
} usmb_typeinfo;

/* What is known about o's type; NULL with an exception set on failure. */
const usmb_typeinfo *usmb_typeinfo_of(PyObject *o);
void usmb_typeinfo_clear(void);

/* ---- names, errors, entries into Go ------------------------------------------------------ */

/* Interned strings, made once. */
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
	X(order) \
	X(descr) \
	X(name) \
	X(usm_data) \
	X(_pointer) \
	X(nbytes) \
	X(get_array) \
	X(_get_capsule) \
	X(__dlpack__) \
	X(__dlpack_device__) \
	X(__dlpack_c_exchange_api__) \
	X(__sycl_usm_array_interface__) \
	X(__module__) \
	X(__name__) \
	X(__qualname__) \
	X(axes) \
	X(__array_interface__)
struct usmb_names {
#define X(n) PyObject *n;
	USMB_NAMES(X)
#undef X
};
extern struct usmb_names usmb_name;

/* What a Go function reports. kind 0: fine. */
enum {
	USMB_ERR_NONE = 0,
	USMB_ERR_VALUE,
	USMB_ERR_TYPE,
	USMB_ERR_BUFFER,
	USMB_ERR_MEMORY,
	USMB_ERR_RUNTIME,
	USMB_ERR_OVERFLOW
};
typedef struct {
	int32_t kind;       /* USMB_ERR_* */
	char message[1020]; /* terminated */
} usmb_goerr;

/* Raises what a Go function reported; returns -1. */
int usmb_raise_go(const usmb_goerr *e);
/* The exception that it is raised as, borrowed. */
PyObject *usmb_goerr_exception(const usmb_goerr *e);
/* Raises kind (an exception of usmb_py) with a message as printf writes it. */
PyObject *usmb_raise(PyObject *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* -1 with RuntimeError in a forked child, where Go cannot run. */
int usmb_go_allowed(void);
/* Name of o's type for messages; static storage of the caller. */
const char *usmb_type_name(PyObject *o, char *buf, size_t n);

/* ---- what Go does: each function returns 0, or -1 and *err -------------------------------- */

/* Loads SYCL if that was not done: 1 when there is SYCL, 0 when there is none. */
int usmb_go_open(usmb_goerr *err);
/* The same from Python's side, the GIL dropped: 0 when SYCL is there, -1 when not
   (with or without an exception set). */
int usmb_open_sycl(void);

/* Where Python looks for packages, one directory a line: its own dpctl is the one
   to use. */
void usmb_go_paths(char *lines, uint64_t n);

/* Memory that is wanted. Text is borrowed and may lack a terminator. */
typedef struct {
	int64_t bytes;
	int32_t form; /* USMB_FORM_*, NONE: device decides */
	int32_t kind; /* USMB_USM_*, 0: device memory */
	int32_t host; /* 1: the host backend */
	int32_t reserved;
	void *ref;    /* queue or context, borrowed */
	char *filter; /* filter string of form FILTER or of the device, NULL: the default device */
	uint64_t nfilter;
} usmb_alloc_req;
int usmb_go_alloc(usmb_alloc_req *req, usmb_cell **out, usmb_goerr *err);
/* The request of w, whose texts it borrows; bytes are left 0. -1 with an exception. */
int usmb_request(const usmb_where *w, usmb_alloc_req *req);
/* New memory with the elements of src as dtype, in C order; bytes of the request do
   not count. Sub-byte elements are stored as src stores them where the type stays,
   else packed. */
int usmb_go_copy(usmb_alloc_req *req, usmb_array *src, usmb_dl_dtype dtype, usmb_cell **out, usmb_goerr *err);
/* Memory for a DLPack device; device memory for kDLOneAPI. */
int usmb_go_alloc_for(int32_t device_type, int32_t device_id, int64_t bytes, usmb_cell **out, usmb_goerr *err);

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

/* The default queue of the device that answers to a filter string, borrowed; NULL for
   the host backend. */
int usmb_go_queue_of(char *filter, uint64_t nfilter, void **queue, usmb_goerr *err);

/* The elements of a host-readable array as NumPy prints them; *out is freed with
   free. prefix: characters before the first bracket. */
int usmb_go_text(usmb_dl_tensor *t, int32_t padded, int32_t prefix, char **out, usmb_goerr *err);

/* One counter; the array is freed with free. */
typedef struct {
	char name[120];
	int64_t value;
} usmb_stat;
int usmb_go_stats(usmb_stat **out, int64_t *n, usmb_goerr *err);

typedef struct {
	char filter[96], name[256], backend[32], type[32];
	uint64_t memory;
	int32_t dl_type, dl_id;
	int32_t has_dl; /* DLPack can name the device */
	int32_t reserved;
} usmb_device_info;
int usmb_go_devices(usmb_device_info **out, int64_t *n, usmb_goerr *err);

/* Notes the queue that will use the memory next. */
void usmb_go_used_on(usmb_cell *cell, void *queue);

/* Waits, without the GIL, until nothing of ours is draining Python's list. */
void usmb_go_stop(void);

/* For Go, without the GIL. A new Array on memory of a cell, of which it takes one
   reference over on success; first is an address, flags USMB_ARR_READONLY and
   USMB_ARR_PADDED. */
usmb_pyret usmb_handover_to_python(usmb_cell *cell, uintptr_t first, usmb_dl_dtype dtype, uint32_t flags, int32_t ndim,
                                   const int64_t *shape, const int64_t *strides);
/* The memory of an object by usmb_take_object, finished with by its producer: the
   cell with one reference for the caller. */
typedef struct {
	usmb_cell *cell;
	uintptr_t first;
	usmb_dl_dtype dtype;
	uint32_t flags, itembits;
	int32_t ndim;
	int64_t shape[USMB_DL_MAX_NDIM], strides[USMB_DL_MAX_NDIM];
} usmb_handover;
usmb_pyret usmb_handover_from_python(void *o, usmb_handover *out);

/* The module's init function, and its version text, set by Go first. */
PyObject *usmb_pymod_init(void);
extern char usmb_pymod_version[64];

/* Matches the keywords of a fast call to names (interned) and fills slots with
   borrowed values; npos positional arguments fill the first slots. min, maxpos:
   how many positional ones there must and may be. */
int usmb_args(const char *func, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject *const *names,
              int count, int min, int maxpos, PyObject **slots);

#endif
