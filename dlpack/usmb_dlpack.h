/*
 * The DLPack 1.3 C ABI, and functions to build, check, read and delete managed tensors.
 *
 * Source of the layouts and values: dlpack.h 1.3 (dmlc/dlpack). A test compares every offset and value
 * with that header.
 *
 * This code is independent of arrays, SYCL, Python and Go. The owner of memory is a pair (function,
 * context); the function drops one reference of the owner, on any thread.
 *
 * Threads: all functions may be called on any thread. They take no locks; the only state is a few deleted
 * blocks that each thread keeps for its next tensors. A deleter in a forked child deletes the child's copy
 * only.
 */
#ifndef USMB_DLPACK_H
#define USMB_DLPACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { USMB_DL_MAJOR = 1, USMB_DL_MINOR = 3, USMB_DL_MAX_NDIM = 64 };

/* Device types (DLDeviceType). */
enum {
	USMB_DL_CPU = 1,
	USMB_DL_CUDA = 2,
	USMB_DL_CUDA_HOST = 3,
	USMB_DL_OPENCL = 4,
	USMB_DL_VULKAN = 7,
	USMB_DL_METAL = 8,
	USMB_DL_VPI = 9,
	USMB_DL_ROCM = 10,
	USMB_DL_ROCM_HOST = 11,
	USMB_DL_EXT_DEV = 12,
	USMB_DL_CUDA_MANAGED = 13,
	USMB_DL_ONEAPI = 14,
	USMB_DL_WEBGPU = 15,
	USMB_DL_HEXAGON = 16,
	USMB_DL_MAIA = 17,
	USMB_DL_TRN = 18
};

/* Type codes (DLDataTypeCode). */
enum {
	USMB_DL_INT = 0,
	USMB_DL_UINT = 1,
	USMB_DL_FLOAT = 2,
	USMB_DL_OPAQUE_HANDLE = 3,
	USMB_DL_BFLOAT = 4,
	USMB_DL_COMPLEX = 5,
	USMB_DL_BOOL = 6,
	USMB_DL_FLOAT8_E3M4 = 7,
	USMB_DL_FLOAT8_E4M3 = 8,
	USMB_DL_FLOAT8_E4M3B11FNUZ = 9,
	USMB_DL_FLOAT8_E4M3FN = 10,
	USMB_DL_FLOAT8_E4M3FNUZ = 11,
	USMB_DL_FLOAT8_E5M2 = 12,
	USMB_DL_FLOAT8_E5M2FNUZ = 13,
	USMB_DL_FLOAT8_E8M0FNU = 14,
	USMB_DL_FLOAT6_E2M3FN = 15,
	USMB_DL_FLOAT6_E3M2FN = 16,
	USMB_DL_FLOAT4_E2M1FN = 17
};

/* Flags of a versioned tensor (DLPACK_FLAG_BITMASK_*). */
#define USMB_DL_FLAG_READ_ONLY UINT64_C(1)
#define USMB_DL_FLAG_IS_COPIED UINT64_C(2)
#define USMB_DL_FLAG_SUBBYTE_PADDED UINT64_C(4)
#define USMB_DL_FLAGS_KNOWN UINT64_C(7)

/*
 * An option in the flags of usmb_dl_export that is not written to the tensor: the view has passed
 * usmb_dl_check, or is an array of this module, whose layout was checked at creation. Only properties
 * that this does not cover (read-only, padding, size 0) are checked again.
 */
#define USMB_DL_EXPORT_CHECKED (UINT64_C(1) << 33)

typedef struct {
	uint32_t major, minor;
} usmb_dl_version; /* 8 bytes */

typedef struct {
	int32_t type, id;
} usmb_dl_device; /* 8 bytes */

typedef struct {
	uint8_t code, bits;
	uint16_t lanes;
} usmb_dl_dtype; /* 4 bytes */

