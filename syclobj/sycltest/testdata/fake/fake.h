/*
 * A fake libDPCTLSyclInterface.so with a machine that the test describes. Package
 * sycltest builds and documents it.
 *
 * References are handles: separate allocations that refer to an object, like copies
 * of a sycl::queue in the real library. Objects are compared by identity. The use of
 * a handle after its deletion, or as another type, ends the process with a message.
 */
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sort { PLATFORM, DEVICE, CONTEXT, QUEUE, EVENT, SELECTOR, VECTOR, TEXT, USM, PROGRAM, KERNEL, SORTS };

enum { MAX_PLATFORMS = 8, MAX_ROOTS = 32, MAX_TILES = 8, MAX_CONTEXT = 16, MAX_DEPS = 64 };

/*
 * Bits in the kinds of a device: it can share device memory with other processes; it has no double precision.
 * From FAKE_ALIGN on: the binary logarithm of the largest alignment of its memory, or 0.
 */
enum { FAKE_IPC = 8, FAKE_NO_DOUBLE = 9, FAKE_ALIGN = 16 };

typedef void handler_fn(int code);

typedef struct platform {
	char name[64];
	int backend;
	struct context *default_context;
} platform;

typedef struct device {
	char name[64];
	platform *platform;
	struct device *parent;
	int type;
	uint64_t mem, used;
	size_t align; /* the largest alignment, or 0 */
	uint32_t units, ntiles, kinds;
	struct device *tiles[MAX_TILES];
} device;

typedef struct context {
	device *devices[MAX_CONTEXT];
	size_t n;
	bool is_default;
} context;

typedef struct queue {
	context *ctx;
	device *dev;
	bool in_order, profiling;
	handler_fn *handler;
	struct event *last; /* of an in-order queue, or the last barrier */
} queue;

typedef struct event {
	queue *q;
	int refs;
	bool complete, released, failed;
	int op;
	void *dst;
	const void *src;
	size_t size, width;
	uint8_t pattern[16];
	struct event *deps[MAX_DEPS];
	size_t ndeps;
	uint64_t times[3];
	struct event *next; /* pending, in order of submission */
} event;

/* The only lock. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;

extern platform *fake_platforms[MAX_PLATFORMS];
extern device *fake_roots[MAX_ROOTS];
extern size_t fake_nplatforms, fake_nroots;

void *handle_new(enum sort sort, void *object);
/* Returns the object of a live handle of that sort; ends the process otherwise. */
void *handle_object(enum sort sort, void *handle);
void handle_delete(enum sort sort, void *handle);
void live_add(enum sort sort, int n);
/* Returns zeroed memory; the caller frees it. */
void *zeroed(size_t size);
/* Returns zeroed memory that is never freed. */
void *keep(size_t size);

/* Counts the call, and returns true if the test requested that it fails. */
bool fake_entry(const char *function);
void fake_die(const char *problem) __attribute__((noreturn));

/* Reads the machine from the environment at the first call. */
void machine_init(void);
void *vector_of(enum sort sort, void **objects, size_t n);

/* The effect of a piece of work. */
enum { NOTHING, COPY, FILL, INCREMENT };

void *submit(void *q, event prototype, void **deps, size_t n);
event *event_submit(queue *q, event prototype, void **deps, size_t n);
void event_unref(event *e);

/* Returns an accessible address of the memory at a user's address, also of device memory. */
void *usm_backing(const void *p, size_t size);

#endif
