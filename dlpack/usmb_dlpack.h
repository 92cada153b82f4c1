/*
 * The DLPack 1.3 C ABI in this project's words, and the rules that go with it.
 *
 * Source of the layouts and values: the DLPack standard, dlpack.h at version
 * 1.3 (dmlc/dlpack); a test compares every offset and value with that header.
 *
 * Nothing here knows arrays, SYCL, Python or Go. An owner of memory is a pair
 * (function, context): the function gives back one reference of the owner, on
 * whichever thread the last consumer happens to run.
 *
 * Threads: every function may be called on any thread at any time; none locks,
 * and the only state is a few deleted blocks that each thread keeps for its next
 * tensors. A deleter that runs in a forked child deletes the child's copy alone.
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
 * An option of usmb_dl_export, in the upper half of its flags; never emitted.
 * CHECKED: the view passed usmb_dl_check before, or is our own array whose
 *   layout was settled at creation: only what cannot be known from that
 *   (read-only, padding, size 0) is looked at again.
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

/* The C exchange API of DLPack 1.2 and 1.3 (DLPackExchangeAPI). Functions
 * return 0, or -1 with the Python error set. */
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

/* Gives back one reference of an owner; any thread, must not block. */
typedef void (*usmb_drop_fn)(void *ctx);

enum {
	USMB_DL_OK = 0,
	USMB_DL_ENOMEM,    /* malloc failed */
	USMB_DL_EVERSION,  /* major version is not ours: delete, touch nothing else */
	USMB_DL_ENDIM,     /* ndim outside 0..64 */
	USMB_DL_ESHAPE,    /* a negative extent, or shape NULL with ndim > 0 */
	USMB_DL_ESTRIDES,  /* the strides reach outside of what can be addressed */
	USMB_DL_EOVERFLOW, /* element count, size in bits or end address too large */
	USMB_DL_EDTYPE,    /* type code or width that cannot be exchanged */
	USMB_DL_ELANES,    /* lanes is not 1 */
	USMB_DL_EALIGN,    /* address or byte_offset not a multiple of the item size */
	USMB_DL_ENULL,     /* NULL where there are elements, or no tensor at all */
	USMB_DL_EREADONLY, /* read-only memory cannot go out as a legacy tensor */
	USMB_DL_EDEVICE,   /* not a device type or id */
	USMB_DL_EPADDED,   /* padded sub-byte elements cannot go out as a legacy tensor */
	USMB_DL_EFLAGS,    /* export flags that are unknown */
	USMB_DL_ECODES     /* number of codes */
};

enum { USMB_DL_C_CONTIGUOUS = 1, USMB_DL_F_CONTIGUOUS = 2 };

/* What usmb_dl_check found. lo <= 0 < hi unless the tensor is empty (0, 0). */
typedef struct {
	void *first;       /*  0 address of the first element, byte_offset folded in; a handle device's data as is */
	int64_t nelem;     /*  8 number of elements */
	int64_t lo, hi;    /* 16 bytes touched: [first+lo, first+hi) */
	uint32_t itembits; /* 32 bits from one element to the next: 8*size, or 6, 4, 2, 1 when packed */
	uint32_t contig;   /* 36 USMB_DL_C_CONTIGUOUS | USMB_DL_F_CONTIGUOUS */
	uint64_t offset;   /* 40 byte_offset that could not be folded in: handle devices only, else 0 */
} usmb_dl_span;            /* 48 bytes */

/* Whether data of this device type is a handle and no address (OpenCL cl_mem,
 * Vulkan, Metal, WebGPU), so that nothing can be added to it. */
int usmb_dl_is_handle_device(int32_t device_type);

/*
 * What a producer's tensor says, read once, so that nothing which another thread
 * writes there later is believed: neither after the check nor between two reads of
 * it. t's shape and strides lie in the snapshot, so it is used where it was made.
 */
typedef struct {
	usmb_dl_tensor t;        /* strides NULL where the producer wrote none */
	uint64_t flags;          /* 0 for legacy */
	usmb_dl_version version; /* 0, 0 for legacy and bare tensors */
	usmb_dl_span span;       /* only of a tensor that was found sound */
	int64_t shape[USMB_DL_MAX_NDIM];
	int64_t strides[USMB_DL_MAX_NDIM]; /* C order where the producer wrote none */
} usmb_dl_snapshot;

/*
 * Takes a snapshot of the tensor inside a managed struct, or of a bare one, and
 * checks that as usmb_dl_check does. This is how foreign memory is looked at; the
 * struct is not read again but by usmb_dl_delete, which reads its deleter. On
 * failure out serves usmb_dl_explain_snapshot and nothing else.
 */
