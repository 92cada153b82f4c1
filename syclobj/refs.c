//go:build linux && cgo

#include "symbols.h"
#include "usmb_sycl.h"
#include "usmb_sycl_texts.h"

int usmb_sycl_loaded(void)
{
	return usmb_ready();
}

#define COPY(name, sort, function) \
	void *name(void *ref) \
	{ \
		if (ref == NULL || !usmb_ready()) return NULL; \
		return usmb_gave(sort, usmb_dp.function(ref)); \
	}
COPY(usmb_sycl_context_copy, USMB_LIVE_CONTEXT, DPCTLContext_Copy)
COPY(usmb_sycl_queue_copy, USMB_LIVE_QUEUE, DPCTLQueue_Copy)
COPY(usmb_sycl_device_copy, USMB_LIVE_DEVICE, DPCTLDevice_Copy)
COPY(usmb_sycl_queue_context, USMB_LIVE_CONTEXT, DPCTLQueue_GetContext)
COPY(usmb_sycl_queue_device, USMB_LIVE_DEVICE, DPCTLQueue_GetDevice)

#define DELETE(name, sort, function) \
	void name(void *ref) \
	{ \
		if (ref == NULL) return; \
		usmb_dp.function(ref); \
		usmb_took(sort); \
	}
DELETE(usmb_sycl_context_delete, USMB_LIVE_CONTEXT, DPCTLContext_Delete)
DELETE(usmb_sycl_queue_delete, USMB_LIVE_QUEUE, DPCTLQueue_Delete)
DELETE(usmb_sycl_device_delete, USMB_LIVE_DEVICE, DPCTLDevice_Delete)

#define EQUAL(name, function) \
	int name(void *a, void *b) \
	{ \
		return a != NULL && b != NULL && usmb_ready() && usmb_dp.function(a, b); \
	}
EQUAL(usmb_sycl_context_equal, DPCTLContext_AreEq)
EQUAL(usmb_sycl_queue_equal, DPCTLQueue_AreEq)
EQUAL(usmb_sycl_device_equal, DPCTLDevice_AreEq)

int usmb_sycl_queue_in_order(void *queue)
{
	return queue != NULL && usmb_ready() && usmb_dp.DPCTLQueue_IsInOrder(queue);
}

int usmb_sycl_queue_new(void *ctx, void *device, int in_order, int profiling, void **out_queue)
{
	int properties = (in_order ? DP_IN_ORDER : 0) | (profiling ? DP_ENABLE_PROFILING : 0);

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || device == NULL || out_queue == NULL) return USMB_SYCL_ENULL;
	*out_queue = usmb_gave(USMB_LIVE_QUEUE, usmb_dp.DPCTLQueue_Create(ctx, device, usmb_async_error, properties));
	return *out_queue != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

void usmb_sycl_live(int64_t out[USMB_LIVE_SORTS])
{
	int i;

	for (i = 0; i < USMB_LIVE_SORTS; i++) out[i] = atomic_load_explicit(&usmb_live_counts[i], memory_order_relaxed);
}

const char *usmb_sycl_strerror(int code)
{
	static const char *const texts[USMB_SYCL_NERRORS] = {USMB_SYCL_TEXTS};

	return code >= 0 && code < USMB_SYCL_NERRORS ? texts[code] : "unknown error code";
}
