/*
 * SYCL objects and unified shared memory for C code of this module.
 *
 * Each function here is one whole operation on top of libDPCTLSyclInterface.so,
 * which the Go side finds and loads (see loader.c): a caller makes one call,
 * not one per function of that library. References ("ref") are the library's
 * own handles: a context ref is a sycl::context*, a queue ref a sycl::queue*,
 * a device ref a sycl::device*, an event ref a sycl::event*. A ref that a
 * function hands out through an `out` parameter or returns is owned by the
 * caller, unless its comment says "borrowed".
 *
 * All functions may be called from any thread, with or without an interpreter
 * lock, and never enter Go. Functions that need the table of devices
 * (usmb_sycl_dlpack_import, usmb_sycl_place_for, usmb_sycl_current_queue, ...)
 * answer USMB_SYCL_ENOLIB while no Runtime is open.
 */
#ifndef USMB_SYCL_H
#define USMB_SYCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of USM, numbered as libDPCTLSyclInterface numbers them. */
enum {
	USMB_USM_UNKNOWN = 0, /* not USM of the context asked about */
	USMB_USM_DEVICE = 1,
	USMB_USM_SHARED = 2,
	USMB_USM_HOST = 3,
	USMB_DEVICE_DOUBLE = 1 << 4 /* in a device's kinds: 64-bit floating-point numbers */
};

/* Results. usmb_sycl_strerror has a sentence for each. */
enum {
	USMB_SYCL_OK = 0,
	USMB_SYCL_ENOLIB,      /* no SYCL library is loaded, or no Runtime is open */
	USMB_SYCL_ENULL,       /* a required argument is NULL */
	USMB_SYCL_EARG,        /* an argument has an impossible value */
	USMB_SYCL_ENOMEM,      /* host memory for bookkeeping ran out */
	USMB_SYCL_EALLOC,      /* the SYCL runtime could not allocate the memory */
	USMB_SYCL_ENOTUSM,     /* the first byte is not USM of the context */
	USMB_SYCL_EOVERRUN,    /* the last byte is not USM of the first byte's kind */
	USMB_SYCL_ENODEVICE,   /* the runtime names no device for the pointer */
	USMB_SYCL_EDEVICEID,   /* no root device has that DLPack index */
	USMB_SYCL_ENOTDEFAULT, /* not in the default context of its platform */
	USMB_SYCL_ENOINDEX,    /* the device is not in the runtime's list of root devices */
	USMB_SYCL_EKIND,       /* the device does not support that kind of USM */
	USMB_SYCL_EFAILED,     /* the library reported a failure */
	USMB_SYCL_EASYNC,      /* work failed on the device and was reported later */
	USMB_SYCL_NERRORS
};

/* Alignment in bytes of allocations that ask for none. */
enum { USMB_SYCL_DEFAULT_ALIGN = 256 };

/* DLPack device types that places use. */
enum { USMB_DLPACK_CPU = 1, USMB_DLPACK_ONEAPI = 14 };

/*
 * What is known about memory of one (context, device, kind), settled once and
 * shared by every buffer of that kind. Interned: the same triple gives the same
 * address while anybody holds it. Immutable but for the count.
 */
typedef struct usmb_place {
	int64_t refs;            /* atomic; use usmb_place_retain and _release */
	void *context;           /* owned by the place, as are device and queue */
	void *device;            /* the device of the memory: a root or a sub-device */
	void *queue;             /* a queue on context and device, for copies and as a stream */
	const char *filter;      /* "opencl:cpu:0": of the root device, or of a sub-device's root */
	uint64_t serial;         /* never used twice in a process */
	int32_t kind;            /* USMB_USM_DEVICE, _SHARED or _HOST */
	int32_t dl_type;         /* DLPack device type (14) and */
	int32_t dl_id;           /* root index; both valid iff dl_error is 0 */
	int32_t dl_error;        /* USMB_SYCL_OK, or why DLPack cannot describe it */
	int32_t host_readable;   /* 1: shared or host USM */
	int32_t default_context; /* 1: context is the platform's default */
	int32_t is_subdevice;    /* 1: device is not a root device */
	int32_t root;            /* index of the (parent) root device, -1 when it has none */
	uint32_t id;             /* small dense index, reused after the place is gone */
	uint32_t kinds;          /* bit 1<<kind for each kind the device supports */
	struct usmb_place *next; /* private: chain of the intern table */
	void *consumer;          /* private: usmb_place_consumer */
} usmb_place;

