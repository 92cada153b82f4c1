/*
 * SYCL objects and unified shared memory for C code of this module.
 *
 * Each function is a complete operation on top of libDPCTLSyclInterface.so, which the Go side finds and
 * loads (see loader.c), so that a caller makes one call instead of one per function of that library.
 * References ("ref") are the library's handles: a context ref is a sycl::context*, a queue ref a
 * sycl::queue*, a device ref a sycl::device*, an event ref a sycl::event*. The caller owns a ref that a
 * function returns directly or through an `out` parameter, unless the comment says "borrowed".
 *
 * All functions may be called on any thread, with or without an interpreter lock, and never enter Go.
 * Functions that need the table of devices (usmb_sycl_dlpack_import, usmb_sycl_place_for,
 * usmb_sycl_current_queue, ...) return USMB_SYCL_ENOLIB while no Runtime is open.
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
	USMB_USM_UNKNOWN = 0, /* not USM of the given context */
	USMB_USM_DEVICE = 1,
	USMB_USM_SHARED = 2,
	USMB_USM_HOST = 3,
	USMB_DEVICE_DOUBLE = 1 << 4 /* in a device's kinds: 64-bit floating-point numbers */
};

/* Results. usmb_sycl_strerror returns a text for each. */
enum {
	USMB_SYCL_OK = 0,
	USMB_SYCL_ENOLIB,      /* no SYCL library is loaded, or no Runtime is open */
	USMB_SYCL_ENULL,       /* a required argument is NULL */
	USMB_SYCL_EARG,        /* an argument is invalid */
	USMB_SYCL_ENOMEM,      /* out of host memory for bookkeeping */
	USMB_SYCL_EALLOC,      /* the SYCL runtime could not allocate the memory */
	USMB_SYCL_ENOTUSM,     /* the first byte is not USM of the context */
	USMB_SYCL_EOVERRUN,    /* the last byte is not USM of the first byte's kind */
	USMB_SYCL_ENODEVICE,   /* the runtime returns no device for the pointer */
	USMB_SYCL_EDEVICEID,   /* no root device has that DLPack index */
	USMB_SYCL_ENOTDEFAULT, /* not in the default context of its platform */
	USMB_SYCL_ENOINDEX,    /* the device is not in the runtime's list of root devices */
	USMB_SYCL_EKIND,       /* the device does not support that kind of USM */
	USMB_SYCL_EFAILED,     /* the library reported a failure */
	USMB_SYCL_EASYNC,      /* work failed after its submission */
	USMB_SYCL_ENOCUDA,     /* the memory is not of SYCL's CUDA backend, or no device of it is there */
	USMB_SYCL_ECAPTURE,    /* the driver refused it because a stream is captured for a CUDA graph */
	USMB_SYCL_NERRORS
};

/* Alignment in bytes of allocations without an explicit one. */
enum { USMB_SYCL_DEFAULT_ALIGN = 256 };

/* DLPack device types that places use. */
enum { USMB_DLPACK_CPU = 1, USMB_DLPACK_ONEAPI = 14 };

/*
 * Description of the memory of one (context, device, kind), shared by all buffers of that kind. Interned:
 * the same triple has the same address while a reference is held. Immutable except for the count.
 */
typedef struct usmb_place {
	int64_t refs;            /* atomic; see usmb_place_retain and _release */
	void *context;           /* owned by the place, as are device and queue */
	void *device;            /* the device of the memory: a root or a sub-device */
	void *queue;             /* a queue on context and device, for copies and as a stream */
	const char *filter;      /* "opencl:cpu:0": of the root device */
	uint64_t serial;         /* never used twice in a process */
	int32_t kind;            /* USMB_USM_DEVICE, _SHARED or _HOST */
	int32_t dl_type;         /* DLPack device type (14) and */
	int32_t dl_id;           /* root index; both valid iff dl_error is 0 */
	int32_t dl_error;        /* USMB_SYCL_OK, or the reason why DLPack cannot describe it */
	int32_t host_readable;   /* 1: shared or host USM */
	int32_t default_context; /* 1: context is the platform's default */
	int32_t is_subdevice;    /* 1: device is not a root device */
	int32_t root;            /* index of the (parent) root device, or -1 */
	uint32_t id;             /* small dense index, reused after the place was freed */
	uint32_t kinds;          /* bit 1<<kind for each kind the device supports */
	struct usmb_place *next; /* private: chain of the intern table */
	void *other;             /* private: see usmb_place_show */
	int32_t shown;           /* private: see usmb_place_show */
	int32_t cuda;            /* private: see usmb_cuda_show */
	int32_t ordinal;         /* CUDA's number of the device, -1 on other backends */
} usmb_place;

