//go:build linux && cgo

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "gate.h"
#include "symbols.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* ---- CUDA's driver ---- */

enum {
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, /* the first and the last error of captures */
	CUDA_ERROR_STREAM_CAPTURE_LAST = 908
};

static const char *const names[] = {
        "cuPointerGetAttribute",
        "cuDeviceGet",
        "cuDeviceGetCount",
        "cuDevicePrimaryCtxGetState",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuCtxSynchronize",
        "cuMemGetInfo_v2",
        "cuStreamSynchronize",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventDestroy_v2",
        "cuCtxRecordEvent",
        "cuThreadExchangeStreamCaptureMode",
};
enum { NAMES = sizeof names / sizeof *names, OPTIONAL = 2 };
_Static_assert(sizeof(struct usmb_cu) == sizeof names, "one name for each function");

static struct usmb_cu cu;
static _Atomic int loaded; /* cu is filled */

/* SYCL's adapter loads the driver's library. This file never does. */
const struct usmb_cu *usmb_cu_driver(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	void *found[NAMES], *library;
	size_t i;

	if (atomic_load_explicit(&loaded, memory_order_acquire)) return &cu;
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (library == NULL) return NULL;
	for (i = 0; i < NAMES; i++) {
		found[i] = dlsym(library, names[i]);
		if (found[i] == NULL && i < NAMES - OPTIONAL) return NULL;
	}
	pthread_mutex_lock(&lock);
	if (!atomic_load_explicit(&loaded, memory_order_relaxed)) memcpy(&cu, found, sizeof cu);
	atomic_store_explicit(&loaded, 1, memory_order_release);
	pthread_mutex_unlock(&lock);
	return &cu;
}

static _Thread_local int depth; /* gates that the thread is in */

void usmb_gate_enter(usmb_gate *g)
{
	const struct usmb_cu *driver;
	int err;

	g->outermost = depth++ == 0;
	if (!g->outermost) return;
	driver = usmb_cu_driver();
	err = driver != NULL ? driver->cuCtxGetCurrent(&g->before) : CUDA_ERROR_NOT_INITIALIZED;
	g->restores = err == 0 || err == CUDA_ERROR_NOT_INITIALIZED;
	if (err != 0) g->before = NULL;
	g->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	g->relaxed = driver != NULL && driver->cuThreadExchangeStreamCaptureMode != NULL &&
	             driver->cuThreadExchangeStreamCaptureMode(&g->mode) == 0;
}

void usmb_gate_leave(const usmb_gate *g)
{
	const struct usmb_cu *driver;
	void *now = NULL;
	int mode;

	depth--;
	if (!g->outermost) return;
	driver = usmb_cu_driver(); /* which the call may have loaded */
	if (driver == NULL) return;
	mode = g->mode;
	if (g->relaxed) (void)driver->cuThreadExchangeStreamCaptureMode(&mode);
	if (g->restores && driver->cuCtxGetCurrent(&now) == 0 && now != g->before)
		(void)driver->cuCtxSetCurrent(g->before);
}

static int result_of(int err)
{
	if (err == 0) return USMB_SYCL_OK;
	if (err >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && err <= CUDA_ERROR_STREAM_CAPTURE_LAST)
		return USMB_SYCL_ECAPTURE;
	return USMB_SYCL_EASYNC;
}

int usmb_gate_device(int32_t ordinal, int (*work)(void *context, void *argument), void *argument)
{
	const struct usmb_cu *driver = usmb_cu_driver();
	void *context = NULL;
	usmb_gate g;
	int device = 0, err;

	if (driver == NULL) return USMB_SYCL_ENOCUDA;
	usmb_gate_enter(&g);
	err = driver->cuDeviceGet(&device, ordinal);
	if (err == 0) err = driver->cuDevicePrimaryCtxRetain(&context, device);
	if (err == 0) {
		err = driver->cuCtxSetCurrent(context);
		if (err == 0) err = work(context, argument);
		(void)driver->cuDevicePrimaryCtxRelease_v2(device);
	}
	usmb_gate_leave(&g);
	return result_of(err);
}

/* ---- SYCL ---- */

static struct usmb_dpctl real; /* the functions behind the gate */
/* Before the first list of devices it is unknown whether there are devices of CUDA, and asking for any may change the
 * current context: the gate is closed. */
static _Atomic int open_gate;
static _Thread_local int lost;
static uint64_t (*get_native)(const void *device); /* ur_native_handle_t sycl::device::getNative() const */

