/*
 * The driver of CUDA for tests on machines without a GPU: testcuda.go builds it as libcuda.so.1 and as
 * libnvidia-ml.so.1, for the real CUDA adapter of SYCL. Device, managed and host memory is memory of the process.
 * Work of the adapter is done when it is submitted; kernels are not simulated. Work of other libraries is simulated
 * by fakecuda_later: it is done late, when something waits for its stream or device.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long dptr;
enum { BLOCKS = 1 << 16, WORKS = 256, DEVICES = 8 };
enum { HOST = 1, DEVICE, MANAGED };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct block {
	dptr lo;
	size_t n;
	int kind, dev;
} blocks[BLOCKS];
static struct {
	int on; /* the device plus 1; 0: free */
	void *stream;
	dptr to;
	int value;
	size_t n;
} works[WORKS];
static struct ctx {
	int dev;
} contexts[DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static __thread struct ctx *current;

static int device_count(void)
{
	const char *v = getenv("FAKECUDA_DEVICES");
	return v ? atoi(v) : 2;
}

static struct block *find(dptr p)
{
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].lo && p >= blocks[i].lo && p - blocks[i].lo < blocks[i].n) return &blocks[i];
	return NULL;
}

/* Aligned as by the real driver: blocks of 1 MiB and more to 2 MiB, others to 512 bytes. */
static int allocate(dptr *out, size_t n, int kind)
{
	void *p;
	int result = 2;
	if (posix_memalign(&p, n >= 1 << 20 ? 2 << 20 : 512, n)) return 2;
	memset(p, 0xA5, n);
	pthread_mutex_lock(&mu);
	for (int i = 0; i < BLOCKS && result; i++)
		if (!blocks[i].lo) {
			blocks[i] = (struct block){(dptr)p, n, kind, current ? current->dev : 0};
			*out = (dptr)p;
			result = 0;
		}
	pthread_mutex_unlock(&mu);
	if (result) free(p);
	return result;
}

static int release(dptr p)
{
	pthread_mutex_lock(&mu);
	struct block *b = find(p);
	int bad = !b || b->lo != p;
	if (!bad) {
		free((void *)b->lo);
		b->lo = 0;
	}
	pthread_mutex_unlock(&mu);
	return bad;
}

/* Fills n bytes at a later time, as a kernel on a stream would. */
int fakecuda_later(int device, void *stream, dptr to, int value, size_t n)
{
	int left = 1;
	pthread_mutex_lock(&mu);
	for (int i = 0; i < WORKS && left; i++)
		if (!works[i].on) {
			works[i].on = device + 1;
			works[i].stream = stream;
			works[i].to = to;
			works[i].value = value;
			works[i].n = n;
			left = 0;
		}
	pthread_mutex_unlock(&mu);
	return left;
}

/* Does the work of the current context, of one stream if it is not NULL. */
static int synchronize(void *stream)
{
	if (!current) return 201;
	pthread_mutex_lock(&mu);
	for (int i = 0; i < WORKS; i++) {
		if (works[i].on != current->dev + 1 || (stream && works[i].stream != stream)) continue;
		if (find(works[i].to)) memset((void *)works[i].to, works[i].value, works[i].n);
		works[i].on = 0;
	}
	pthread_mutex_unlock(&mu);
	return 0;
}

static int fill(dptr d, const void *value, size_t width, size_t n)
{
	for (size_t i = 0; i < n; i++) memcpy((char *)d + i * width, value, width);
	return 0;
}

#define UNUSED __attribute__((unused))
#define F(name, ...) int name(__VA_ARGS__)

