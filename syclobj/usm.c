//go:build linux && cgo

#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "gate.h"
#include "objects.h"
#include "place.h"
#include "symbols.h"

/*
 * Intel's OpenCL CPU driver 2024.18.7 returns a block's address before it forgets the block. If another
 * thread gets the address in between, its block is forgotten too, and freeing that block throws in a
 * function that cannot catch. With this driver only one thread at a time allocates or frees. Other
 * libraries in the process, such as dpctl, are not covered by this lock.
 */
static atomic_int alone;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

void usmb_usm_alone(void)
{
	atomic_store_explicit(&alone, 1, memory_order_relaxed);
}

static int enter(void)
{
	int locked = atomic_load_explicit(&alone, memory_order_relaxed);

	if (locked) pthread_mutex_lock(&one);
	return locked;
}

static void leave(int locked)
{
	if (locked) pthread_mutex_unlock(&one);
}

uint32_t usmb_sycl_queue_kinds(void *queue)
{
	void *device;
	uint32_t kinds;

	if (!usmb_ready() || queue == NULL) return 0;
	device = usmb_dp.DPCTLQueue_GetDevice(queue);
	if (device == NULL) return 0;
	kinds = usmb_device_kinds(device);
	usmb_dp.DPCTLDevice_Delete(device);
	return kinds;
}

static void *driver_alloc(void *queue, int32_t kind, size_t size, size_t align)
{
	void *p = NULL;
	int locked = enter();

	switch (kind) {
	case USMB_USM_DEVICE: p = usmb_dp.DPCTLaligned_alloc_device(align, size, queue); break;
	case USMB_USM_SHARED: p = usmb_dp.DPCTLaligned_alloc_shared(align, size, queue); break;
	case USMB_USM_HOST: p = usmb_dp.DPCTLaligned_alloc_host(align, size, queue); break;
	}
	leave(locked);
	return p;
}

static void driver_free(void *ctx, void *p)
{
	int locked = enter();

	usmb_dp.DPCTLfree_with_context(p, ctx);
	leave(locked);
}

static void free_with_context_of(void *queue, void *p)
{
	void *ctx = usmb_dp.DPCTLQueue_GetContext(queue);

	if (ctx == NULL) return; /* out of host memory for a copy of a handle: the block leaks */
	driver_free(ctx, p);
	usmb_dp.DPCTLContext_Delete(ctx);
}

/*
 * Drivers need not give the requested alignment. OpenCL promises that of the largest type only, PoCL ignores
 * more than 128 bytes, Intel's driver drops the high bits of 2^32 and more, and CUDA refuses an alignment
 * that its block does not happen to have. A padded allocation is an aligned part of a larger block. The
 * driver frees the block by its base, so a tree maps the address of the allocation to it. Other allocations
 * are not in the tree.
 */
struct padded {
	void *address, *base;
};
static void *all_padded; /* the root, for tsearch */
static atomic_size_t npadded;
static pthread_mutex_t padded_lock = PTHREAD_MUTEX_INITIALIZER;

static int compare(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct padded *)a)->address,
	          y = (uintptr_t)((const struct padded *)b)->address;

	return (x > y) - (x < y);
}

/* gcc's analyser does not see that the tree has the entry. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
static int add_padded(void *address, void *base)
{
	struct padded *new = malloc(sizeof *new);
	void *node;

	if (new == NULL) return 0;
	*new = (struct padded){address, base};
	pthread_mutex_lock(&padded_lock);
	node = tsearch(new, &all_padded, compare);
	if (node != NULL) atomic_fetch_add_explicit(&npadded, 1, memory_order_relaxed);
	pthread_mutex_unlock(&padded_lock);
	if (node == NULL) free(new);
	return node != NULL;
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

/* Returns the base of the driver's block for the address of an allocation. Removes it from the tree if asked. */
static void *base_of(void *address, int removed)
{
	struct padded key = {address, address}, *found = &key;
	void *node, *base;

	if (atomic_load_explicit(&npadded, memory_order_relaxed) == 0) return address;
	pthread_mutex_lock(&padded_lock);
	node = tfind(&key, &all_padded, compare);
	if (node != NULL) found = *(struct padded **)node;
	base = found->base;
	if (node != NULL && removed) {
		tdelete(&key, &all_padded, compare);
		atomic_fetch_sub_explicit(&npadded, 1, memory_order_relaxed);
		free(found);
	}
	pthread_mutex_unlock(&padded_lock);
	return base;
}

int usmb_sycl_is_padded(void *ptr)
{
	return base_of(ptr, 0) != ptr;
}

static int is_aligned(const void *p, size_t align)
{
	return ((uintptr_t)p & (align - 1)) == 0;
}

/* The largest alignment for which memory is padded, so that a rare one does not take most of a device. */
#define MOST_PADDING ((size_t)64 << 20)

static int alloc_padded(void *queue, int32_t kind, size_t size, size_t align, void **out)
{
	char *base, *p;

	if (align > MOST_PADDING || size > PTRDIFF_MAX - align) return USMB_SYCL_EALLOC;
	base = driver_alloc(queue, kind, size + align, 0); /* 0 is the driver's own alignment */
	if (base == NULL) return USMB_SYCL_EALLOC;
	p = base + (-(uintptr_t)base & (align - 1));
	if (p != base && !add_padded(p, base)) {
		free_with_context_of(queue, base);
		return USMB_SYCL_ENOMEM;
	}
	*out = p;
	return USMB_SYCL_OK;
}

int usmb_sycl_alloc(void *queue, uint32_t kinds, int32_t kind, size_t size, size_t align, void **out)
{
	void *p;
	int err = USMB_SYCL_OK;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (queue == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (align == 0) align = USMB_SYCL_DEFAULT_ALIGN;
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST || (align & (align - 1)) != 0 || size > PTRDIFF_MAX)
		return USMB_SYCL_EARG;
	/*
	 * If the device does not support the kind, the library throws, for host USM in a function that
	 * cannot catch.
	 */
	if ((kinds >> kind & 1) == 0) return USMB_SYCL_EKIND;
	if (size == 0) size = 1;
	p = driver_alloc(queue, kind, size, align);
	if (p != NULL && !is_aligned(p, align)) {
		free_with_context_of(queue, p);
		p = NULL;
	}
	if (p == NULL && usmb_gate_lost()) return USMB_SYCL_EASYNC;
	/* NULL means out of memory or a refused alignment; the library does not say which. */
	if (p == NULL) err = alloc_padded(queue, kind, size, align, &p);
	if (err == USMB_SYCL_OK) *out = usmb_gave(USMB_LIVE_ALLOCATION, p);
	return err;
}

int usmb_sycl_free(void *ctx, void *ptr)
{
	int kind;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || ptr == NULL) return USMB_SYCL_ENULL;
	kind = usmb_dp.DPCTLUSM_GetPointerType(ptr, ctx);
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST) return usmb_kind_error(kind);
	driver_free(ctx, base_of(ptr, 1));
	if (usmb_gate_lost()) return USMB_SYCL_EASYNC; /* the memory is never used again */
	usmb_took(USMB_LIVE_ALLOCATION);
	return USMB_SYCL_OK;
}
