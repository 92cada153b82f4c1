//go:build linux && cgo

#include "symbols.h"
#include "usmb_sycl.h"

uint32_t usmb_device_kinds(void *device);

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

	if (ctx == NULL) return; /* out of host memory for a copy of a handle: the block is lost */
	usmb_dp.DPCTLfree_with_context(p, ctx);
	usmb_dp.DPCTLContext_Delete(ctx);
}

int usmb_sycl_alloc(void *queue, uint32_t kinds, int32_t kind, size_t size, size_t align, void **out)
{
	void *p = NULL;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (queue == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (align == 0) align = USMB_SYCL_DEFAULT_ALIGN;
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST || (align & (align - 1)) != 0 || size > PTRDIFF_MAX)
		return USMB_SYCL_EARG;
	/* Where the device lacks the kind the library throws, for host USM
	 * through a function that cannot catch. */
	if ((kinds >> kind & 1) == 0) return USMB_SYCL_EKIND;
	if (size == 0) size = 1;
	switch (kind) {
	case USMB_USM_DEVICE: p = usmb_dp.DPCTLaligned_alloc_device(align, size, queue); break;
	case USMB_USM_SHARED: p = usmb_dp.DPCTLaligned_alloc_shared(align, size, queue); break;
	case USMB_USM_HOST: p = usmb_dp.DPCTLaligned_alloc_host(align, size, queue); break;
	}
	if (p == NULL) return USMB_SYCL_EALLOC;
	/* Drivers take the alignment in fewer bits than we do (OpenCL in 32), and
	 * what is cut off is lost without a word. */
	if (((uintptr_t)p & (align - 1)) != 0) {
		free_with_context_of(queue, p);
		return USMB_SYCL_EALLOC;
	}
	*out = usmb_gave(USMB_LIVE_ALLOCATION, p);
	return USMB_SYCL_OK;
}

int usmb_sycl_free(void *ctx, void *ptr)
{
	int kind;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || ptr == NULL) return USMB_SYCL_ENULL;
	kind = usmb_dp.DPCTLUSM_GetPointerType(ptr, ctx);
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST) return USMB_SYCL_ENOTUSM;
	usmb_dp.DPCTLfree_with_context(ptr, ctx);
	usmb_took(USMB_LIVE_ALLOCATION);
	return USMB_SYCL_OK;
}
