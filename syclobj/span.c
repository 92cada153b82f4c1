//go:build linux && cgo

#include "symbols.h"
#include "devicetable.h"

/* The pointer functions of the library are declared without const. */
#define PTR(p) ((void *)(uintptr_t)(p))

/*
 * The whole check of a foreign span [lo, hi): the kind of lo in ctx, the kind of
 * hi-1 (when hi > lo + 1) and the device of lo, owned, in this order. hi == lo checks
 * the one address.
 */
static int check(void *ctx, const void *lo, const void *hi, int32_t *kind, void **device)
{
	const char *last = (const char *)hi - 1;
	int first = usmb_dp.DPCTLUSM_GetPointerType(PTR(lo), ctx);

	if (first < USMB_USM_DEVICE || first > USMB_USM_HOST) return USMB_SYCL_ENOTUSM;
	if (last > (const char *)lo && usmb_dp.DPCTLUSM_GetPointerType(PTR(last), ctx) != first)
		return USMB_SYCL_EOVERRUN;
	*device = usmb_gave(USMB_LIVE_DEVICE, usmb_dp.DPCTLUSM_GetPointerDevice(PTR(lo), ctx));
	if (*device == NULL) return USMB_SYCL_ENODEVICE;
	*kind = first;
	return USMB_SYCL_OK;
}

static int place_of(usmb_device_table *t, void *ctx, void *queue, const void *lo, const void *hi, usmb_place **out)
{
	void *device = NULL;
	int32_t kind = USMB_USM_UNKNOWN;
	int err = check(ctx, lo, hi, &kind, &device);

	if (err != USMB_SYCL_OK) return err;
	err = usmb_place_intern(t, ctx, device, kind, queue, out);
	usmb_sycl_device_delete(device);
	return err;
}

int usmb_sycl_dlpack_import(int32_t device_id, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	int err = USMB_SYCL_EDEVICEID;

	if (lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	if (device_id >= 0 && device_id < t->n) err = place_of(t, t->roots[device_id].context, NULL, lo, hi, out);
	usmb_device_table_leave();
	return err;
}

int usmb_sycl_place_for(void *ctx, void *queue, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	void *of_queue = NULL;
	int err = USMB_SYCL_OK;

	if ((ctx == NULL && queue == NULL) || lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	if (queue != NULL) {
		of_queue = usmb_dp.DPCTLQueue_GetContext(queue);
		if (of_queue == NULL)
			err = USMB_SYCL_EFAILED;
		else if (ctx != NULL && !usmb_dp.DPCTLContext_AreEq(ctx, of_queue))
			err = USMB_SYCL_EARG;
	}
	if (err == USMB_SYCL_OK) err = place_of(t, ctx != NULL ? ctx : of_queue, queue, lo, hi, out);
	if (of_queue != NULL) usmb_dp.DPCTLContext_Delete(of_queue);
	usmb_device_table_leave();
	return err;
}

int usmb_sycl_place_new(void *queue, int32_t kind, usmb_place **out)
{
	usmb_device_table *t;
	void *ctx, *device;
	int err = USMB_SYCL_EFAILED;

	if (queue == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	ctx = usmb_dp.DPCTLQueue_GetContext(queue);
	device = usmb_dp.DPCTLQueue_GetDevice(queue);
	if (ctx != NULL && device != NULL) {
		if ((usmb_device_kinds(device) >> kind & 1) == 0)
			err = USMB_SYCL_EKIND;
		else
			err = usmb_place_intern(t, ctx, device, kind, queue, out);
	}
	if (ctx != NULL) usmb_dp.DPCTLContext_Delete(ctx);
	if (device != NULL) usmb_dp.DPCTLDevice_Delete(device);
	usmb_device_table_leave();
	return err;
}
