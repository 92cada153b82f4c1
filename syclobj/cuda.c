//go:build linux && cgo

/*
 * Memory of SYCL's CUDA backend. Its USM is CUDA memory in the primary context of its device, so libraries of
 * CUDA can use it. SYCL does not report CUDA's number (ordinal) of a device, and the positions in its lists
 * differ from it, so the driver is asked for the ordinal of an address. The adapter of SYCL has loaded the
 * driver's library; this file never loads it.
 */
#define _GNU_SOURCE
#include "place.h"
#include "symbols.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* Constants and signatures of cuda.h. Each function returns 0 on success. */
enum { CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9, CU_EVENT_DISABLE_TIMING = 2, CUDA_ERROR_NOT_READY = 600 };

static struct {
	int (*cuPointerGetAttribute)(void *value, int attribute, unsigned long long address);
	int (*cuDeviceGet)(int *device, int ordinal);
	int (*cuDevicePrimaryCtxRetain)(void **context, int device);
	int (*cuDevicePrimaryCtxRelease_v2)(int device);
	int (*cuCtxGetCurrent)(void **context);
	int (*cuCtxSetCurrent)(void *context);
	int (*cuCtxSynchronize)(void);
	int (*cuStreamSynchronize)(void *stream);
	int (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
	int (*cuEventCreate)(void **event, unsigned flags);
	int (*cuEventQuery)(void *event);
	int (*cuEventDestroy_v2)(void *event);
} cu;
static int (*cuCtxRecordEvent)(void *context, void *event); /* since CUDA 12.5, or NULL */
static const char *const names[] = {
        "cuPointerGetAttribute",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventQuery",
        "cuEventDestroy_v2",
};
_Static_assert(sizeof cu == sizeof names, "one name for each function");
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int loaded; /* cu is filled */

/* Fills cu from the driver's library, if the process has loaded it. */
static int find_driver(void)
{
	void *found[sizeof names / sizeof *names], *library;
	size_t i = 0;

	if (atomic_load_explicit(&loaded, memory_order_acquire)) return USMB_SYCL_OK;
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (library == NULL) return USMB_SYCL_ENOCUDA;
	while (i < sizeof names / sizeof *names && (found[i] = dlsym(library, names[i])) != NULL) i++;
	if (i < sizeof names / sizeof *names) return USMB_SYCL_ENOCUDA;
	pthread_mutex_lock(&lock);
	memcpy(&cu, found, sizeof cu);
	*(void **)&cuCtxRecordEvent = dlsym(library, "cuCtxRecordEvent");
	atomic_store_explicit(&loaded, 1, memory_order_release);
	pthread_mutex_unlock(&lock);
	return USMB_SYCL_OK;
}

/* The library declares its pointer functions without const. */
#define PTR(p) ((void *)(uintptr_t)(p))

/*
 * Asks the driver for the device of an address. The runtime is asked first, because the driver needs a
 * context of CUDA that is current in the thread, which the adapter makes current.
 */
static int ordinal_of(void *ctx, const void *address, int32_t *out)
{
	int ordinal = -1, err = find_driver();

	if (err != USMB_SYCL_OK) return err;
	if (address == NULL || usmb_dp.DPCTLUSM_GetPointerType(PTR(address), ctx) == USMB_USM_UNKNOWN)
		return USMB_SYCL_ENOTUSM;
	if (cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)address) != 0 ||
	    ordinal < 0)
		return USMB_SYCL_EFAILED;
	*out = ordinal;
	return USMB_SYCL_OK;
}

int usmb_cuda_show(usmb_place *place, const void *address, int32_t *out)
{
	int32_t ordinal = __atomic_load_n(&place->cuda, __ATOMIC_ACQUIRE) - 1;
	int err = USMB_SYCL_OK;

	if (ordinal < 0) {
		if (!usmb_place_is_cuda(place)) return USMB_SYCL_ENOCUDA;
		err = ordinal_of(place->context, address, &ordinal);
		if (err == USMB_SYCL_OK) __atomic_store_n(&place->cuda, ordinal + 1, __ATOMIC_RELEASE);
	}
	if (err == USMB_SYCL_OK) *out = ordinal;
	return err;
}