/*
 * Why DLPack cannot describe the memory of a place, for people: both contexts
 * when it is not in the default one. Empty when it can. At most n bytes with the
 * end of the text; returns buf.
 */
char *usmb_place_explain(const usmb_place *place, char *buf, size_t n);

/*
 * The queue under which memory of this place was shown to others who were not told
 * another one, and on which they may still be working; NULL before anything was shown.
 * Borrowed from the place. note: keeps a copy of the first queue that it is told;
 * any thread.
 */
static inline void *usmb_place_consumer(const usmb_place *place)
{
	return __atomic_load_n(&place->consumer, __ATOMIC_ACQUIRE);
}
void usmb_place_note_consumer(usmb_place *place, void *queue);

/* One more reference. NULL is allowed and ignored. */
void usmb_place_retain(usmb_place *place);
/* One reference less; the last frees the place and its refs. NULL is ignored. */
void usmb_place_release(usmb_place *place);

/*
 * Import of kDLOneAPI memory: device_id must be the index of a root device,
 * the span must be USM of the default context of its platform, and the place
 * is that of the device which the runtime names for the pointer (which may be
 * another root device of the platform, or a sub-device). *out is retained.
 * EDEVICEID, then the errors of usmb_sycl_place_for.
 */
int usmb_sycl_dlpack_import(int32_t device_id, const void *lo, const void *hi, usmb_place **out);

/*
 * The place of foreign memory [lo, hi) known by a context or a queue, of which one
 * may be NULL (with both, the queue must be of that context, else EARG). Asks for
 * the kind of lo in the context (ENOTUSM), of hi-1 (EOVERRUN) and for the device
 * of lo (ENODEVICE), in this order; hi == lo asks about the one address. A queue
 * on the memory's device becomes the place's queue if the place is new. *out is
 * retained. Also ENULL, EARG (hi < lo), ENOLIB.
 */
int usmb_sycl_place_for(void *ctx, void *queue_or_null, const void *lo, const void *hi, usmb_place **out);

/*
 * The place of memory that will be allocated on queue with this kind. It says the
 * same as for foreign memory, asked of the queue. *out is retained. EKIND
 * when the device of the queue lacks that kind.
 */
int usmb_sycl_place_new(void *queue, int32_t kind, usmb_place **out);

/*
 * The queue this library itself uses for the root device at that index: the
 * stream of DLPack's current_work_stream. Borrowed; valid until the last
 * Runtime is closed.
 */
int usmb_sycl_current_queue(int32_t device_id, void **out_queue);

/*
 * Allocation of size bytes (at least 1 is allocated) aligned to align (a power
 * of two, 0 for USMB_SYCL_DEFAULT_ALIGN) as memory of kind on queue. kinds is
 * usmb_sycl_queue_kinds(queue), asked once per queue: the library ends the
 * process when a device lacks the kind, so it is checked first.
 */
int usmb_sycl_alloc(void *queue, uint32_t kinds, int32_t kind, size_t size, size_t align, void **out);
/* Frees what usmb_sycl_alloc gave: the exact address, with its context. */
int usmb_sycl_free(void *ctx, void *ptr);
/* Bit 1<<kind for each kind of USM that the device of the queue supports. */
uint32_t usmb_sycl_queue_kinds(void *queue);

/*
 * Device USM of other processes of the machine, by handles: bytes that the driver
 * makes and understands. support: whether the library and the device can; the
 * numbers are reasons why not.
 */
enum {
	USMB_SYCL_IPC_OK = 0,
	USMB_SYCL_IPC_NO_LIBRARY,   /* none is loaded */
	USMB_SYCL_IPC_NO_FUNCTIONS, /* it has no DPCTLIPCMem functions */
	USMB_SYCL_IPC_NOT_BUILT,    /* it was built without what they need */
	USMB_SYCL_IPC_NO_ASPECT     /* the device does not have ext_oneapi_ipc_memory */
};
int usmb_sycl_ipc_support(void *device);
/*
 * The handle of the allocation that begins at ptr, which must be device USM of the
 * context (ENOTUSM): *size bytes in out, of at most n; EARG when n is too small.
 * The handle holds while the memory is allocated.
 */
int usmb_sycl_ipc_get(void *ctx, void *ptr, char *out, size_t n, size_t *size);
/*
 * Maps the memory of a handle. What comes of it is checked to be device USM of the
 * context at its first byte (ENOTUSM), at the last of size and each 2 MiB between
 * (EOVERRUN), and to lie on the device (ENODEVICE). What cannot be checked: that it is
 * one allocation and the one that was meant, since SYCL does not tell where one begins
 * and ends. Owned; end it with close, on which nothing may be pending. The bytes of the
 * handle go to the driver as they are: take them from peers that may be trusted with it.
 */
