//go:build linux && cgo

#include <pthread.h>
#include <stdatomic.h>

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

static void free_with_context_of(void *queue, void *p)
{
	void *ctx = usmb_dp.DPCTLQueue_GetContext(queue);
	int locked;

	if (ctx == NULL) return; /* out of host memory for a copy of a handle: the block leaks */
	locked = enter();
	usmb_dp.DPCTLfree_with_context(p, ctx);
	leave(locked);
	usmb_dp.DPCTLContext_Delete(ctx);
}

int usmb_sycl_alloc(void *queue, uint32_t kinds, int32_t kind, size_t size, size_t align, void **out)
{
	void *p = NULL;
	int locked;

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
	locked = enter();
	switch (kind) {
	case USMB_USM_DEVICE: p = usmb_dp.DPCTLaligned_alloc_device(align, size, queue); break;
	case USMB_USM_SHARED: p = usmb_dp.DPCTLaligned_alloc_shared(align, size, queue); break;
	case USMB_USM_HOST: p = usmb_dp.DPCTLaligned_alloc_host(align, size, queue); break;
	}
	leave(locked);
	if (p == NULL) return USMB_SYCL_EALLOC;
	/* Drivers store the alignment in fewer bits (OpenCL in 32) and silently drop the high bits. */
	if (((uintptr_t)p & (align - 1)) != 0) {
		free_with_context_of(queue, p);
		return USMB_SYCL_EALLOC;
	}
	*out = usmb_gave(USMB_LIVE_ALLOCATION, p);
	return USMB_SYCL_OK;
}

int usmb_sycl_free(void *ctx, void *ptr)
{
	int kind, locked;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || ptr == NULL) return USMB_SYCL_ENULL;
	kind = usmb_dp.DPCTLUSM_GetPointerType(ptr, ctx);
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST) return USMB_SYCL_ENOTUSM;
	locked = enter();
	usmb_dp.DPCTLfree_with_context(ptr, ctx);
	leave(locked);
	usmb_took(USMB_LIVE_ALLOCATION);
	return USMB_SYCL_OK;
}