/* Calls work with the device's context and an argument. */
static int in_context(const usmb_place *place, int (*work)(void *context, void *argument), void *argument)
{
	int32_t ordinal = __atomic_load_n(&place->cuda, __ATOMIC_ACQUIRE) - 1;
	void *before = NULL, *context = NULL;
	int device, failed;

	if (ordinal < 0) return USMB_SYCL_OK;
	if (cu.cuDeviceGet(&device, ordinal) != 0 || cu.cuDevicePrimaryCtxRetain(&context, device) != 0)
		return USMB_SYCL_EFAILED;
	(void)cu.cuCtxGetCurrent(&before);
	failed = cu.cuCtxSetCurrent(context);
	if (failed == 0) failed = work(context, argument);
	(void)cu.cuCtxSetCurrent(before);
	(void)cu.cuDevicePrimaryCtxRelease_v2(device);
	return failed != 0 ? USMB_SYCL_EASYNC : USMB_SYCL_OK;
}

void usmb_cuda_enter(int64_t ordinal, usmb_cuda_current *c)
{
	void *context = NULL;

	c->entered = 0;
	if (ordinal < 0 || ordinal > INT32_MAX || find_driver() != USMB_SYCL_OK) return;
	if (cu.cuDeviceGet(&c->device, (int)ordinal) != 0 || cu.cuCtxGetCurrent(&c->before) != 0) return;
	if (cu.cuDevicePrimaryCtxRetain(&context, c->device) != 0) return;
	c->entered = cu.cuCtxSetCurrent(context) == 0;
	if (!c->entered) (void)cu.cuDevicePrimaryCtxRelease_v2(c->device);
}

void usmb_cuda_leave(const usmb_cuda_current *c)
{
	if (!c->entered) return;
	(void)cu.cuCtxSetCurrent(c->before);
	(void)cu.cuDevicePrimaryCtxRelease_v2(c->device);
}

static int wait_for(void *context, void *stream)
{
	(void)context;
	return stream != NULL ? cu.cuStreamSynchronize(stream) : cu.cuCtxSynchronize();
}

int usmb_cuda_wait(const usmb_place *place, uintptr_t stream)
{
	return in_context(place, wait_for, PTR(stream));
}

static int destroy(void *context, void *event)
{
	(void)context;
	return cu.cuEventDestroy_v2(event);
}

static int record(void *context, void *out)
{
	void **event = out;
	int failed;

	if (cuCtxRecordEvent == NULL) return cu.cuCtxSynchronize();
	failed = cu.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
	if (failed == 0) failed = cuCtxRecordEvent(context, *event);
	if (failed == 0 || *event == NULL) return failed;
	(void)destroy(context, *event);
	*event = NULL;
	return failed;
}

int usmb_cuda_record(const usmb_place *place, void **out_event)
{
	*out_event = NULL;
	return in_context(place, record, out_event);
}

static int query(void *context, void *event)
{
	(void)context;
	return cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY;
}

int usmb_cuda_event_done(const usmb_place *place, void *event)
{
	return in_context(place, query, event) == USMB_SYCL_OK;
}

void usmb_cuda_event_delete(const usmb_place *place, void *event)
{
	(void)in_context(place, destroy, event);
}

static int order(void *context, void *stream)
{
	void *event = NULL;
	int failed = record(context, &event);

	if (event == NULL) return failed;
	failed = cu.cuStreamWaitEvent(stream, event, 0);
	(void)destroy(context, event); /* the driver keeps it until the stream has waited */
	return failed;
}

int usmb_cuda_order(const usmb_place *place, uintptr_t stream)
{
	return in_context(place, order, PTR(stream));
}