typedef struct {
	void *data;            /*  0 */
	usmb_dl_device device; /*  8 */
	int32_t ndim;          /* 16 */
	usmb_dl_dtype dtype;   /* 20 */
	int64_t *shape;        /* 24 */
	int64_t *strides;      /* 32 in elements; NULL = C order (before 1.2) */
	uint64_t byte_offset;  /* 40 from data to the first element */
} usmb_dl_tensor;              /* 48 bytes */

/* The legacy managed tensor (DLManagedTensor). */
typedef struct usmb_dl_managed {
	usmb_dl_tensor t;                          /*  0 */
	void *ctx;                                 /* 48 */
	void (*deleter)(struct usmb_dl_managed *); /* 56 may be NULL */
} usmb_dl_managed;                                 /* 64 bytes */

/* The versioned managed tensor (DLManagedTensorVersioned). */
typedef struct usmb_dl_versioned {
	usmb_dl_version version;                     /*  0 */
	void *ctx;                                   /*  8 */
	void (*deleter)(struct usmb_dl_versioned *); /* 16 may be NULL */
	uint64_t flags;                              /* 24 */
	usmb_dl_tensor t;                            /* 32 */
} usmb_dl_versioned;                                 /* 80 bytes */

/* The C exchange API of DLPack 1.2 and 1.3 (DLPackExchangeAPI). Its functions return 0, or -1 with a
 * Python exception set. */
typedef struct usmb_dl_exchange_header {
	usmb_dl_version version;                  /* 0 */
	struct usmb_dl_exchange_header *prev_api; /* 8 an older table, or NULL */
} usmb_dl_exchange_header;                        /* 16 bytes */

typedef void (*usmb_dl_set_error)(void *error_ctx, const char *kind, const char *message);
typedef int (*usmb_dl_allocator)(usmb_dl_tensor *prototype, usmb_dl_versioned **out, void *error_ctx,
                                 usmb_dl_set_error set_error);
typedef int (*usmb_dl_from_py)(void *py_object, usmb_dl_versioned **out);      /* out: owned */
typedef int (*usmb_dl_to_py)(usmb_dl_versioned *tensor, void **out_py_object); /* steals tensor */
typedef int (*usmb_dl_borrow_from_py)(void *py_object, usmb_dl_tensor *out);   /* borrowed */
typedef int (*usmb_dl_work_stream)(int32_t device_type, int32_t device_id, void **out_stream);

typedef struct usmb_dl_exchange_api {
	usmb_dl_exchange_header header;                         /*  0 */
	usmb_dl_allocator managed_tensor_allocator;             /* 16 */
	usmb_dl_from_py managed_tensor_from_py_object_no_sync;  /* 24 */
	usmb_dl_to_py managed_tensor_to_py_object_no_sync;      /* 32 */
	usmb_dl_borrow_from_py dltensor_from_py_object_no_sync; /* 40 may be NULL */
	usmb_dl_work_stream current_work_stream;                /* 48 */
} usmb_dl_exchange_api;                                         /* 56 bytes */

/* Names of the Python capsules; static for the life of the process. */
extern const char usmb_dl_name_legacy[];         /* "dltensor" */
extern const char usmb_dl_name_legacy_used[];    /* "used_dltensor" */
extern const char usmb_dl_name_versioned[];      /* "dltensor_versioned" */
extern const char usmb_dl_name_versioned_used[]; /* "used_dltensor_versioned" */
extern const char usmb_dl_name_exchange_api[];   /* "dlpack_exchange_api" */

/* Drops one reference of an owner. Called on any thread; must not block. */
typedef void (*usmb_drop_fn)(void *ctx);