int usmb_gated(void)
{
	return !atomic_load_explicit(&open_gate, memory_order_acquire);
}

void usmb_gate_enter_for_some(usmb_gate *g)
{
	g->skipped = !usmb_gated();
	if (!g->skipped) usmb_gate_enter(g);
}

void usmb_gate_leave_after_some(const usmb_gate *g)
{
	if (!g->skipped) usmb_gate_leave(g);
}

int usmb_gate_lost(void)
{
	return lost;
}

static int is_on_cuda(void *queue)
{
	enum { BACKEND_CUDA = 1 << 16 };
	void *device = usmb_dp.DPCTLQueue_GetDevice(queue);
	int backend = device != NULL ? usmb_dp.DPCTLDevice_GetBackend(device) : 0;

	if (device != NULL) usmb_dp.DPCTLDevice_Delete(device);
	return backend == BACKEND_CUDA;
}

/* The runtime does not say why a call for a queue failed. After work has failed, the driver reports that from all calls for
 * the context, which the adapter has made current. */
static int is_lost_on(void *queue)
{
	const struct usmb_cu *driver = usmb_cu_driver();
	size_t unused, total;
	int err = driver != NULL ? driver->cuMemGetInfo_v2(&unused, &total) : 0;

	return err != 0 && err != CUDA_ERROR_OUT_OF_MEMORY && result_of(err) == USMB_SYCL_EASYNC && is_on_cuda(queue);
}

/* Functions that catch all exceptions. SUBMITTING: those that return an event. */
#define SUBMITTING(X) \
	X(void *, DPCTLQueue_Memcpy, (void *q, void *to, const void *from, size_t n), (q, to, from, n)) \
	X(void *, DPCTLQueue_MemcpyWithEvents, (void *q, void *to, const void *from, size_t n, void **e, size_t ne), \
	  (q, to, from, n, e, ne)) \
	X(void *, DPCTLQueue_Prefetch, (void *q, const void *p, size_t n), (q, p, n)) \
	X(void *, DPCTLQueue_SubmitBarrierForEvents, (void *q, void **e, size_t n), (q, e, n)) \
	X(void *, DPCTLQueue_Memset, (void *q, void *p, uint8_t v, size_t n), (q, p, v, n)) \
	X(void *, DPCTLQueue_Fill8, (void *q, void *p, uint8_t v, size_t n), (q, p, v, n)) \
	X(void *, DPCTLQueue_Fill16, (void *q, void *p, uint16_t v, size_t n), (q, p, v, n)) \
	X(void *, DPCTLQueue_Fill32, (void *q, void *p, uint32_t v, size_t n), (q, p, v, n)) \
	X(void *, DPCTLQueue_Fill64, (void *q, void *p, uint64_t v, size_t n), (q, p, v, n)) \
	X(void *, DPCTLQueue_Fill128, (void *q, void *p, uint64_t *v, size_t n), (q, p, v, n))