static int is_cuda(const usmb_root *root)
{
	return strncmp(root->filter, "cuda:", 5) == 0 && root->queue != NULL;
}

int32_t usmb_cuda_devices;

void usmb_cuda_count(const usmb_device_table *t)
{
	int32_t i, n = 0;

	for (i = 0; t != NULL && i < t->n; i++) n += is_cuda(&t->roots[i]);
	__atomic_store_n(&usmb_cuda_devices, n, __ATOMIC_RELAXED);
}

/* Returns the ordinal of a root device, which a byte of memory on it tells. */
static int root_ordinal(usmb_root *root, int32_t *out)
{
	int32_t ordinal = atomic_load(&root->cuda) - 1;
	void *byte = NULL;
	int err = USMB_SYCL_OK;

	if (ordinal < 0) {
		err = usmb_sycl_alloc(root->queue, root->kinds, USMB_USM_DEVICE, 1, 0, &byte);
		if (err != USMB_SYCL_OK) return err;
		err = ordinal_of(root->context, byte, &ordinal);
		(void)usmb_sycl_free(root->context, byte);
		if (err == USMB_SYCL_OK) atomic_store(&root->cuda, ordinal + 1);
	}
	if (err == USMB_SYCL_OK) *out = ordinal;
	return err;
}

/* Checks that [lo, hi) is memory of one kind on the device with that ordinal. */
static int check(void *ctx, int32_t ordinal, const void *lo, const void *hi, int32_t *kind)
{
	const char *last = hi > lo ? (const char *)hi - 1 : lo;
	int32_t of_lo = -1, of_last = -1;
	int err = ordinal_of(ctx, lo, &of_lo);

	if (err == USMB_SYCL_OK && of_lo != ordinal) err = USMB_SYCL_EDEVICEID;
	if (err != USMB_SYCL_OK) return err;
	*kind = usmb_dp.DPCTLUSM_GetPointerType(PTR(lo), ctx);
	err = ordinal_of(ctx, last, &of_last);
	if (err != USMB_SYCL_OK || of_last != ordinal || usmb_dp.DPCTLUSM_GetPointerType(PTR(last), ctx) != *kind)
		return USMB_SYCL_EOVERRUN;
	return USMB_SYCL_OK;
}

static int find_root(usmb_device_table *t, int32_t ordinal, int32_t *root)
{
	int32_t i, of_root = -1;
	int err, result = USMB_SYCL_ENOCUDA;

	for (i = 0; i < t->n; i++) {
		if (!is_cuda(&t->roots[i])) continue;
		err = ordinal < 0 ? USMB_SYCL_OK : root_ordinal(&t->roots[i], &of_root);
		if (err != USMB_SYCL_OK) return err;
		if (ordinal < 0 || of_root == ordinal) {
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

static int import_from(usmb_device_table *t, int32_t ordinal, const void *lo, const void *hi, usmb_place **out)
{
	int32_t i = 0, kind = USMB_USM_UNKNOWN;
	usmb_root *root;
	/* The contexts of all devices know the memory of each. */
	int err = find_root(t, -1, &i);

	if (err == USMB_SYCL_OK && ordinal < 0) err = ordinal_of(t->roots[i].context, lo, &ordinal);
	if (err == USMB_SYCL_OK) err = find_root(t, ordinal, &i);
	root = &t->roots[i];
	if (err == USMB_SYCL_OK) err = check(root->context, ordinal, lo, hi, &kind);
	if (err == USMB_SYCL_OK) err = usmb_place_intern(t, root->context, root->device, kind, root->queue, out);
	if (err == USMB_SYCL_OK) __atomic_store_n(&(*out)->cuda, ordinal + 1, __ATOMIC_RELEASE);
	return err;
}

int usmb_cuda_import(int32_t ordinal, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	int err;

	if (lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	err = import_from(t, ordinal, lo, hi, out);
	usmb_device_table_leave();
	return err;
}
