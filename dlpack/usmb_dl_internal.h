/* Shared by the C files of this package alone. */
#ifndef USMB_DL_INTERNAL_H
#define USMB_DL_INTERNAL_H

#include "usmb_dlpack.h"

/*
 * Whether the type can be exchanged at all: OK, ELANES or EDTYPE. The widths
 * are those that the standard gives each code, and for the integers the powers
 * of two from 1 to 64.
 */
int usmb_dl_dtype_check(usmb_dl_dtype d);

/* One load for each use of it, whatever another thread does: the compiler does not
 * come back for a second value. */
#define READ(field) (*(const volatile __typeof__(field) *)&(field))

/* Bits from one element to the next: padded sub-byte elements take a byte. */
static inline uint32_t usmb_dl_item_bits(usmb_dl_dtype d, uint64_t flags)
{
	uint32_t bits = (uint32_t)d.bits * d.lanes;
	return bits < 8 && (flags & USMB_DL_FLAG_SUBBYTE_PADDED) ? 8 : bits;
}

/* Message for EVERSION, which may look at the version alone. */
char *usmb_dl_explain_version(usmb_dl_version found, char *buf, size_t n);

/*
 * The two halves of usmb_dl_read_managed, for whoever has another place for shape
 * and strides. fields: OK, ENULL or EVERSION; t's shape and strides are still the
 * producer's. dims: copies them into room for so many, or for 64, sets t
 * to there (strides stay NULL where the producer wrote none, and the room has C
 * order) and checks t.
 */
int usmb_dl_read_fields(const void *managed, int versioned, usmb_dl_tensor *t, uint64_t *flags,
                        usmb_dl_version *version);
int usmb_dl_read_dims(usmb_dl_tensor *t, uint64_t flags, int64_t *shape, int64_t *strides, usmb_dl_span *span);

/*
 * Memory of a managed tensor's block for so many dimensions: the struct of either
 * kind, its owner's function and the number of dimensions, shape and strides. See
 * usmb_dl_cache.c. free is told the number that new was told.
 */
#define USMB_DL_BLOCK_HEAD (sizeof(usmb_dl_versioned) + sizeof(usmb_drop_fn) + sizeof(int64_t))
void *usmb_dl_block_new(int32_t ndim); /* NULL: out of memory */
void usmb_dl_block_free(void *block, int32_t ndim);

/*
 * A place for one tensor held by Go, in C memory that is never freed, so that
 * a handle may look at it at any time. Go mirrors this layout. What it says of an
 * imported tensor was read once, into own: shape and strides lie in dims, or in more
 * when there are too many. An exported one is read in its block.
 */
enum { USMB_DL_SLOT_NDIM = 6 };
typedef struct usmb_dl_slot {
	_Atomic uint64_t word;               /*  0 generation<<1 | live */
	uint32_t next;                       /*  8 Go's free list, atomic */
	uint32_t index;                      /* 12 own number + 1 */
	void *managed;                       /* 16 owned */
	int64_t *more;                       /* 24 NULL, or of malloc */
	uint64_t flags;                      /* 32 */
	uint32_t versioned;                  /* 40 */
	usmb_dl_version version;             /* 44, 48; 0, 0 for legacy */
	uint32_t has_strides;                /* 52 whether the producer wrote them */
	const usmb_dl_tensor *t;             /* 56 own, or in managed; its strides are always there */
	usmb_dl_span span;                   /* 64 */
	usmb_dl_tensor own;                  /* 112 */
	int64_t dims[2 * USMB_DL_SLOT_NDIM]; /* 160 */
} usmb_dl_slot;                              /* 256 bytes */

/*
 * A view by its parts, since Go may not pass C a struct that holds pointers
 * into its own heap. Addresses come as numbers: the runtime looks up every
 * pointer that might hold pointers, which costs more than the check here. The
 * struct itself goes by pointer: copying what was written piece by piece just
 * now stalls the processor.
 */
typedef struct {
	uintptr_t data;
	usmb_dl_device device;
	int32_t ndim;
	usmb_dl_dtype dtype;
	uint64_t byte_offset;
	uint64_t flags;
} usmb_dl_parts;

/* Fills the slot and makes it live. On failure the slot stays free, and more of a
 * failed import is a message of malloc about what was found, or NULL. */
int usmb_dl_slot_export(uintptr_t slot, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                        int versioned, uintptr_t drop, uintptr_t ctx);
int usmb_dl_slot_import(uintptr_t slot, uintptr_t managed, int versioned);
void usmb_dl_slot_delete(uintptr_t managed, int versioned, uintptr_t more);
void usmb_dl_slot_free(uintptr_t more);
/* out_span is a usmb_dl_span, as a pointer to numbers: see above. */
int usmb_dl_parts_check(uint64_t *out_span, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides);
void usmb_dl_parts_explain(int code, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                           char *buf, size_t n);

#endif