#define RETURNING(X) \
	X(void *, DPCTLQueue_Create, (void *c, void *d, usmb_async_handler *h, int p), (c, d, h, p)) \
	X(int, DPCTLEvent_GetCommandExecutionStatus, (void *e), (e)) \
	X(void *, DPCTLEvent_GetWaitList, (void *e), (e)) \
	X(uint64_t, DPCTLEvent_GetProfilingInfoSubmit, (void *e), (e)) \
	X(uint64_t, DPCTLEvent_GetProfilingInfoStart, (void *e), (e)) \
	X(uint64_t, DPCTLEvent_GetProfilingInfoEnd, (void *e), (e)) \
	X(void *, DPCTLContext_Create, (void *d, usmb_async_handler *h, int p), (d, h, p)) \
	X(void *, DPCTLContext_CreateFromDevices, (void *v, usmb_async_handler *h, int p), (v, h, p)) \
	X(void *, DPCTLContext_GetDevices, (void *c), (c)) \
	X(void *, DPCTLPlatform_GetDefaultContext, (void *p), (p)) \
	X(void *, DPCTLFilterSelector_Create, (const char *filter), (filter)) \
	X(void *, DPCTLDeviceMgr_GetDevices, (int id), (id)) \
	X(int, DPCTLDeviceMgr_GetPositionInDevices, (void *d, int id), (d, id)) \
	X(void *, DPCTLDeviceMgr_GetCachedContext, (void *d), (d)) \
	X(void *, DPCTLDevice_GetPlatform, (void *d), (d)) \
	X(void *, DPCTLDevice_GetParentDevice, (void *d), (d)) \
	X(int, DPCTLDevice_GetDeviceType, (void *d), (d)) \
	X(void *, DPCTLDevice_Create, (void), ()) \
	X(void *, DPCTLDevice_CreateFromSelector, (void *s), (s)) \
	X(void *, DPCTLDevice_CreateSubDevicesEqually, (void *d, size_t n), (d, n)) \
	X(void *, DPCTLDevice_CreateSubDevicesByCounts, (void *d, size_t *v, size_t n), (d, v, n)) \
	X(void *, DPCTLDevice_CreateSubDevicesByAffinity, (void *d, int by), (d, by)) \
	X(const char *, DPCTLDevice_GetName, (void *d), (d)) \
	X(const char *, DPCTLDevice_GetVendor, (void *d), (d)) \
	X(const char *, DPCTLDevice_GetDriverVersion, (void *d), (d)) \
	X(size_t, DPCTLDevice_GetGlobalMemSize, (void *d), (d)) \
	X(size_t, DPCTLDevice_GetMaxMemAllocSize, (void *d), (d)) \
	X(uint32_t, DPCTLDevice_GetMaxComputeUnits, (void *d), (d)) \
	X(uint32_t, DPCTLDevice_GetPartitionMaxSubDevices, (void *d), (d)) \
	X(bool, DPCTLDevice_HasAspect, (void *d, int a), (d, a)) \
	X(uint64_t, DPCTLDevice_GetLocalMemSize, (void *d), (d)) \
	X(size_t, DPCTLDevice_GetMaxWorkGroupSize, (void *d), (d)) \
	X(size_t *, DPCTLDevice_GetMaxWorkItemSizes3d, (void *d), (d)) \
	X(void *, DPCTLKernelBundle_CreateFromOCLSource, (void *c, void *d, const char *s, const char *o), \
	  (c, d, s, o)) \
	X(void *, DPCTLKernelBundle_CreateFromSpirv, (void *c, void *d, const void *il, size_t n, const char *o), \
	  (c, d, il, n, o)) \
	X(void *, DPCTLKernelBundle_GetKernel, (void *b, const char *name), (b, name))
#define RETURNING_NOTHING(X) \
	X(DPCTLQueue_Delete, (void *q), (q)) \
	X(DPCTLContext_Delete, (void *c), (c)) \
	X(DPCTLEvent_WaitAndThrow, (void *e), (e)) \
	X(DPCTLEvent_Delete, (void *e), (e)) \
	X(DPCTLEventVector_Delete, (void *v), (v)) \
	X(DPCTLKernelBundle_Delete, (void *b), (b)) \
	X(DPCTLKernel_Delete, (void *k), (k))
/* Functions marked NOTHROW! in symbols.h, and the other allocations. */
#define GUARDED(X) \
	X(DPCTLaligned_alloc_device) \
	X(DPCTLaligned_alloc_shared) \
	X(DPCTLaligned_alloc_host) \
	X(DPCTLfree_with_context) \
	X(DPCTLUSM_GetPointerType) \
	X(DPCTLUSM_GetPointerDevice)

#define GATED(ret, name, params, args, after) \
	static ret gate_##name params \
	{ \
		usmb_gate g; \
		ret r; \
\
		if (!usmb_gated()) return real.name args; \
		usmb_gate_enter(&g); \
		r = real.name args; \
		after; \
		usmb_gate_leave(&g); \
		return r; \
	}
#define X(ret, name, params, args) GATED(ret, name, params, args, )
RETURNING(X)
#undef X
#define X(ret, name, params, args) GATED(ret, name, params, args, lost = r == NULL && is_lost_on(q))
SUBMITTING(X)
#undef X

#define X(name, params, args) \
	static void gate_##name params \
	{ \
		usmb_gate g; \
\
		if (!usmb_gated()) { \
			real.name args; \
			return; \
		} \
		usmb_gate_enter(&g); \
		real.name args; \
		usmb_gate_leave(&g); \
	}
RETURNING_NOTHING(X)
#undef X

struct alloc_call {
	void *(*f)(size_t align, size_t size, void *queue);
	size_t align, size;
	void *queue, **out;
};

static int call_alloc(const void *arg)
{
	const struct alloc_call *c = arg;

	*c->out = c->f(c->align, c->size, c->queue);
	return 1;
}

