//go:build linux && cgo

#include "symbols.h"
#include "usmb_sycl.h"

#include <string.h>

static int library_support(void)
{
	if (!usmb_ready()) return USMB_SYCL_IPC_NO_LIBRARY;
	if (usmb_dp.DPCTLIPCMem_Available == NULL || usmb_dp.DPCTLIPCMem_GetHandle == NULL ||
	    usmb_dp.DPCTLIPCMem_OpenHandle == NULL || usmb_dp.DPCTLIPCMem_CloseHandle == NULL ||
	    usmb_dp.DPCTLIPCMem_FreeHandleData == NULL)
		return USMB_SYCL_IPC_NO_FUNCTIONS;
	return usmb_dp.DPCTLIPCMem_Available() ? USMB_SYCL_IPC_OK : USMB_SYCL_IPC_NOT_BUILT;
}

int usmb_sycl_ipc_support(void *device)
{
	int support = library_support();

	if (support != USMB_SYCL_IPC_OK) return support;
	if (device == NULL || !usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_IPC_MEMORY))
		return USMB_SYCL_IPC_NO_ASPECT;
	return USMB_SYCL_IPC_OK;
}

static int is_device_usm(void *ctx, void *ptr)
{
	return usmb_dp.DPCTLUSM_GetPointerType(ptr, ctx) == USMB_USM_DEVICE;
}

int usmb_sycl_ipc_get(void *ctx, void *ptr, char *out, size_t n, size_t *size)
{
	char *data = NULL;
	int err = USMB_SYCL_OK;

	if (library_support() != USMB_SYCL_IPC_OK) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || ptr == NULL || out == NULL || size == NULL) return USMB_SYCL_ENULL;
	if (!is_device_usm(ctx, ptr)) return USMB_SYCL_ENOTUSM;
	*size = 0;
	if (usmb_dp.DPCTLIPCMem_GetHandle(ptr, ctx, &data, size) != 0 || data == NULL) return USMB_SYCL_EFAILED;
	if (*size == 0 || *size > n)
		err = USMB_SYCL_EARG;
	else
		memcpy(out, data, *size);
	usmb_dp.DPCTLIPCMem_FreeHandleData(data);
	return err;
}

/* The minimum unit in which drivers map device memory; segments are multiples of it. */
#define IPC_STEP ((size_t)2 << 20)

/*
 * Checks that [p, p + size) is device USM of the context on the device: first the last byte, so that an
 * excessive size is detected with one call, then each step. Two adjacent allocations look like one: SYCL
 * does not report where an allocation begins and ends.
 */
static int check_opened(void *ctx, void *device, char *p, size_t size)
{
	void *of;
	bool same;

	if (!is_device_usm(ctx, p)) return USMB_SYCL_ENOTUSM;
	if (size - 1 > UINTPTR_MAX - (uintptr_t)p) return USMB_SYCL_EOVERRUN;
	if (!is_device_usm(ctx, p + (size - 1))) return USMB_SYCL_EOVERRUN;
	for (size_t at = IPC_STEP; at < size; at += IPC_STEP)
		if (!is_device_usm(ctx, p + at)) return USMB_SYCL_EOVERRUN;
	of = usmb_gave(USMB_LIVE_DEVICE, usmb_dp.DPCTLUSM_GetPointerDevice(p, ctx));
	if (of == NULL) return USMB_SYCL_ENODEVICE;
	same = usmb_dp.DPCTLDevice_AreEq(of, device);
	usmb_sycl_device_delete(of);
	return same ? USMB_SYCL_OK : USMB_SYCL_ENODEVICE;
}

int usmb_sycl_ipc_open(void *ctx, void *device, const char *handle, size_t n, size_t size, void **out)
{
	char *p;
	int err;

	if (library_support() != USMB_SYCL_IPC_OK) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || device == NULL || handle == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (n == 0 || size == 0) return USMB_SYCL_EARG;
	p = usmb_dp.DPCTLIPCMem_OpenHandle(handle, n, ctx, device);
	if (p == NULL) return USMB_SYCL_EFAILED;
	err = check_opened(ctx, device, p, size);
	if (err != USMB_SYCL_OK) {
		usmb_dp.DPCTLIPCMem_CloseHandle(p, ctx);
		return err;
	}
	*out = p;
	return USMB_SYCL_OK;
}

int usmb_sycl_ipc_close(void *ctx, void *ptr)
{
	if (library_support() != USMB_SYCL_IPC_OK) return USMB_SYCL_ENOLIB;
	if (ctx == NULL || ptr == NULL) return USMB_SYCL_ENULL;
	usmb_dp.DPCTLIPCMem_CloseHandle(ptr, ctx);
	return USMB_SYCL_OK;
}