/* ---- devices and contexts ---- */
F(cuInit, unsigned f UNUSED) { return 0; }
F(cuDriverGetVersion, int *v) { *v = 13000; return 0; }
F(cuDeviceGetCount, int *n) { *n = device_count(); return 0; }
F(cuDeviceGet, int *d, int i) { *d = i; return i < device_count() ? 0 : 101; }
F(cuDeviceGetName, char *s, int n, int d) { snprintf(s, n, "Simulated CUDA device %d", d); return 0; }
F(cuDeviceTotalMem_v2, size_t *n, int d UNUSED) { *n = 1ull << 32; return 0; }
F(cuMemGetInfo_v2, size_t *f, size_t *t) { *f = 1ull << 31; *t = 1ull << 32; return 0; }
F(cuDeviceGetUuid_v2, unsigned char *u, int d) { memset(u, 0x10 + d, 16); return 0; }
F(cuDeviceGetPCIBusId, char *s, int n, int d) { snprintf(s, n, "0000:%02x:00.0", d + 1); return 0; }
F(cuDeviceGetP2PAttribute, int *v, int a UNUSED, int x UNUSED, int y UNUSED) { *v = 0; return 0; }
F(cuDeviceGetDefaultMemPool, void **p, int d UNUSED) { *p = (void *)8; return 0; }
F(cuMemPoolSetAttribute, void *p UNUSED, int a UNUSED, void *v UNUSED) { return 0; }
F(cuDeviceGetAttribute, int *v, int a, int d UNUSED)
{
	static const struct { int attribute, value; } values[] = {
	        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 65535}, {6, 65535}, {7, 2147483647}, {8, 49152}, {9, 65536},
	        {10, 32}, {12, 65536}, {13, 1980000}, {14, 512}, {16, 132}, {19, 1}, {31, 1}, {36, 2619000}, {37, 5120},
	        {38, 50 << 20}, {39, 2048}, {41, 1}, {75, 9}, {78, 1}, {79, 1}, {81, 49152}, {83, 1}, {88, 1}, {89, 1},
	        {97, 49152}, {115, 1},
	};
	*v = 0;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		if (values[i].attribute == a) *v = values[i].value;
	return 0;
}
F(cuDevicePrimaryCtxRetain, void **c, int d) { *c = &contexts[d]; return 0; }
F(cuDevicePrimaryCtxRelease_v2, int d UNUSED) { return 0; }
F(cuCtxGetCurrent, void **c) { *c = current; return 0; }
F(cuCtxSetCurrent, void *c) { current = c; return 0; }
F(cuCtxGetDevice, int *d) { *d = current ? current->dev : 0; return current ? 0 : 201; }
F(cuCtxSynchronize, void) { return synchronize(NULL); }
F(cuCtxGetStreamPriorityRange, int *a, int *b) { *a = 0; *b = -5; return 0; }
F(cuGetErrorName, int e, const char **s) { *s = e ? "CUDA_ERROR" : "CUDA_SUCCESS"; return 0; }
F(cuGetErrorString, int e UNUSED, const char **s) { *s = "simulated error"; return 0; }

/* ---- events and streams ---- */
F(cuEventCreate, void **e, unsigned f UNUSED) { *e = malloc(8); return 0; }
F(cuEventDestroy_v2, void *e) { free(e); return 0; }
F(cuEventRecord, void *e UNUSED, void *s UNUSED) { return 0; }
F(cuEventQuery, void *e UNUSED) { return 0; }
F(cuEventSynchronize, void *e UNUSED) { return 0; }
F(cuEventElapsedTime_v2, float *ms, void *a UNUSED, void *b UNUSED) { *ms = 0; return 0; }
F(cuStreamCreate, void **s, unsigned f UNUSED) { *s = malloc(8); return 0; }
F(cuStreamCreateWithPriority, void **s, unsigned f UNUSED, int p UNUSED) { *s = malloc(8); return 0; }
F(cuStreamDestroy_v2, void *s) { free(s); return 0; }
F(cuStreamQuery, void *s UNUSED) { return 0; }
F(cuStreamSynchronize, void *s) { return synchronize(s); }
F(cuStreamWaitEvent, void *s UNUSED, void *e UNUSED, unsigned f UNUSED) { return 0; }
F(cuStreamGetFlags, void *s UNUSED, unsigned *f) { *f = 0; return 0; }

