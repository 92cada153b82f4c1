//go:build linux && cgo

#include "signals.h"
#include "devicetable.h"
#include "symbols.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic int64_t usmb_live_counts[USMB_LIVE_SORTS];

static _Atomic(usmb_device_table *) table;
/* Calls that are looking at the table now; closing waits until none is left. */
static _Atomic int64_t visitors;

usmb_device_table *usmb_device_table_enter(void)
{
	usmb_device_table *t;

	/* Announce first, look second: the closer clears the pointer first and
	 * counts second, so one of the two always sees the other. */
	atomic_fetch_add(&visitors, 1);
	t = atomic_load(&table);
	if (t == NULL) atomic_fetch_sub(&visitors, 1);
	return t;
}

void usmb_device_table_leave(void)
{
	atomic_fetch_sub_explicit(&visitors, 1, memory_order_release);
}

uint32_t usmb_device_kinds(void *device)
{
	uint32_t kinds = 0;

	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_USM_DEVICE)) kinds |= 1u << USMB_USM_DEVICE;
	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_USM_SHARED)) kinds |= 1u << USMB_USM_SHARED;
	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_USM_HOST)) kinds |= 1u << USMB_USM_HOST;
	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_FP64)) kinds |= USMB_DEVICE_DOUBLE;
	return kinds;
}

static const char *backend_name(int backend)
{
	switch (backend) {
	case 1 << 16: return "cuda";
	case 1 << 17: return "level_zero";
	case 1 << 18: return "opencl";
	case 1 << 19: return "hip";
	}
	return "unknown";
}

static const char *type_name(int type)
{
	switch (type) {
	case 1 << 0: return "accelerator";
	case 1 << 2: return "cpu";
	case 1 << 3: return "custom";
	case 1 << 4: return "gpu";
	}
	return "unknown";
}

static char *filter_of(void *device)
{
	int backend = usmb_dp.DPCTLDevice_GetBackend(device);
	int type = usmb_dp.DPCTLDevice_GetDeviceType(device);
	int position = usmb_dp.DPCTLDeviceMgr_GetPositionInDevices(device, backend | type);
	char text[64];

	snprintf(text, sizeof text, "%s:%s:%d", backend_name(backend), type_name(type), position);
	return strdup(text);
}

/* The context that a queue of the device gets by default. */
static void *default_context(void *device)
{
	void *ctx = usmb_dp.DPCTLDeviceMgr_GetCachedContext(device);
	void *platform;

	if (ctx == NULL) {
		platform = usmb_dp.DPCTLDevice_GetPlatform(device);
		if (platform == NULL) return NULL;
		ctx = usmb_dp.DPCTLPlatform_GetDefaultContext(platform);
		usmb_dp.DPCTLPlatform_Delete(platform);
	}
	return usmb_gave(USMB_LIVE_CONTEXT, ctx);
}

static int root_init(usmb_root *r, void *device)
{
	r->device = usmb_gave(USMB_LIVE_DEVICE, device);
	if (r->device == NULL) return USMB_SYCL_EFAILED;
	r->context = default_context(device);
	if (r->context == NULL) return USMB_SYCL_EFAILED;
	r->kinds = usmb_device_kinds(device);
	r->filter = filter_of(device);
	if (r->filter == NULL) return USMB_SYCL_ENOMEM;
	/* A device on which no queue can be made is still listed. */
	(void)usmb_sycl_queue_new(r->context, device, 1, 0, &r->queue);
	return USMB_SYCL_OK;
}

static void table_free(usmb_device_table *t)
{
	int32_t i, k;

	for (i = 0; i < t->n; i++) {
		usmb_root *r = &t->roots[i];

		for (k = 0; k < 4; k++) usmb_place_release(atomic_load(&r->places[k]));
		usmb_sycl_queue_delete(r->queue);
		usmb_sycl_context_delete(r->context);
		usmb_sycl_device_delete(r->device);
		free(r->filter);
	}
	free(t);
}

static int open_table(void)
{
	void *list;
	usmb_device_table *t;
	size_t n;
	int err = USMB_SYCL_OK;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	list = usmb_dp.DPCTLDeviceMgr_GetDevices(DP_ALL_BACKENDS | DP_ALL_DEVICES);
	if (list == NULL) return USMB_SYCL_EFAILED;
	n = usmb_dp.DPCTLDeviceVector_Size(list);
	t = n > INT32_MAX ? NULL : calloc(1, sizeof *t + n * sizeof t->roots[0]);
	if (t == NULL) err = USMB_SYCL_ENOMEM;
	while (err == USMB_SYCL_OK && (size_t)t->n < n) {
		void *device = usmb_dp.DPCTLDeviceVector_GetAt(list, (size_t)t->n);

		err = root_init(&t->roots[t->n++], device);
	}
	usmb_dp.DPCTLDeviceVector_Delete(list);
	if (err != USMB_SYCL_OK) {
		if (t != NULL) table_free(t);
		return err;
	}
	atomic_store(&table, t);
	return USMB_SYCL_OK;
}

int usmb_device_table_open(void)
{
	usmb_signals signals;
	int err;

	usmb_signals_save(&signals);
	err = open_table();
	usmb_signals_restore(&signals);
	return err;
}

void usmb_device_table_close(void)
{
	usmb_device_table *t = atomic_exchange(&table, NULL);

	if (t == NULL) return;
	while (atomic_load(&visitors) != 0) sched_yield();
	table_free(t);
}

const usmb_root *usmb_device_table_row(int32_t index)
{
	usmb_device_table *t = atomic_load(&table);

	return t != NULL && index >= 0 && index < t->n ? &t->roots[index] : NULL;
}

static int32_t find_root(usmb_device_table *t, void *device)
{
	int32_t i;

	for (i = 0; i < t->n; i++)
		if (usmb_dp.DPCTLDevice_AreEq(device, t->roots[i].device)) return i;
	return -1;
}

int32_t usmb_root_of(usmb_device_table *t, void *device, int32_t *is_subdevice)
{
	int32_t root = find_root(t, device);
	void *at = device, *parent;

	*is_subdevice = 0;
	while (root < 0) {
		parent = usmb_dp.DPCTLDevice_GetParentDevice(at);
		if (at != device) usmb_dp.DPCTLDevice_Delete(at);
		if (parent == NULL) return -1;
		*is_subdevice = 1;
		at = parent;
		root = find_root(t, at);
	}
	if (at != device) usmb_dp.DPCTLDevice_Delete(at);
	return root;
}

int usmb_sycl_current_queue(int32_t device_id, void **out_queue)
{
	usmb_device_table *t;
	int err = USMB_SYCL_EDEVICEID;

	if (out_queue == NULL) return USMB_SYCL_ENULL;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	if (device_id >= 0 && device_id < t->n) {
		*out_queue = t->roots[device_id].queue;
		err = *out_queue != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
	}
	usmb_device_table_leave();
	return err;
}
