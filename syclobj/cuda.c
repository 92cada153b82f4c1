//go:build linux && cgo

/*
 * Memory of SYCL's CUDA backend. Its USM is CUDA memory in the primary context of its device, so libraries of
 * CUDA can use it. All calls of the driver pass usmb_gate_device.
 */
#include "gate.h"
#include "place.h"
#include "symbols.h"

#include <string.h>

/* Constants of cuda.h. */
enum { CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9, CU_EVENT_DISABLE_TIMING = 2, CUDA_ERROR_INVALID_VALUE = 1 };

/* The library declares its pointer functions without const. */
#define PTR(p) ((void *)(uintptr_t)(p))

int usmb_cuda_ordinal(const usmb_place *place, int32_t *out)
{
	if (!usmb_place_is_cuda(place) || place->ordinal < 0 || usmb_cu_driver() == NULL) return USMB_SYCL_ENOCUDA;
	*out = place->ordinal;
	return USMB_SYCL_OK;
}

int usmb_cuda_show(usmb_place *place, int32_t *out)
{
	int err = usmb_cuda_ordinal(place, out);

	if (err == USMB_SYCL_OK) __atomic_store_n(&place->cuda, place->ordinal + 1, __ATOMIC_RELEASE);
	return err;
}

/* ---- order of work ---- */

/* A device without an active primary context has no work. One that the driver does not describe may have some. */
static int may_work(const struct usmb_cu *cu, int32_t ordinal)
{
	unsigned flags;
	int device, active = 0;

	return cu->cuDeviceGet(&device, ordinal) != 0 || cu->cuDevicePrimaryCtxGetState(device, &flags, &active) != 0 ||
	       active;
}

/*
 * Calls work for each device that can use memory of the place: for host USM all devices of the process, also those
 * that SYCL does not list, otherwise the device of the memory. Returns the first failure.
 */
static int on_devices(const usmb_place *place, int (*work)(void *context, void *argument), void *argument)
{
	const struct usmb_cu *cu = usmb_cu_driver();
	int result = USMB_SYCL_OK, count = 0, err;
	int32_t i;

	if (place->kind != USMB_USM_HOST) return usmb_gate_device(place->ordinal, work, argument);
	if (cu == NULL || cu->cuDeviceGetCount(&count) != 0) return USMB_SYCL_EASYNC;
	for (i = 0; i < count; i++) {
		if (!may_work(cu, i)) continue;
		err = usmb_gate_device(i, work, argument);
		if (result == USMB_SYCL_OK) result = err;
	}
	return result;
}

/* Without usmb_gate_enter: the capture mode stays that of the caller while other code runs. */
void usmb_cuda_enter(int64_t ordinal, usmb_cuda_current *c)
{
	const struct usmb_cu *cu = usmb_cu_driver();
	void *context = NULL;

	*c = (usmb_cuda_current){.device = -1};
	if (ordinal < 0 || ordinal > INT32_MAX || cu == NULL) return;
	if (cu->cuDeviceGet(&c->device, (int)ordinal) != 0 || cu->cuCtxGetCurrent(&c->before) != 0) return;
	if (cu->cuDevicePrimaryCtxRetain(&context, c->device) != 0) return;
	c->entered = cu->cuCtxSetCurrent(context) == 0;
	if (!c->entered) (void)cu->cuDevicePrimaryCtxRelease_v2(c->device);
}

void usmb_cuda_save(usmb_cuda_current *c)
{
	const struct usmb_cu *cu = usmb_gated() ? usmb_cu_driver() : NULL;

	*c = (usmb_cuda_current){.device = -1};
	c->entered = cu != NULL && cu->cuCtxGetCurrent(&c->before) == 0;
}

void usmb_cuda_leave(const usmb_cuda_current *c)
{
	if (!c->entered) return;
	(void)usmb_cu_driver()->cuCtxSetCurrent(c->before);
	if (c->device >= 0) (void)usmb_cu_driver()->cuDevicePrimaryCtxRelease_v2(c->device);
}