/*
 * Writes the reason why DLPack cannot describe the memory of a place: if it is not in the default context,
 * both contexts. Empty if DLPack can. At most n bytes including the terminator; returns buf.
 */
char *usmb_place_explain(const usmb_place *place, char *buf, size_t n);

/*
 * The default queues of a place are the queues on which other libraries may have unreported work on any
 * memory of the place that they have seen: the place's own queue, once it was shown, and the queue that
 * dpctl keeps for the context and device. usmb_place_show records that a queue, of these two, was shown,
 * on any thread; EFAILED if it could not. usmb_place_shown writes the recorded ones to out, borrowed from
 * the place, and returns their number.
 */
int usmb_place_show(usmb_place *place, void *queue);
static inline int usmb_place_shows_own(const usmb_place *place)
{
	return __atomic_load_n(&place->shown, __ATOMIC_RELAXED) != 0;
}
static inline int usmb_place_shown(const usmb_place *place, void *out[2])
{
	void *other = __atomic_load_n(&place->other, __ATOMIC_ACQUIRE);
	int n = 0;

	if (usmb_place_shows_own(place)) out[n++] = place->queue;
	if (other != NULL) out[n++] = other;
	return n;
}

/* Returns 1 if out-of-order queues on the device of the place run their work in the order of submission too. */
int usmb_place_in_order(const usmb_place *place);

/* Adds a reference. NULL is ignored. */
void usmb_place_retain(usmb_place *place);
/* Drops a reference; the last one frees the place and its refs. NULL is ignored. */
void usmb_place_release(usmb_place *place);

/*
 * Imports kDLOneAPI memory: device_id must be the index of a root device, and the span must be USM of the
 * default context of its platform. The place of host USM has that root device. Other places have the device
 * that the runtime returns for the pointer, which may be another root device of the platform or a sub-device.
 * *out is retained. EDEVICEID, then the errors of usmb_sycl_place_for.
 */
int usmb_sycl_dlpack_import(int32_t device_id, const void *lo, const void *hi, usmb_place **out);

/*
 * Returns the place of the foreign memory [lo, hi). The context or the queue may be NULL; if both are
 * given, the queue must be of that context (EARG). Asks for the kind of lo in the context (ENOTUSM), of
 * hi-1 (EOVERRUN) and for the device (ENODEVICE), in this order; if hi == lo, it checks one address. The
 * device is that of lo; for host USM, where SYCL reports the first device of the context, it is the queue's,
 * if there is one. A queue on the memory's device becomes the queue of a new place. *out is retained. Also
 * ENULL, EARG (hi < lo), ENOLIB.
 */
int usmb_sycl_place_for(void *ctx, void *queue_or_null, const void *lo, const void *hi, usmb_place **out);

/*
 * The same for a queue that the caller knows to be of the context. The queue does not become that of a new
 * place.
 */
int usmb_sycl_place_in(void *ctx, void *queue_or_null, const void *lo, const void *hi, usmb_place **out);

/*
 * USM of SYCL's CUDA backend is CUDA memory. usmb_cuda_show prepares memory of a place for libraries of CUDA:
 * *out is CUDA's number of the device, its ordinal, which may differ from the positions in SYCL's lists. From then
 * on usmb_cuda_shown returns 1, and other work on memory of the place comes after usmb_cuda_wait. Exports to
 * consumers of SYCL do not call it: these use queues of SYCL, not streams. ENOCUDA for places on other backends.
 */