enum {
	USMB_DL_OK = 0,
	USMB_DL_ENOMEM,    /* malloc failed */
	USMB_DL_EVERSION,  /* another major version: the tensor may only be deleted */
	USMB_DL_ENDIM,     /* ndim outside 0..64 */
	USMB_DL_ESHAPE,    /* a negative extent, or shape NULL with ndim > 0 */
	USMB_DL_ESTRIDES,  /* the strides lead outside the address space */
	USMB_DL_EOVERFLOW, /* element count, size in bits or end address too large */
	USMB_DL_EDTYPE,    /* type code or width that cannot be exchanged */
	USMB_DL_ELANES,    /* lanes is not 1 */
	USMB_DL_EALIGN,    /* address or byte_offset not a multiple of the item size */
	USMB_DL_ENULL,     /* NULL data with elements, or a NULL tensor */
	USMB_DL_EREADONLY, /* read-only memory cannot be exported as a legacy tensor */
	USMB_DL_EDEVICE,   /* invalid device type or id */
	USMB_DL_EPADDED,   /* padded sub-byte elements cannot be exported as a legacy tensor */
	USMB_DL_EFLAGS,    /* unknown export flags */
	USMB_DL_ECODES     /* number of codes */
};

enum { USMB_DL_C_CONTIGUOUS = 1, USMB_DL_F_CONTIGUOUS = 2 };

/* The memory of a tensor, as usmb_dl_check reports it. lo <= 0 < hi, or both 0 for an empty tensor. */
typedef struct {
	void *first;       /*  0 address of the first element, byte_offset folded in; a handle device's data as is */
	int64_t nelem;     /*  8 number of elements */
	int64_t lo, hi;    /* 16 bytes touched: [first+lo, first+hi) */
	uint32_t itembits; /* 32 bits from one element to the next: 8*size, or 6, 4, 2, 1 when packed */
	uint32_t contig;   /* 36 USMB_DL_C_CONTIGUOUS | USMB_DL_F_CONTIGUOUS */
	uint64_t offset;   /* 40 byte_offset that could not be folded in: handle devices only, else 0 */
} usmb_dl_span;            /* 48 bytes */

/* Reports whether data of this device type is a handle, not an address (OpenCL cl_mem, Vulkan, Metal,
 * WebGPU), so that an offset cannot be added to it. */
int usmb_dl_is_handle_device(int32_t device_type);

/*
 * A copy of a producer's tensor. Each field was read once, so that writes of other threads to the struct,
 * during or after the check, have no effect. t points to shape and strides in the snapshot, so a snapshot
 * must not be moved.
 */
typedef struct {
	usmb_dl_tensor t;        /* strides NULL if the producer wrote none */
	uint64_t flags;          /* 0 for legacy */
	usmb_dl_version version; /* 0, 0 for legacy and bare tensors */
	usmb_dl_span span;       /* valid if the tensor is */
	int64_t shape[USMB_DL_MAX_NDIM];
	int64_t strides[USMB_DL_MAX_NDIM]; /* C order if the producer wrote none */
} usmb_dl_snapshot;

/*
 * Take a snapshot of the tensor in a managed struct, or of a plain tensor, and check it as usmb_dl_check
 * does. All foreign tensors are read this way. The struct is not read again, except for its deleter in
 * usmb_dl_delete. After a failure out is valid for usmb_dl_explain_snapshot only.
 */
int usmb_dl_read_managed(const void *managed, int versioned, usmb_dl_snapshot *out);
int usmb_dl_read(const usmb_dl_tensor *t, uint64_t flags, usmb_dl_snapshot *out);

/*
 * Checks everything that does not depend on the device: ndim, shape, overflow of element count and span,
 * dtype, alignment, and that data is NULL only without elements. The tensor, its shape and strides must
 * not change during the call; use usmb_dl_read for foreign tensors. flags are those of the versioned
 * struct, 0 for legacy (only SUBBYTE_PADDED is used). strides_out (of 64 entries, may be NULL) receives
 * the strides, in C order if the tensor has none; out (may be NULL) receives the span. Nothing is
 * retained.
 */
int usmb_dl_check(const usmb_dl_tensor *t, uint64_t flags, int64_t *strides_out, usmb_dl_span *out);