static int wait_for(void *context, void *stream)
{
	const struct usmb_cu *cu = usmb_cu_driver();

	(void)context;
	return stream != NULL ? cu->cuStreamSynchronize(stream) : cu->cuCtxSynchronize();
}

int usmb_cuda_wait(const usmb_place *place, uintptr_t stream)
{
	enum { LAST_DEFAULT = 2 };

	if (!usmb_cuda_shown(place)) return USMB_SYCL_OK;
	/* The handle of a stream is valid on each device. */
	if (stream > LAST_DEFAULT) return usmb_gate_device(place->ordinal, wait_for, PTR(stream));
	return on_devices(place, wait_for, PTR(stream));
}

/* Events of all work on some devices. The driver keeps the events until the streams have waited. */
enum { MOST_DEVICES = 64 };
struct recorded {
	void *stream, *events[MOST_DEVICES];
	int n;
};

static int record(void *context, void *argument)
{
	const struct usmb_cu *cu = usmb_cu_driver();
	struct recorded *r = argument;
	void *event = NULL;
	int failed;

	if (cu->cuCtxRecordEvent == NULL || r->n == MOST_DEVICES) return cu->cuCtxSynchronize();
	failed = cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	if (failed != 0) return failed;
	failed = cu->cuCtxRecordEvent(context, event);
	if (failed == 0)
		r->events[r->n++] = event;
	else
		(void)cu->cuEventDestroy_v2(event);
	return failed;
}

static int order(void *context, void *argument)
{
	const struct recorded *r = argument;
	int i, failed = 0;

	(void)context;
	for (i = 0; i < r->n && failed == 0; i++)
		failed = usmb_cu_driver()->cuStreamWaitEvent(r->stream, r->events[i], 0);
	return failed;
}

static int destroy(void *context, void *argument)
{
	const struct recorded *r = argument;
	int i;

	(void)context;
	for (i = 0; i < r->n; i++) (void)usmb_cu_driver()->cuEventDestroy_v2(r->events[i]);
	return 0;
}

/* All three on one device. */
static int order_here(void *context, void *argument)
{
	int failed = record(context, argument);

	if (failed == 0) failed = order(context, argument);
	(void)destroy(context, argument);
	return failed;
}

int usmb_cuda_order(const usmb_place *place, uintptr_t stream)
{
	struct recorded r = {.stream = PTR(stream)};
	usmb_gate g;
	int err;

	if (!usmb_cuda_shown(place)) return USMB_SYCL_OK;
	if (place->kind != USMB_USM_HOST) return usmb_gate_device(place->ordinal, order_here, &r);
	usmb_gate_enter_for_some(&g);
	err = on_devices(place, record, &r);
	if (err == USMB_SYCL_OK && r.n > 0) err = on_devices(place, order, &r);
	if (r.n > 0) (void)usmb_gate_device(place->ordinal, destroy, &r);
	usmb_gate_leave_after_some(&g);
	return err;
}

/* ---- devices and imports ---- */

static int is_cuda(const usmb_root *root)
{
	return strncmp(root->filter, "cuda:", 5) == 0 && root->queue != NULL;
}

int32_t usmb_cuda_devices;

void usmb_cuda_count(usmb_device_table *t)
{
	int32_t i, n = 0;

	for (i = 0; t != NULL && i < t->n; i++) {
		usmb_root *root = &t->roots[i];

		root->ordinal = -1;
		if (!is_cuda(root)) continue;
		/* Not its position: CUDA's number also counts devices that ONEAPI_DEVICE_SELECTOR hides. */
		root->ordinal = usmb_gate_ordinal(root->device);
		n++;
	}
	if (t != NULL) usmb_gate_set(n > 0);
	__atomic_store_n(&usmb_cuda_devices, n, __ATOMIC_RELAXED);
}