int usmb_cuda_show(usmb_place *place, int32_t *out);
/* The number alone, for questions before an export. */
int usmb_cuda_ordinal(const usmb_place *place, int32_t *out);
static inline int usmb_cuda_shown(const usmb_place *place)
{
	return place != NULL && __atomic_load_n(&place->cuda, __ATOMIC_RELAXED) != 0;
}
static inline int usmb_place_is_cuda(const usmb_place *place)
{
	const char *f = place->filter;

	return f[0] == 'c' && f[1] == 'u' && f[2] == 'd' && f[3] == 'a' && f[4] == ':';
}
/*
 * Blocks until a stream of CUDA on the device of the place is idle: a CUstream, 1 and 2 for the default
 * streams, 0 for all streams of the device. For host USM, which all devices can use, 0, 1 and 2 mean the streams of
 * all devices that the process uses. Returns immediately if usmb_cuda_show was not called. EASYNC if
 * the wait returns an error of the work, ECAPTURE during a capture.
 */
int usmb_cuda_wait(const usmb_place *place, uintptr_t stream);
/*
 * Orders later work on a stream, 1 and 2 for the default streams, behind all work on the device of the place, for host
 * USM on all devices. The host does not wait, except with drivers before CUDA 12.5. The same results.
 */
int usmb_cuda_order(const usmb_place *place, uintptr_t stream);
/*
 * Makes the device with that ordinal current in the calling thread, as cudaSetDevice does, until usmb_cuda_leave
 * restores the context that was current before. Does nothing if the ordinal is not that of a device, or if the
 * process has not loaded the driver.
 */
typedef struct {
	void *before;
	int device, entered;
} usmb_cuda_current;
void usmb_cuda_enter(int64_t ordinal, usmb_cuda_current *c);
/* The same without another device: around calls of other libraries for SYCL, which change the current context. */
void usmb_cuda_save(usmb_cuda_current *c);
void usmb_cuda_leave(const usmb_cuda_current *c);
/* The number of devices of the CUDA backend that the open Runtime has. */
extern int32_t usmb_cuda_devices;
static inline int usmb_cuda_present(void)
{
	return __atomic_load_n(&usmb_cuda_devices, __ATOMIC_RELAXED) != 0;
}
/* Finds the root device with that ordinal, any of the CUDA backend for -1. ENOCUDA, EDEVICEID. */
int usmb_cuda_root(int32_t ordinal, int32_t *root);
/*
 * Returns the place of memory [lo, hi) of the CUDA device with that ordinal, -1 for the device of lo, which
 * another library allocated with CUDA. Such memory is known to the runtime: it reports the kind. The place is
 * prepared as by usmb_cuda_show, and *out is retained. ENOCUDA without a device of the CUDA backend;
 * EDEVICEID if the runtime has not that device, or lo is not on it; ENOTUSM, EOVERRUN, EFAILED.
 */
int usmb_cuda_import(int32_t ordinal, const void *lo, const void *hi, usmb_place **out);

/*
 * Returns the place of memory that will be allocated on queue with this kind. *out is retained. EKIND if
 * the device of the queue does not support the kind.
 */
int usmb_sycl_place_new(void *queue, int32_t kind, usmb_place **out);

/*
 * Returns the queue that this library uses for the root device at that index: the stream of DLPack's
 * current_work_stream. Borrowed; valid until the last Runtime is closed. The places of the device record
 * that it was shown.
 */
int usmb_sycl_current_queue(int32_t device_id, void **out_queue);

/*
 * Allocates size bytes (at least 1), aligned to align (a power of two, 0 for USMB_SYCL_DEFAULT_ALIGN), as
 * memory of kind on queue. kinds is usmb_sycl_queue_kinds(queue), obtained once per queue: the library
 * ends the process if a device does not support the kind, so it is checked first. If the driver does not
 * align the memory, it is an aligned part of a block of size + align bytes; an align above 64 MiB fails then.
 */
int usmb_sycl_alloc(void *queue, uint32_t kinds, int32_t kind, size_t size, size_t align, void **out);
/* Frees what usmb_sycl_alloc gave: the exact address, with its context. */
int usmb_sycl_free(void *ctx, void *ptr);
/* Returns 1 if ptr, an address that usmb_sycl_alloc gave, is not the beginning of the driver's block. */
int usmb_sycl_is_padded(void *ptr);
/* Bit 1<<kind for each kind of USM that the device of the queue supports. */
uint32_t usmb_sycl_queue_kinds(void *queue);

/*
 * Sharing device USM with other processes of the machine by handles, which are bytes that only the
 * driver interprets. usmb_sycl_ipc_support reports whether the library and the device support it;
 * the other numbers are reasons.
 */