static void *alloc(void *(*f)(size_t, size_t, void *), size_t align, size_t size, void *queue)
{
	void *p = NULL;
	struct alloc_call c = {f, align, size, queue, &p};
	usmb_gate g;

	if (!usmb_gated()) return f(align, size, queue);
	usmb_gate_enter(&g);
	if (usmb_guarded(call_alloc, &c) < 0) p = NULL;
	lost = p == NULL && is_lost_on(queue);
	usmb_gate_leave(&g);
	return p;
}

static void *gate_DPCTLaligned_alloc_device(size_t align, size_t size, void *queue)
{
	return alloc(real.DPCTLaligned_alloc_device, align, size, queue);
}
static void *gate_DPCTLaligned_alloc_shared(size_t align, size_t size, void *queue)
{
	return alloc(real.DPCTLaligned_alloc_shared, align, size, queue);
}
static void *gate_DPCTLaligned_alloc_host(size_t align, size_t size, void *queue)
{
	return alloc(real.DPCTLaligned_alloc_host, align, size, queue);
}

struct pointer_call {
	void *p, *context;
	void **device;
	int *kind;
};

static int call_free(const void *arg)
{
	const struct pointer_call *c = arg;

	real.DPCTLfree_with_context(c->p, c->context);
	return 1;
}

static int call_type(const void *arg)
{
	const struct pointer_call *c = arg;

	*c->kind = real.DPCTLUSM_GetPointerType(c->p, c->context);
	return 1;
}

static int call_device(const void *arg)
{
	const struct pointer_call *c = arg;

	*c->device = real.DPCTLUSM_GetPointerDevice(c->p, c->context);
	return 1;
}

static int guard(int (*f)(const void *), const struct pointer_call *c)
{
	usmb_gate g;
	int r;

	usmb_gate_enter(&g);
	r = usmb_guarded(f, c);
	usmb_gate_leave(&g);
	return r;
}

static void gate_DPCTLfree_with_context(void *p, void *context)
{
	if (!usmb_gated()) {
		real.DPCTLfree_with_context(p, context);
		return;
	}
	lost = guard(call_free, &(struct pointer_call){.p = p, .context = context}) < 0;
}

static int gate_DPCTLUSM_GetPointerType(void *p, void *context)
{
	int kind = USMB_USM_FAILED;

	if (!usmb_gated()) return real.DPCTLUSM_GetPointerType(p, context);
	if (guard(call_type, &(struct pointer_call){.p = p, .context = context, .kind = &kind}) < 0)
		return USMB_USM_FAILED;
	return kind;
}

static void *gate_DPCTLUSM_GetPointerDevice(void *p, void *context)
{
	void *device = NULL;

	if (!usmb_gated()) return real.DPCTLUSM_GetPointerDevice(p, context);
	if (guard(call_device, &(struct pointer_call){.p = p, .context = context, .device = &device}) < 0) return NULL;
	return device;
}

void usmb_gate_set(int gated)
{
	atomic_store_explicit(&open_gate, !gated, memory_order_release);
}

/* ---- CUDA's number of a device ---- */

void usmb_gate_bind(void *lib)
{
	void *fn = dlsym(lib, "_ZNK4sycl3_V16device9getNativeEv");

	memcpy(&get_native, &fn, sizeof fn);
	real = usmb_dp;
/* Functions that the library does not have stay NULL. */
#define X(name) \
	if (real.name != NULL) usmb_dp.name = gate_##name;
#define X4(ret, name, params, args) X(name)
#define X3(name, params, args) X(name)
	RETURNING(X4)
	SUBMITTING(X4)
	RETURNING_NOTHING(X3)
	GUARDED(X)
#undef X
#undef X3
#undef X4
}

struct native_call {
	const void *device;
	uint64_t *out;
};

static int call_native(const void *arg)
{
	const struct native_call *c = arg;

	*c->out = get_native(c->device);
	return 1;
}

/* The native handle of the CUDA backend is a CUdevice. */
int32_t usmb_gate_ordinal(void *device)
{
	const struct usmb_cu *driver = usmb_cu_driver();
	uint64_t native = 0;
	int count = 0, of = 0;
	int32_t i;

	if (driver == NULL || get_native == NULL || driver->cuDeviceGetCount(&count) != 0) return -1;
	if (usmb_guarded(call_native, &(struct native_call){device, &native}) < 0) return -1;
	for (i = 0; i < count; i++)
		if (driver->cuDeviceGet(&of, i) == 0 && of == (int)native) return i;
	return -1;
}