static int find_root(const usmb_device_table *t, int32_t ordinal, int32_t *root)
{
	int32_t i;
	int result = USMB_SYCL_ENOCUDA;

	for (i = 0; i < t->n; i++) {
		if (!is_cuda(&t->roots[i]) || t->roots[i].ordinal < 0) continue;
		if (ordinal < 0 || t->roots[i].ordinal == ordinal) {
			*root = i;
			return USMB_SYCL_OK;
		}
		result = USMB_SYCL_EDEVICEID;
	}
	return result;
}

int usmb_cuda_root(int32_t ordinal, int32_t *root)
{
	usmb_device_table *t = usmb_device_table_enter();
	int err;

	if (t == NULL) return USMB_SYCL_ENOLIB;
	err = find_root(t, ordinal, root);
	usmb_device_table_leave();
	return err;
}

/* The first and the last byte of memory, and the ordinals of their devices, -1 for addresses that CUDA does not know. */
struct span {
	const char *lo, *last;
	int of_lo, of_last;
};

static int ordinal_of(const void *address, int *out)
{
	int failed =
	        usmb_cu_driver()->cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)address);

	if (failed != 0) *out = -1;
	return failed == CUDA_ERROR_INVALID_VALUE ? 0 : failed;
}

static int find_span(void *context, void *argument)
{
	struct span *s = argument;
	int failed = ordinal_of(s->lo, &s->of_lo);

	(void)context;
	return failed != 0 ? failed : ordinal_of(s->last, &s->of_last);
}

/* Checks that a span is memory of one kind on the device with that ordinal. */
static int check(void *ctx, int32_t ordinal, const struct span *s, int32_t *kind)
{
	int last;

	*kind = usmb_dp.DPCTLUSM_GetPointerType(PTR(s->lo), ctx);
	if (*kind < USMB_USM_DEVICE || *kind > USMB_USM_HOST) return usmb_kind_error(*kind);
	if (s->of_lo != ordinal) return USMB_SYCL_EDEVICEID;
	if (s->last == s->lo) return USMB_SYCL_OK;
	last = usmb_dp.DPCTLUSM_GetPointerType(PTR(s->last), ctx);
	if (last == USMB_USM_FAILED) return USMB_SYCL_EASYNC;
	return s->of_last == ordinal && last == *kind ? USMB_SYCL_OK : USMB_SYCL_EOVERRUN;
}

static int import_from(usmb_device_table *t, int32_t ordinal, const void *lo, const void *hi, usmb_place **out)
{
	int32_t i = 0, kind = USMB_USM_UNKNOWN;
	struct span s = {lo, hi > lo ? (const char *)hi - 1 : lo, -1, -1};
	/* The driver knows the addresses of all devices in the context of each. */
	int err = find_root(t, -1, &i);

	if (err == USMB_SYCL_OK) err = usmb_gate_device(t->roots[i].ordinal, find_span, &s);
	if (err == USMB_SYCL_OK && s.of_lo < 0) err = USMB_SYCL_ENOTUSM;
	if (err == USMB_SYCL_OK) err = find_root(t, ordinal < 0 ? s.of_lo : ordinal, &i);
	if (err == USMB_SYCL_OK) err = check(t->roots[i].context, t->roots[i].ordinal, &s, &kind);
	if (err == USMB_SYCL_OK)
		err = usmb_place_intern(t, t->roots[i].context, t->roots[i].device, kind, t->roots[i].queue, out);
	if (err == USMB_SYCL_OK) __atomic_store_n(&(*out)->cuda, (*out)->ordinal + 1, __ATOMIC_RELEASE);
	return err;
}

int usmb_cuda_import(int32_t ordinal, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	usmb_gate g;
	int err;

	if (lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	usmb_gate_enter_for_some(&g);
	err = import_from(t, ordinal, lo, hi, out);
	usmb_gate_leave_after_some(&g);
	usmb_device_table_leave();
	return err;
}