enum {
	USMB_SYCL_IPC_OK = 0,
	USMB_SYCL_IPC_NO_LIBRARY,   /* no library is loaded */
	USMB_SYCL_IPC_NO_FUNCTIONS, /* it has no DPCTLIPCMem functions */
	USMB_SYCL_IPC_NOT_BUILT,    /* it was built without their implementation */
	USMB_SYCL_IPC_NO_ASPECT     /* the device does not have ext_oneapi_ipc_memory */
};
int usmb_sycl_ipc_support(void *device);
/*
 * Writes the handle of the allocation that begins at ptr, which must be device USM of the context
 * (ENOTUSM): *size bytes to out, at most n; EARG if n is too small. The handle is valid while the memory
 * is allocated.
 */
int usmb_sycl_ipc_get(void *ctx, void *ptr, char *out, size_t n, size_t *size);
/*
 * Maps the memory of a handle. The result is checked: it must be device USM of the context at its first
 * byte (ENOTUSM), at the last byte of size and every 2 MiB in between (EOVERRUN), and be on the device
 * (ENODEVICE). It cannot be checked that the memory is one allocation, and the intended one, since SYCL
 * does not report where allocations begin and end. The caller owns the mapping and ends it with close,
 * when no work on it is pending. The driver parses the bytes of the handle, so accept handles from trusted
 * peers only.
 */
int usmb_sycl_ipc_open(void *ctx, void *device, const char *handle, size_t n, size_t size, void **out);
int usmb_sycl_ipc_close(void *ctx, void *ptr);

/*
 * A lock of this process that host tasks on queues of SYCL take, and whose holder submits work to the same queues and
 * waits for it: Python's GIL. dpnp keeps arrays on memory of others alive by host tasks that take the GIL. A barrier
 * waits for these tasks, later work of its queue waits for the barrier, and some functions of dpnp wait for such work
 * with the GIL held: a deadlock. Therefore, while there is such a lock, usmb_sycl_barriers_pend returns 0. Then
 *   - no function but usmb_sycl_barrier returns while a barrier that it has submitted is pending, and no code of this
 *     library calls usmb_sycl_barrier for a queue that other libraries can use;
 *   - usmb_sycl_wait_queues submits barriers when the libraries under the lock have no pending work on the queues;
 *   - functions that wait release the lock if the calling thread holds it.
 */
typedef struct usmb_host_lock {
	/* Reports whether code under the lock still runs. */
	int (*active)(void);
	/* Releases the lock if this thread holds it. Returns an argument for acquire, or NULL if it does not. */
	void *(*release)(void);
	void (*acquire)(void *released);
	/* Waits for the work that libraries under the lock have on n queues. Then, while they cannot submit
	 * more, calls submit and returns its result. The thread does not hold the lock. patient: waits for computations of
	 * this library in other threads too; otherwise it gives up soon and returns USMB_SYCL_BUSY. */
	int (*quiet)(void *const *queues, size_t n, int (*submit)(void *), void *arg, int patient);
	/* Waits for the work that these libraries have on memory with that number of a queue (usmb_cell_used). The
	 * thread does not hold the lock. */
	int (*await_used)(uint32_t used);
} usmb_host_lock;
/* Sets the lock, once in a process. The variable must stay valid. */
void usmb_sycl_set_host_lock(const usmb_host_lock *lock);
/* Reports whether a barrier may be pending when the function that submitted it returns. */
int usmb_sycl_barriers_pend(void);
/* Release and acquire the lock around a wait that is not one of this header. acquire ignores NULL. */
void *usmb_sycl_release_lock(void);
void usmb_sycl_acquire_lock(void *released);
/* Blocks until the work of libraries under the lock on memory with that number has ended. Returns immediately for 0. */
int usmb_sycl_wait_used(uint32_t used);

/*
 * Blocks until the event is complete. EASYNC if the work failed, EFAILED if the wait did. NULL is
 * complete.
 */