int usmb_dl_read_managed(const void *managed, int versioned, usmb_dl_snapshot *out);
int usmb_dl_read(const usmb_dl_tensor *t, uint64_t flags, usmb_dl_snapshot *out);

/*
 * Checks all that can be known without knowing the device: ndim, shape, the
 * overflow of element count and span, dtype, alignment, NULL data only when
 * there are no elements. The tensor, its shape and strides are the caller's and
 * stand still meanwhile; usmb_dl_read looks at those of others. flags: those of
 * the versioned struct, 0 for legacy (only SUBBYTE_PADDED matters here).
 * strides_out (room for 64, may be NULL) receives the strides, C order when
 * the tensor has none; out (may be NULL) the span. Nothing is kept.
 */
int usmb_dl_check(const usmb_dl_tensor *t, uint64_t flags, int64_t *strides_out, usmb_dl_span *out);

/*
 * Builds a managed tensor: one malloc block with the struct, the owner pair,
 * shape and strides, so that the view may go after the call. strides NULL in
 * the view: C order, written out. Size 0 goes out as NULL data, except for
 * kDLOneAPI, which needs (and keeps) the USM pointer. 0-d: shape and strides
 * NULL. The version emitted is ours.
 * On success the block has taken over one reference of the owner and *out is
 * owned by the caller (hand it on, or usmb_dl_delete). On failure nothing was
 * taken and *out is untouched. drop NULL: memory that nobody owns.
 */
int usmb_dl_export(const usmb_dl_tensor *view, uint64_t flags, int versioned, usmb_drop_fn drop, void *ctx, void **out);

/* Runs the deleter, once, if there is one; NULL is ignored. Also right for a
 * tensor of another major version: the deleter's place never changes. */
void usmb_dl_delete(void *managed, int versioned);

/* A byte offset lo <= 0 from an element, rounded down to where an element begins:
 * packed ones begin at whole bytes every few of them only. Who counts elements from
 * there touches nothing below the lowest. */
static inline int64_t usmb_dl_whole_elements(int64_t lo, uint32_t itembits)
{
	while (lo * 8 % (int64_t)itembits != 0) lo--;
	return lo;
}

/* Whether a managed tensor was built by usmb_dl_export of this copy of the library. */
int usmb_dl_is_own(const void *managed, int versioned);

/*
 * What to hand out for a consumer's max_version. has_max 0 (None), or a lower
 * major than ours: legacy, *versioned = 0; the same or a higher major: ours,
 * *versioned = 1. EREADONLY or EPADDED when legacy cannot carry the flags
 * (give SUBBYTE_PADDED only where elements are less than a byte).
 */
int usmb_dl_negotiate(int has_max, uint32_t major, uint32_t minor, uint64_t flags, int *versioned);

/* The newest table of our major version in a producer's chain, or NULL. */
const usmb_dl_exchange_api *usmb_dl_exchange_find(const void *api);

/* Name of an element type ("float32", "bfloat16"), NULL when it has none;
 * static. lanes must be 1. */
const char *usmb_dl_dtype_name(usmb_dl_dtype dtype);

/* Array-interface type string ("<f4", "|b1"), NULL when it has none; static. */
const char *usmb_dl_dtype_typestr(usmb_dl_dtype dtype);

/* The element type of a name; 0 and *out, or USMB_DL_EDTYPE. */
int usmb_dl_dtype_by_name(const char *name, usmb_dl_dtype *out);

/* The element type of an array-interface type string of n bytes: a byte-order sign,
 * which may be left out and must be the machine's own ('<', '=', '|') but for single
 * bytes, then kind and size. 0 and *out, or USMB_DL_EDTYPE. */
int usmb_dl_dtype_by_typestr(const char *s, size_t n, usmb_dl_dtype *out);

/* Name of a device type as the standard writes it ("kDLOneAPI"), or NULL. */
const char *usmb_dl_device_name(int32_t device_type);

/*
 * A message for a code of the functions above: what was found and what to do.
 * t, the tensor it is about, may be NULL and must be NULL for EVERSION,
 * about which usmb_dl_explain_snapshot says more.
 * Always terminated; returns buf.
 */
char *usmb_dl_explain(int code, const usmb_dl_tensor *t, char *buf, size_t n);

/* The same about what usmb_dl_read and usmb_dl_read_managed found. */
char *usmb_dl_explain_snapshot(int code, const usmb_dl_snapshot *s, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
