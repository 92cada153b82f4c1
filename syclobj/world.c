//go:build linux && cgo

#include "signals.h"
#include "world.h"
#include "table.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic int64_t usmb_live_counts[USMB_LIVE_SORTS];

static _Atomic(usmb_world *) world;
/* Calls that are looking at the world now; closing waits until none is left. */
static _Atomic int64_t visitors;

usmb_world *usmb_world_enter(void)
{
	usmb_world *w;

	/* Announce first, look second: the closer clears the pointer first and
	 * counts second, so one of the two always sees the other. */
	atomic_fetch_add(&visitors, 1);
	w = atomic_load(&world);
	if (w == NULL) atomic_fetch_sub(&visitors, 1);
	return w;
}

void usmb_world_leave(void)
{
	atomic_fetch_sub_explicit(&visitors, 1, memory_order_release);
}

uint32_t usmb_device_kinds(void *device)
{
	uint32_t kinds = 0;

	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_USM_DEVICE)) kinds |= 1u << USMB_USM_DEVICE;
	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_USM_SHARED)) kinds |= 1u << USMB_USM_SHARED;
	if (usmb_dp.DPCTLDevice_HasAspect(device, DP_ASPECT_USM_HOST)) kinds |= 1u << USMB_USM_HOST;
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

static void world_free(usmb_world *w)
{
	int32_t i, k;

	for (i = 0; i < w->n; i++) {
		usmb_root *r = &w->roots[i];

		for (k = 0; k < 4; k++) usmb_place_release(atomic_load(&r->places[k]));
		usmb_sycl_queue_delete(r->queue);
		usmb_sycl_context_delete(r->context);
		usmb_sycl_device_delete(r->device);
		free(r->filter);
	}
	free(w);
}

static int open_world(void)
{
	void *list;
	usmb_world *w;
	size_t n;
	int err = USMB_SYCL_OK;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	list = usmb_dp.DPCTLDeviceMgr_GetDevices(DP_ALL_BACKENDS | DP_ALL_DEVICES);
	if (list == NULL) return USMB_SYCL_EFAILED;
	n = usmb_dp.DPCTLDeviceVector_Size(list);
	w = n > INT32_MAX ? NULL : calloc(1, sizeof *w + n * sizeof w->roots[0]);
	if (w == NULL) err = USMB_SYCL_ENOMEM;
	while (err == USMB_SYCL_OK && (size_t)w->n < n) {
		void *device = usmb_dp.DPCTLDeviceVector_GetAt(list, (size_t)w->n);

		err = root_init(&w->roots[w->n++], device);
	}
	usmb_dp.DPCTLDeviceVector_Delete(list);
	if (err != USMB_SYCL_OK) {
		if (w != NULL) world_free(w);
		return err;
	}
	atomic_store(&world, w);
	return USMB_SYCL_OK;
}

int usmb_world_open(void)
{
	usmb_signals signals;
	int err;

	usmb_signals_save(&signals);
	err = open_world();
	usmb_signals_restore(&signals);
	return err;
}

void usmb_world_close(void)
{
	usmb_world *w = atomic_exchange(&world, NULL);

	if (w == NULL) return;
	while (atomic_load(&visitors) != 0) sched_yield();
	world_free(w);
}

const usmb_root *usmb_world_root(int32_t index)
{
	usmb_world *w = atomic_load(&world);

	return w != NULL && index >= 0 && index < w->n ? &w->roots[index] : NULL;
}

static int32_t find_root(usmb_world *w, void *device)
{
	int32_t i;

	for (i = 0; i < w->n; i++)
		if (usmb_dp.DPCTLDevice_AreEq(device, w->roots[i].device)) return i;
	return -1;
}

int32_t usmb_root_of(usmb_world *w, void *device, int32_t *is_subdevice)
{
	int32_t root = find_root(w, device);
	void *at = device, *parent;

	*is_subdevice = 0;
	while (root < 0) {
		parent = usmb_dp.DPCTLDevice_GetParentDevice(at);
		if (at != device) usmb_dp.DPCTLDevice_Delete(at);
		if (parent == NULL) return -1;
		*is_subdevice = 1;
		at = parent;
		root = find_root(w, at);
	}
	if (at != device) usmb_dp.DPCTLDevice_Delete(at);
	return root;
}

int32_t usmb_sycl_root_count(void)
{
	usmb_world *w = usmb_world_enter();
	int32_t n;

	if (w == NULL) return -1;
	n = w->n;
	usmb_world_leave();
	return n;
}

int usmb_sycl_current_queue(int32_t device_id, void **out_queue)
{
	usmb_world *w;
	int err = USMB_SYCL_EDEVICEID;

	if (out_queue == NULL) return USMB_SYCL_ENULL;
	w = usmb_world_enter();
	if (w == NULL) return USMB_SYCL_ENOLIB;
	if (device_id >= 0 && device_id < w->n) {
		*out_queue = w->roots[device_id].queue;
		err = *out_queue != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
	}
	usmb_world_leave();
	return err;
}

int usmb_sycl_root_context(int32_t device_id, void **out_ctx)
{
	usmb_world *w;
	int err = USMB_SYCL_EDEVICEID;

	if (out_ctx == NULL) return USMB_SYCL_ENULL;
	w = usmb_world_enter();
	if (w == NULL) return USMB_SYCL_ENOLIB;
	if (device_id >= 0 && device_id < w->n) {
		*out_ctx = usmb_sycl_context_copy(w->roots[device_id].context);
		err = *out_ctx != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
	}
	usmb_world_leave();
	return err;
}
