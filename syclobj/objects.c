//go:build linux && cgo

#include "objects.h"
#include "symbols.h"
#include "place.h"

void usmb_text_free(const char *text)
{
	if (text != NULL) usmb_dp.DPCTLCString_Delete(text);
}

const char *usmb_compiler_version(void)
{
	return usmb_ready() ? usmb_dp.DPCTLService_GetDPCPPVersion() : NULL;
}

void usmb_device_describe(void *device, usmb_device_info *f)
{
	usmb_device_table *t = usmb_device_table_enter();
	int32_t is_subdevice;

	f->name = usmb_dp.DPCTLDevice_GetName(device);
	f->vendor = usmb_dp.DPCTLDevice_GetVendor(device);
	f->driver = usmb_dp.DPCTLDevice_GetDriverVersion(device);
	f->global_mem = usmb_dp.DPCTLDevice_GetGlobalMemSize(device);
	/* This function cannot catch exceptions, so call it only if another one has succeeded. */
	f->max_alloc = f->name != NULL ? usmb_dp.DPCTLDevice_GetMaxMemAllocSize(device) : 0;
	f->units = usmb_dp.DPCTLDevice_GetMaxComputeUnits(device);
	f->max_subdevices = usmb_dp.DPCTLDevice_GetPartitionMaxSubDevices(device);
	f->kinds = usmb_kinds_of(t, device);
	f->backend = usmb_dp.DPCTLDevice_GetBackend(device);
	f->type = usmb_dp.DPCTLDevice_GetDeviceType(device);
	f->root = -1;
	if (t != NULL) {
		f->root = usmb_root_of(t, device, &is_subdevice);
		usmb_device_table_leave();
	}
}

void usmb_device_info_free(usmb_device_info *f)
{
	usmb_text_free(f->name);
	usmb_text_free(f->vendor);
	usmb_text_free(f->driver);
}

void *usmb_device_platform(void *device)
{
	return usmb_gave(USMB_LIVE_PLATFORM, usmb_dp.DPCTLDevice_GetPlatform(device));
}

void *usmb_device_default(void)
{
	return usmb_gave(USMB_LIVE_DEVICE, usmb_dp.DPCTLDevice_Create());
}

int usmb_device_select(const char *filter, void **out_device)
{
	void *selector = usmb_dp.DPCTLFilterSelector_Create(filter);

	if (selector == NULL) return USMB_SYCL_EARG;
	*out_device = usmb_gave(USMB_LIVE_DEVICE, usmb_dp.DPCTLDevice_CreateFromSelector(selector));
	usmb_dp.DPCTLDeviceSelector_Delete(selector);
	return *out_device != NULL ? USMB_SYCL_OK : USMB_SYCL_ENODEVICE;
}

int usmb_device_split(void *device, size_t *counts, size_t n, int domain, void **out_vector)
{
	if (n == 0)
		*out_vector = usmb_dp.DPCTLDevice_CreateSubDevicesByAffinity(device, domain);
	else if (counts == NULL)
		*out_vector = usmb_dp.DPCTLDevice_CreateSubDevicesEqually(device, n);
	else
		*out_vector = usmb_dp.DPCTLDevice_CreateSubDevicesByCounts(device, counts, n);
	return *out_vector != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

size_t usmb_devices_len(void *vector)
{
	return usmb_dp.DPCTLDeviceVector_Size(vector);
}

void usmb_devices_take(void *vector, void **out)
{
	size_t i, n = usmb_dp.DPCTLDeviceVector_Size(vector);

	for (i = 0; i < n; i++) out[i] = usmb_gave(USMB_LIVE_DEVICE, usmb_dp.DPCTLDeviceVector_GetAt(vector, i));
	usmb_dp.DPCTLDeviceVector_Delete(vector);
}

void usmb_platform_describe(void *platform, usmb_platform_info *f)
{
	f->name = usmb_dp.DPCTLPlatform_GetName(platform);
	f->vendor = usmb_dp.DPCTLPlatform_GetVendor(platform);
	f->version = usmb_dp.DPCTLPlatform_GetVersion(platform);
	f->backend = usmb_dp.DPCTLPlatform_GetBackend(platform);
}

void usmb_platform_info_free(usmb_platform_info *f)
{
	usmb_text_free(f->name);
	usmb_text_free(f->vendor);
	usmb_text_free(f->version);
}

int usmb_platform_equal(void *a, void *b)
{
	return usmb_dp.DPCTLPlatform_AreEq(a, b);
}

void usmb_platform_delete(void *platform)
{
	if (platform == NULL) return;
	usmb_dp.DPCTLPlatform_Delete(platform);
	usmb_took(USMB_LIVE_PLATFORM);
}

int usmb_context_new(void **devices, size_t n, void **out_ctx)
{
	void *vector;

	if (n == 0) return USMB_SYCL_EARG;
	if (n == 1) {
		*out_ctx = usmb_dp.DPCTLContext_Create(devices[0], usmb_async_error, 0);
	} else {
		vector = usmb_dp.DPCTLDeviceVector_CreateFromArray(n, devices);
		if (vector == NULL) return USMB_SYCL_EFAILED;
		*out_ctx = usmb_dp.DPCTLContext_CreateFromDevices(vector, usmb_async_error, 0);
		usmb_dp.DPCTLDeviceVector_Delete(vector);
	}
	return usmb_gave(USMB_LIVE_CONTEXT, *out_ctx) != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

int usmb_context_devices(void *ctx, void **out_vector)
{
	*out_vector = usmb_dp.DPCTLContext_GetDevices(ctx);
	return *out_vector != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

uint64_t usmb_queue_hash(void *queue)
{
	return usmb_dp.DPCTLQueue_Hash(queue);
}

int usmb_queue_describe(void *queue, usmb_queue_info *f)
{
	usmb_device_table *t;

	f->context = usmb_sycl_queue_context(queue);
	f->device = usmb_sycl_queue_device(queue);
	if (f->context == NULL || f->device == NULL) {
		usmb_sycl_context_delete(f->context);
		usmb_sycl_device_delete(f->device);
		return USMB_SYCL_EFAILED;
	}
	f->hash = usmb_dp.DPCTLQueue_Hash(queue);
	t = usmb_device_table_enter();
	f->kinds = usmb_kinds_of(t, f->device);
	if (t != NULL) usmb_device_table_leave();
	f->in_order = usmb_dp.DPCTLQueue_IsInOrder(queue);
	f->profiling = usmb_dp.DPCTLQueue_HasEnableProfiling(queue);
	return USMB_SYCL_OK;
}

int usmb_event_profile(void *event, uint64_t out[3])
{
	out[0] = usmb_dp.DPCTLEvent_GetProfilingInfoSubmit(event);
	out[1] = usmb_dp.DPCTLEvent_GetProfilingInfoStart(event);
	out[2] = usmb_dp.DPCTLEvent_GetProfilingInfoEnd(event);
	return out[2] != 0 ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}