/*
 * Builds a managed tensor: one malloc block with the struct, the owner pair, shape and strides. The view
 * is not retained. If its strides are NULL, the tensor has the strides of C order. An empty tensor has
 * NULL data, except for kDLOneAPI, which needs the USM pointer. A tensor with 0 dimensions has NULL shape
 * and strides. The version is 1.3.
 * On success the block has taken over one reference of the owner, and the caller owns *out: pass it on, or
 * call usmb_dl_delete. On failure nothing was taken over and *out is unchanged. drop may be NULL, for
 * memory without an owner.
 */
int usmb_dl_export(const usmb_dl_tensor *view, uint64_t flags, int versioned, usmb_drop_fn drop, void *ctx, void **out);

/* Calls the deleter, unless it is NULL. managed may be NULL. Also valid for a tensor of another major
 * version, because the position of the deleter never changes. */
void usmb_dl_delete(void *managed, int versioned);

/* Rounds a byte offset lo <= 0 from an element down to the begin of an element. Packed elements begin at
 * whole bytes only every few elements. The bytes below the lowest element are not accessed. */
static inline int64_t usmb_dl_whole_elements(int64_t lo, uint32_t itembits)
{
	while (lo * 8 % (int64_t)itembits != 0) lo--;
	return lo;
}

/* Reports whether a managed tensor was built by usmb_dl_export of this copy of the library. */
int usmb_dl_is_own(const void *managed, int versioned);

/* Returns the context that usmb_dl_export was given for a managed tensor, and *drop, the function, if this copy of
 * the library built it; else NULL, and *drop is NULL. The tensor still holds its reference of the owner. */
void *usmb_dl_owner(const void *managed, int versioned, usmb_drop_fn *drop);

/*
 * Chooses the struct for a consumer's max_version. has_max 0 (None) or a lower major version: legacy,
 * *versioned = 0. The same or a higher major version: *versioned = 1. EREADONLY or EPADDED if the legacy
 * struct cannot express the flags (set SUBBYTE_PADDED only for sub-byte elements).
 */
int usmb_dl_negotiate(int has_max, uint32_t major, uint32_t minor, uint64_t flags, int *versioned);

/* Returns the first table with major version 1 in a producer's chain, or NULL. */
const usmb_dl_exchange_api *usmb_dl_exchange_find(const void *api);

/* Returns the name of an element type ("float32", "bfloat16"; static), or NULL. lanes must be 1. */
const char *usmb_dl_dtype_name(usmb_dl_dtype dtype);

/* Returns the array-interface type string ("<f4", "|b1"; static), or NULL. */
const char *usmb_dl_dtype_typestr(usmb_dl_dtype dtype);

/* Finds the element type of a name: 0 and *out, or USMB_DL_EDTYPE. */
int usmb_dl_dtype_by_name(const char *name, usmb_dl_dtype *out);

/* Parses an array-interface type string of n bytes: a byte-order sign, kind and size. The sign may be
 * missing; it must be the machine's own ('<', '=', '|') unless elements are single bytes. 0 and *out, or
 * USMB_DL_EDTYPE. */
int usmb_dl_dtype_by_typestr(const char *s, size_t n, usmb_dl_dtype *out);

/* Returns the standard's name of a device type ("kDLOneAPI"), or NULL. */
const char *usmb_dl_device_name(int32_t device_type);

/*
 * Writes a message for a code of the functions above, with the problem and a hint. t is the tensor, or
 * NULL; it must be NULL for EVERSION, for which usmb_dl_explain_snapshot gives more detail. The text is
 * always terminated. Returns buf.
 */
char *usmb_dl_explain(int code, const usmb_dl_tensor *t, char *buf, size_t n);

/* Writes the message for a failure of usmb_dl_read or usmb_dl_read_managed. */
char *usmb_dl_explain_snapshot(int code, const usmb_dl_snapshot *s, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
