/*
 * A C library that knows DLPack and nothing of Go: what a producer and a
 * consumer on the other side look like. It has its own declaration of the
 * structs on purpose.
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

/* Producer: a tensor with exactly these fields, shape and strides copied
 * (strides NULL stays NULL, as does shape). NULL when out of memory. */
usmb_peer_versioned *usmb_peer_produce(uint32_t major, uint32_t minor, uint64_t flags, usmb_peer_tensor fields,
                                       const int64_t *shape, const int64_t *strides);
usmb_peer_managed *usmb_peer_produce_legacy(usmb_peer_tensor fields, const int64_t *shape, const int64_t *strides);
/* Gives a produced tensor a deleter that only counts. */
void usmb_peer_keep(void *managed, int versioned);
int64_t usmb_peer_deleted(void); /* deleter calls so far, both kinds */

/* Consumer: the sum of a float32 or float64 tensor on the CPU, or NaN; then
 * the tensor is deleted, as a consumer that took it must. */
double usmb_peer_sum(void *managed, int versioned);
/* Runs the deleter on a thread that Go does not know, and waits for it. */
int usmb_peer_delete_on_thread(void *managed, int versioned);
/* Forks; the child runs the deleter and exits without cleaning up, with 0 when
 * the owner (if any) was dropped once in it. What the child ended with, -1 when
 * there was none. The parent's tensor is untouched. */
int usmb_peer_delete_in_child(void *managed, int versioned, void *owner);
/* What the other side reads. */
usmb_peer_tensor *usmb_peer_look(void *managed, int versioned);

/*
 * A producer that goes on writing: a thread that switches a tensor of 64 extents
 * between its own number of dimensions, type and strides and others, until told to
 * stop. NULL when there is no thread; stop leaves the tensor as it was.
 */
typedef struct usmb_peer_writer usmb_peer_writer;
usmb_peer_writer *usmb_peer_write_start(usmb_peer_tensor *t);
void usmb_peer_write_stop(usmb_peer_writer *w);

/* An owner that counts. */
typedef struct {
	int64_t drops;
} usmb_peer_owner;
void usmb_peer_drop(void *owner);

void usmb_peer_empty(void);

#endif