/* ---- memory ---- */
F(cuMemAlloc_v2, dptr *p, size_t n) { return allocate(p, n, DEVICE); }
F(cuMemAllocManaged, dptr *p, size_t n, unsigned f UNUSED) { return allocate(p, n, MANAGED); }
F(cuMemHostAlloc, dptr *p, size_t n, unsigned f UNUSED) { return allocate(p, n, HOST); }
F(cuMemFree_v2, dptr p) { return release(p); }
F(cuMemFreeHost, dptr p) { return release(p); }
F(cuMemGetAllocationGranularity, size_t *g, void *p UNUSED, int o UNUSED) { *g = 2 << 20; return 0; }
F(cuMemGetAddressRange_v2, dptr *lo, size_t *n, dptr p)
{
	pthread_mutex_lock(&mu);
	struct block *b = find(p);
	if (b && lo) *lo = b->lo;
	if (b && n) *n = b->n;
	pthread_mutex_unlock(&mu);
	return !b;
}
F(cuPointerGetAttribute, void *out, int a, dptr p)
{
	pthread_mutex_lock(&mu);
	struct block *b = find(p), c = b ? *b : (struct block){0, 0, 0, 0};
	pthread_mutex_unlock(&mu);
	if (!b) return 1;
	switch (a) {
	case 1: *(void **)out = &contexts[c.dev]; return 0;
	case 2: *(unsigned *)out = c.kind == HOST ? 1 : 2; return 0;
	case 8: *(unsigned *)out = c.kind == MANAGED; return 0;
	case 9: *(int *)out = c.dev; return 0;
	case 11: *(dptr *)out = c.lo; return 0;
	case 12: *(size_t *)out = c.n; return 0;
	}
	fprintf(stderr, "fakecuda: pointer attribute %d\n", a);
	return 1;
}
F(cuMemcpy, dptr d, dptr s, size_t n) { memmove((void *)d, (void *)s, n); return 0; }
F(cuMemcpyAsync, dptr d, dptr s, size_t n, void *q UNUSED) { return cuMemcpy(d, s, n); }
F(cuMemcpyDtoDAsync_v2, dptr d, dptr s, size_t n, void *q UNUSED) { return cuMemcpy(d, s, n); }
F(cuMemcpyDtoHAsync_v2, dptr d, dptr s, size_t n, void *q UNUSED) { return cuMemcpy(d, s, n); }
F(cuMemcpyHtoDAsync_v2, dptr d, dptr s, size_t n, void *q UNUSED) { return cuMemcpy(d, s, n); }
F(cuMemsetD8Async, dptr d, uint8_t v, size_t n, void *q UNUSED) { return fill(d, &v, 1, n); }
F(cuMemsetD16Async, dptr d, uint16_t v, size_t n, void *q UNUSED) { return fill(d, &v, 2, n); }
F(cuMemsetD32Async, dptr d, uint32_t v, size_t n, void *q UNUSED) { return fill(d, &v, 4, n); }
#define FILL2D(name, type) \
	F(name, dptr d, size_t pitch, type v, size_t w, size_t h, void *q UNUSED) \
	{ \
		for (size_t i = 0; i < h; i++) fill(d + i * pitch, &v, sizeof v, w); \
		return 0; \
	}
FILL2D(cuMemsetD2D8Async, uint8_t)
FILL2D(cuMemsetD2D16Async, uint16_t)
FILL2D(cuMemsetD2D32Async, uint32_t)
F(cuMemAdvise_v2, dptr p UNUSED, size_t n UNUSED, int a UNUSED, uint64_t l UNUSED) { return 0; }
F(cuMemPrefetchAsync_v2, dptr p UNUSED, size_t n UNUSED, uint64_t l UNUSED, unsigned f UNUSED, void *s UNUSED) { return 0; }