int usmb_sycl_wait_event(void *event);
/* Returns 1 if complete, 0 if not or if the state is unknown. NULL is complete. */
int usmb_sycl_event_done(void *event);
/* The same for n events, none of them NULL; writes done[n]. */
void usmb_sycl_events_done(void *const *events, size_t n, uint8_t *done);
/* Returns the state of an event, which must not be NULL. */
enum { USMB_SYCL_EVENT_PENDING, USMB_SYCL_EVENT_COMPLETE, USMB_SYCL_EVENT_UNKNOWN };
int usmb_sycl_event_state(void *event);
/* Returns an owned second ref of the same event. */
void *usmb_sycl_event_copy(void *event);
/* NULL is ignored. */
void usmb_sycl_event_delete(void *event);
/* The same for n events, none of them NULL. */
void usmb_sycl_events_delete(void *const *events, size_t n);

/*
 * Blocks until all work submitted to n queues, none of them NULL, is complete. If several fail, the result
 * is the first failure, but all are waited for. Queues that occur twice are waited for once.
 */
int usmb_sycl_wait_queues(void *const *queues, size_t n);
/* The same for a caller that holds a lock for which a computation can wait: returns USMB_SYCL_BUSY if it would wait long
 * for a computation of another thread. The caller releases its lock and repeats the call. */
int usmb_sycl_try_wait_queues(void *const *queues, size_t n);
enum { USMB_SYCL_BUSY = -1 };
/*
 * Returns 1 if all work submitted to the queue, which is not NULL, is complete. Returns 0 if some is not, and always for
 * releases of SYCL that cannot say so. Submits nothing and does not wait for work.
 */
int usmb_sycl_queue_empty(void *queue);
/*
 * Makes later work of queue start after an event, which may be NULL, and after all work submitted to n
 * other queues: by barriers, or by waits if barriers must not be pending. Queues that are equal to an in-order
 * queue are skipped.
 */
int usmb_sycl_order(void *queue, void *event, void *const *others, size_t n);

/*
 * Submissions. deps are borrowed event refs for which the work waits. On success *out_event is an owned
 * event ref; out_event may be NULL. A barrier without deps waits for all earlier work of the queue; in
 * both forms later work of the queue waits for the barrier. Where barriers must not be pending, memset, fill
 * and prefetch wait for deps.
 */
int usmb_sycl_barrier(void *queue, void **deps, size_t n, void **out_event);
int usmb_sycl_memcpy(void *queue, void *dst, const void *src, size_t size, void **deps, size_t n, void **out_event);
int usmb_sycl_memset(void *queue, void *dst, uint8_t value, size_t size, void **deps, size_t n, void **out_event);
/* pattern is width bytes (1, 2, 4, 8 or 16), repeated count times from dst. */
int usmb_sycl_fill(void *queue, void *dst, const void *pattern, size_t width, size_t count, void **deps, size_t n,
                   void **out_event);
int usmb_sycl_prefetch(void *queue, const void *ptr, size_t size, void **deps, size_t n, void **out_event);

/* copy returns an owned copy, NULL on failure; delete deletes an owned ref, and ignores NULL. */
void *usmb_sycl_context_copy(void *ctx);
void *usmb_sycl_queue_copy(void *queue);
void *usmb_sycl_device_copy(void *device);
void usmb_sycl_context_delete(void *ctx);
void usmb_sycl_queue_delete(void *queue);
void usmb_sycl_device_delete(void *device);
/* Return the queue's context and device, owned. */
void *usmb_sycl_queue_context(void *queue);
void *usmb_sycl_queue_device(void *queue);
/* Creates a queue on context and device. Owned. */
int usmb_sycl_queue_new(void *ctx, void *device, int in_order, int profiling, void **out_queue);
/* Return 1 if both are the same object of the runtime, else 0. */
int usmb_sycl_context_equal(void *a, void *b);
int usmb_sycl_queue_equal(void *a, void *b);
/* Returns 1 if the queue is in-order, else 0. */
int usmb_sycl_queue_in_order(void *queue);
int usmb_sycl_device_equal(void *a, void *b);

/* Returns 1 if a SYCL library is loaded in this process. */
int usmb_sycl_loaded(void);
/*
 * Makes children of later forks end with their own status: exit ends such a child, after it has flushed the streams of C,
 * before the destructors of SYCL, which wait for threads that the child lacks. Handlers that were registered before the
 * call are skipped there. Only the first call has an effect. It comes after the first use of SYCL, which registers the
 * destructors. Opening a Runtime includes it.
 */
void usmb_sycl_end_children(void);
/* Returns the meaning of a result and a hint; static text. */
const char *usmb_sycl_strerror(int code);

/* The references that this module holds now, by type. */
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
