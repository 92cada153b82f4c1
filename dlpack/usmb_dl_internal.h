/* Private to the C files of this package. */
#ifndef USMB_DL_INTERNAL_H
#define USMB_DL_INTERNAL_H

#include "usmb_dlpack.h"

/*
 * Calls of a few dozen nanoseconds take up to 13 % longer after unrelated changes, depending on the
 * addresses of functions. Aligning functions avoids that; see interop/python/usmb_pyapi.h.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("align-functions=32")
#endif

/*
 * Checks whether the type can be exchanged: OK, ELANES or EDTYPE. Valid widths are those that the
 * standard defines for each code, and for integers the powers of two from 1 to 64.
 */
int usmb_dl_dtype_check(usmb_dl_dtype d);

/* Loads a field exactly once, so that concurrent writes cannot give two different values. */
#define READ(field) (*(const volatile __typeof__(field) *)&(field))

/* Bits from one element to the next: padded sub-byte elements take a byte. */
static inline uint32_t usmb_dl_item_bits(usmb_dl_dtype d, uint64_t flags)
{
	uint32_t bits = (uint32_t)d.bits * d.lanes;
	return bits < 8 && (flags & USMB_DL_FLAG_SUBBYTE_PADDED) ? 8 : bits;
}

/* Message for EVERSION, from the version alone. */
char *usmb_dl_explain_version(usmb_dl_version found, char *buf, size_t n);

/*
 * The two halves of usmb_dl_read_managed, for callers with their own memory for shape and strides.
 * read_fields returns OK, ENULL or EVERSION; t's shape and strides still point to the producer's.
 * read_dims copies shape and strides to the given arrays (of t->ndim or of 64 entries), sets t's pointers
 * to them and checks t. If the producer wrote no strides, t->strides stays NULL and the array has C order.
 */
int usmb_dl_read_fields(const void *managed, int versioned, usmb_dl_tensor *t, uint64_t *flags,
                        usmb_dl_version *version);
int usmb_dl_read_dims(usmb_dl_tensor *t, uint64_t flags, int64_t *shape, int64_t *strides, usmb_dl_span *span);

/*
 * One tensor held by Go, in C memory that is never freed, so that a stale handle can still be checked.
 * Go mirrors this layout. The fields of an imported tensor were read once, into own; shape and strides
 * lie in dims, or in more if dims is too small. The fields of an exported tensor lie in its block.
 */
enum { USMB_DL_SLOT_NDIM = 5 };
typedef struct usmb_dl_slot {
	_Atomic uint64_t word;               /*  0 generation<<1 | live */
	uint32_t next;                       /*  8 Go's free list, atomic */
	uint32_t index;                      /* 12 own number + 1 */
	void *managed;                       /* 16 owned */
	int64_t *more;                       /* 24 NULL, or from malloc */
	uint64_t flags;                      /* 32 */
	uint32_t versioned;                  /* 40 */
	usmb_dl_version version;             /* 44, 48; 0, 0 for legacy */
	uint32_t has_strides;                /* 52 1: the producer wrote strides */
	const usmb_dl_tensor *t;             /* 56 own, or in managed; its strides are never NULL */
	usmb_dl_span span;                   /* 64 */
	usmb_dl_tensor own;                  /* 112 */
	usmb_drop_fn drop;                   /* 160 of usmb_dl_owner */
	void *owner;                         /* 168 the context for drop */
	int64_t dims[2 * USMB_DL_SLOT_NDIM]; /* 176 */
} usmb_dl_slot;                              /* 256 bytes */

/*
 * A view without pointers, because Go must not pass C a struct with pointers into its heap. Addresses
 * are passed as integers: the Go runtime looks up every pointer that may point to pointers, which costs
 * more than the check here. The struct is passed by pointer, because copying fields that were just
 * written one by one stalls the processor.
 */
typedef struct {
	uintptr_t data;
	usmb_dl_device device;
	int32_t ndim;
	usmb_dl_dtype dtype;
	uint64_t byte_offset;
	uint64_t flags;
} usmb_dl_parts;

/* Fill the slot and make it live. On failure the slot stays free, and after a failed import more is an
 * error message from malloc, or NULL. */
int usmb_dl_slot_export(uintptr_t slot, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                        int versioned, uintptr_t drop, uintptr_t ctx);
int usmb_dl_slot_import(uintptr_t slot, uintptr_t managed, int versioned);
void usmb_dl_slot_delete(uintptr_t managed, int versioned, uintptr_t more);
void usmb_dl_slot_free(uintptr_t more);
/* out_span is a usmb_dl_span, passed as a pointer to integers for the same reason. */
int usmb_dl_parts_check(uint64_t *out_span, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides);
void usmb_dl_parts_explain(int code, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                           char *buf, size_t n);

#endif