int usmb_sycl_ipc_open(void *ctx, void *device, const char *handle, size_t n, size_t size, void **out);
int usmb_sycl_ipc_close(void *ctx, void *ptr);

/* Blocks until the event is complete. EASYNC when the work failed, EFAILED when
 * the wait did. NULL is complete. */
int usmb_sycl_wait_event(void *event);
/* 1 complete, 0 not yet (also when the library cannot tell). NULL is complete. */
int usmb_sycl_event_done(void *event);
/* The same for n events, none of them NULL, in done[n]. */
void usmb_sycl_events_done(void *const *events, size_t n, uint8_t *done);
/* What the runtime tells of n events, none of them NULL, in states[n]. */
enum { USMB_SYCL_EVENT_PENDING, USMB_SYCL_EVENT_COMPLETE, USMB_SYCL_EVENT_UNKNOWN };
void usmb_sycl_event_states(void *const *events, size_t n, uint8_t *states);
/* An owned second ref of the same event. */
void *usmb_sycl_event_copy(void *event);
/* NULL is ignored. */
void usmb_sycl_event_delete(void *event);
/* The same for n events, none of them NULL. */
void usmb_sycl_events_delete(void *const *events, size_t n);

/* Blocks until all work submitted to the queue is complete. */
int usmb_sycl_wait_queue(void *queue);

/*
 * Submissions. deps are borrowed event refs that the work waits for. On
 * success *out_event is an owned event ref; out_event may be NULL.
 * A barrier without deps waits for all earlier work of the queue; in both
 * forms later work of the queue waits for the barrier.
 */
int usmb_sycl_barrier(void *queue, void **deps, size_t n, void **out_event);
int usmb_sycl_memcpy(void *queue, void *dst, const void *src, size_t size, void **deps, size_t n, void **out_event);
int usmb_sycl_memset(void *queue, void *dst, uint8_t value, size_t size, void **deps, size_t n, void **out_event);
/* pattern is width bytes (1, 2, 4, 8 or 16), repeated count times from dst. */
int usmb_sycl_fill(void *queue, void *dst, const void *pattern, size_t width, size_t count, void **deps, size_t n,
                   void **out_event);
int usmb_sycl_prefetch(void *queue, const void *ptr, size_t size, void **deps, size_t n, void **out_event);
int usmb_sycl_advise(void *queue, const void *ptr, size_t size, int advice, void **deps, size_t n, void **out_event);

/* Owned copies (NULL on failure), and the end of owned refs (NULL ignored). */
void *usmb_sycl_context_copy(void *ctx);
void *usmb_sycl_queue_copy(void *queue);
void *usmb_sycl_device_copy(void *device);
void usmb_sycl_context_delete(void *ctx);
void usmb_sycl_queue_delete(void *queue);
void usmb_sycl_device_delete(void *device);
/* Owned refs of what a queue works on. */
void *usmb_sycl_queue_context(void *queue);
void *usmb_sycl_queue_device(void *queue);
/* A new in-order queue on context and device. Owned. */
int usmb_sycl_queue_new(void *ctx, void *device, int in_order, int profiling, void **out_queue);
/* 1 same object of the runtime, 0 not. */
int usmb_sycl_context_equal(void *a, void *b);
int usmb_sycl_queue_equal(void *a, void *b);
int usmb_sycl_device_equal(void *a, void *b);

/* 1 when a SYCL library is loaded in this process and its table is filled. */
int usmb_sycl_loaded(void);
/* What a result means and what to do about it; static text. */
const char *usmb_sycl_strerror(int code);

/* References that this module holds now, by sort. */
enum {
	USMB_LIVE_PLATFORM,
	USMB_LIVE_DEVICE,
	USMB_LIVE_CONTEXT,
	USMB_LIVE_QUEUE,
	USMB_LIVE_EVENT,
	USMB_LIVE_PLACE,
	USMB_LIVE_ALLOCATION,
	USMB_LIVE_PROGRAM,
	USMB_LIVE_KERNEL,
	USMB_LIVE_SORTS
};
void usmb_sycl_live(int64_t out[USMB_LIVE_SORTS]);

#ifdef __cplusplus
}
#endif
#endif
