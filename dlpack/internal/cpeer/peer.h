/*
 * A C library that uses DLPack and does not know Go: a producer and a consumer for the tests. It
 * deliberately has its own declaration of the structs.
 */
#ifndef USMB_CPEER_H
#define USMB_CPEER_H

#include <stdint.h>

typedef struct {
	void *data;
	int32_t device_type, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
} usmb_peer_tensor;

typedef struct usmb_peer_managed {
	usmb_peer_tensor tensor;
	void *manager_ctx;
	void (*deleter)(struct usmb_peer_managed *self);
} usmb_peer_managed;

typedef struct usmb_peer_versioned {
	uint32_t major, minor;
	void *manager_ctx;
	void (*deleter)(struct usmb_peer_versioned *self);
	uint64_t flags;
	usmb_peer_tensor tensor;
} usmb_peer_versioned;

/*
 * Producer: returns a tensor with exactly these fields and copies of shape and strides (NULL stays NULL).
 * NULL if out of memory.
 */
usmb_peer_versioned *usmb_peer_produce(uint32_t major, uint32_t minor, uint64_t flags, usmb_peer_tensor fields,
                                       const int64_t *shape, const int64_t *strides);
usmb_peer_managed *usmb_peer_produce_legacy(usmb_peer_tensor fields, const int64_t *shape, const int64_t *strides);
/* Replaces the deleter of a produced tensor by one that only counts. */
void usmb_peer_keep(void *managed, int versioned);
int64_t usmb_peer_deleted(void); /* number of deleter calls, of both kinds */

/* Consumer: returns the sum of a float32 or float64 tensor on the CPU, or NaN, and deletes the tensor. */
double usmb_peer_sum(void *managed, int versioned);
/* Calls the deleter on a new thread, and waits for it. */
int usmb_peer_delete_on_thread(void *managed, int versioned);
/*
 * Forks; the child calls the deleter and exits without clean-up, with 0 if it dropped the owner (if any)
 * once. Returns the exit status of the child, or -1 without one. The parent's tensor is unchanged.
 */
int usmb_peer_delete_in_child(void *managed, int versioned, void *owner);
/* Returns the tensor that a consumer reads. */
usmb_peer_tensor *usmb_peer_tensor_of(void *managed, int versioned);

/*
 * A producer that keeps writing: a thread that switches a tensor of 64 extents between its own number of
 * dimensions, type and strides and different ones, until stop. start returns NULL without a thread; stop
 * restores the tensor.
 */
typedef struct usmb_peer_writer usmb_peer_writer;
usmb_peer_writer *usmb_peer_write_start(usmb_peer_tensor *t);
void usmb_peer_write_stop(usmb_peer_writer *w);

/* An owner that counts dropped references. */
typedef struct {
	int64_t drops;
} usmb_peer_owner;
void usmb_peer_drop(void *owner);

#endif