/* ---- functions without which the adapter and UMF are not loaded ---- */
const char *nvmlErrorString(int e UNUSED) { return "not simulated"; }
#define NONE(name) int name(void) { return 801; }
NONE(cuArray3DCreate_v2) NONE(cuArray3DGetDescriptor_v2) NONE(cuArrayDestroy) NONE(cuArrayGetDescriptor_v2)
NONE(cuCtxDisablePeerAccess) NONE(cuCtxEnablePeerAccess) NONE(cuDestroyExternalMemory)
NONE(cuDestroyExternalSemaphore) NONE(cuDeviceGetLuid) NONE(cuExternalMemoryGetMappedBuffer)
NONE(cuExternalMemoryGetMappedMipmappedArray) NONE(cuFuncGetAttribute) NONE(cuFuncSetAttribute)
NONE(cuGraphAddEmptyNode) NONE(cuGraphAddEventRecordNode) NONE(cuGraphAddEventWaitNode) NONE(cuGraphAddKernelNode_v2)
NONE(cuGraphAddMemcpyNode) NONE(cuGraphAddMemsetNode) NONE(cuGraphAddNode_v2) NONE(cuGraphCreate) NONE(cuGraphDestroy)
NONE(cuGraphEventRecordNodeGetEvent) NONE(cuGraphExecDestroy) NONE(cuGraphExecEventWaitNodeSetEvent)
NONE(cuGraphExecKernelNodeSetParams_v2) NONE(cuGraphInstantiateWithFlags) NONE(cuGraphLaunch)
NONE(cuImportExternalMemory) NONE(cuImportExternalSemaphore) NONE(cuIpcCloseMemHandle) NONE(cuIpcGetMemHandle)
NONE(cuIpcOpenMemHandle_v2) NONE(cuLaunchKernel) NONE(cuLaunchKernelEx) NONE(cuLinkAddData_v2) NONE(cuLinkComplete)
NONE(cuLinkCreate_v2) NONE(cuLinkDestroy) NONE(cuMemAddressFree) NONE(cuMemAddressReserve) NONE(cuMemAllocAsync)
NONE(cuMemAllocFromPoolAsync) NONE(cuMemAllocPitch_v2) NONE(cuMemCreate) NONE(cuMemFreeAsync) NONE(cuMemGetAccess)
NONE(cuMemHostGetDevicePointer_v2) NONE(cuMemHostRegister_v2) NONE(cuMemHostUnregister) NONE(cuMemMap)
NONE(cuMemPoolCreate) NONE(cuMemPoolDestroy) NONE(cuMemPoolGetAttribute) NONE(cuMemPoolTrimTo) NONE(cuMemRelease)
NONE(cuMemSetAccess) NONE(cuMemUnmap) NONE(cuMemcpy2DAsync_v2) NONE(cuMemcpy3DAsync_v2) NONE(cuMemcpyAtoHAsync_v2)
NONE(cuMemcpyAtoH_v2) NONE(cuMemcpyHtoAAsync_v2) NONE(cuMemcpyHtoA_v2) NONE(cuMemcpyHtoD_v2)
NONE(cuMipmappedArrayCreate) NONE(cuMipmappedArrayDestroy) NONE(cuMipmappedArrayGetLevel) NONE(cuModuleGetFunction)
NONE(cuModuleGetGlobal_v2) NONE(cuModuleLoadDataEx) NONE(cuModuleUnload)
NONE(cuOccupancyMaxActiveBlocksPerMultiprocessor) NONE(cuOccupancyMaxPotentialBlockSize)
NONE(cuSignalExternalSemaphoresAsync) NONE(cuSurfObjectCreate) NONE(cuSurfObjectDestroy) NONE(cuTexObjectCreate)
NONE(cuTexObjectDestroy) NONE(cuWaitExternalSemaphoresAsync) NONE(nvmlDeviceGetCurrentClocksEventReasons)
NONE(nvmlDeviceGetFanSpeed) NONE(nvmlDeviceGetHandleByIndex_v2) NONE(nvmlDeviceGetPowerManagementLimit)
NONE(nvmlDeviceGetPowerManagementLimitConstraints) NONE(nvmlInit_v2) NONE(nvmlShutdown)
