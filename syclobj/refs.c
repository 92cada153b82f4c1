//go:build linux && cgo

#include "symbols.h"
#include "usmb_sycl.h"

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
	switch (code) {
	case USMB_SYCL_OK: return "no error";
	case USMB_SYCL_ENOLIB:
		return "no SYCL runtime is open: open one, for which `pip install dpctl intel-opencl-rt` brings "
		       "libDPCTLSyclInterface.so, or name that in USMBRIDGE_SYCL";
	case USMB_SYCL_ENULL: return "a required pointer or object is nil";
	case USMB_SYCL_EARG: return "an argument has an impossible value";
	case USMB_SYCL_ENOMEM: return "out of host memory for bookkeeping";
	case USMB_SYCL_EALLOC: return "the SYCL runtime could not allocate the memory: ask for less, or free some";
	case USMB_SYCL_ENOTUSM:
		return "the pointer is not unified shared memory of the context: pass the context or queue that it was "
		       "allocated with";
	case USMB_SYCL_EOVERRUN:
		return "the last byte of the span is not memory of the kind of its first byte: the shape, strides or "
		       "offset reach beyond the allocation";
	case USMB_SYCL_ENODEVICE: return "the SYCL runtime knows no such device";
	case USMB_SYCL_EDEVICEID: return "no root device has that DLPack device index";
	case USMB_SYCL_ENOTDEFAULT:
		return "the memory is not in the default context of its platform, which DLPack's kDLOneAPI requires: "
		       "copy it, or use __sycl_usm_array_interface__";
	case USMB_SYCL_ENOINDEX:
		return "the device is not among the runtime's root devices, so DLPack has no index for it";
	case USMB_SYCL_EKIND:
		return "the device does not support this kind of unified shared memory: use a kind that usminfo lists "
		       "for it, or another device";
	case USMB_SYCL_EFAILED:
		return "the SYCL library reported a failure: set DPCTL_VERBOSITY=error to see its reason on stderr";
	case USMB_SYCL_EASYNC: return "work on the device failed after its submission";
	case USMB_SYCL_ENOCUDA:
		return "this needs memory of a device of SYCL's CUDA backend, which the adapter "
		       "libur_adapter_cuda.so.0 in "
		       "a folder of UR_ADAPTERS_SEARCH_PATH brings (docs/gpu.md)";
	}
	return "unknown error code";
}
