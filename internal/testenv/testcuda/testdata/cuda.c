// A simulated CUDA driver for tests without a GPU: the functions of libcuda.so.1 that SYCL's CUDA adapter and the tests
// call. Device, managed and host memory are all memory of the process, so a test sees at once whether its bytes are
// right. Work is asynchronous, like that of a GPU but slower and less regular: each stream is a thread, and each copy,
// fill and kernel starts after a random delay. Memory that is read, handed out or freed too early therefore shows wrong
// values. There are no modules: instead of the kernels of other libraries, tests call simulated_later.
//
// SIMULATED_CUDA_DEVICES is the number of devices (2). SIMULATED_CUDA_DELAY is the longest usual delay of one operation
// in microseconds (200); one of 32 operations takes ten times as long. With 0 there are no delays.
//
// Streams and events follow CUDA's rules: events record a position of a stream, the legacy default stream waits for all
// other streams of its device and they wait for it (except streams made as non-blocking), and freeing memory waits for
// the device.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	success,
	invalidValue = 1,
	outOfMemory = 2,
	noDevice = 100,
	invalidDevice = 101,
	invalidContext = 201,
	notReady = 600,
	notSupported = 801,
	captureUnsupported = 900
};
enum { hostMemory = 1, deviceMemory = 2, managedMemory = 3 };
enum { maxDevices = 8, nonBlocking = 1, smallHandles = 256 };
typedef unsigned long long address;

// position is a point of a stream: all operations up to the number done.
struct position {
	struct stream *stream;
	uint64_t number;
};

struct operation {
	struct operation *next;
	void (*run)(const struct operation *);
	address to, from;
	size_t size, pitch, rows;
	unsigned value;
	long delay; // microseconds
	size_t waits;
	struct position *wait;
};

// stream is in the list of its device. Its memory is never freed, because events may refer to it.
struct stream {
	struct stream *next;
	pthread_mutex_t mu;
	pthread_cond_t changed;
	struct operation *first, *last;
	uint64_t submitted, done;
	int device;
	bool nonBlocking, started, destroyed;
};

struct event {
	struct position at;
};

struct context {
	int device;
	struct stream legacy, perThread; // perThread is one stream, which all threads share here
	struct stream all;               // waits for all streams; its events are those of the context
	struct stream *streams;
	struct stream small[smallHandles];
};

struct block {
	address start;
	size_t size;
	int kind, device;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // guards contexts[].streams and blocks
static struct context contexts[maxDevices];
static struct block *blocks; // sorted by start
static size_t numBlocks, capBlocks;
static int numDevices = 2;
static long longestDelay = 200;
static __thread struct context *current;

static void initStream(struct stream *s, int device, unsigned flags)
{
	pthread_mutex_init(&s->mu, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->device = device;
	s->nonBlocking = (flags & nonBlocking) != 0;
}

__attribute__((constructor)) static void init(void)
{
	const char *devices = getenv("SIMULATED_CUDA_DEVICES"), *delay = getenv("SIMULATED_CUDA_DELAY");
	if (devices) numDevices = atoi(devices);
	if (numDevices < 0 || numDevices > maxDevices) numDevices = maxDevices;
	if (delay) longestDelay = atol(delay);
	for (int d = 0; d < maxDevices; d++) {
		contexts[d].device = d;
		initStream(&contexts[d].legacy, d, 0);
		initStream(&contexts[d].perThread, d, 0);
		initStream(&contexts[d].all, d, nonBlocking);
		contexts[d].streams = &contexts[d].perThread;
		for (int i = 3; i < smallHandles; i++) {
			struct stream *small = &contexts[d].small[i];
			initStream(small, d, nonBlocking);
			small->next = contexts[d].streams;
			contexts[d].streams = small;
		}
	}
}

static long randomDelay(void)
{
	static __thread uint64_t state;
	if (longestDelay <= 0) return 0;
	if (!state) state = (uint64_t)time(NULL) ^ (uint64_t)(uintptr_t)&state;
	state = state * 6364136223846793005u + 1442695040888963407u;
	long delay = (long)((state >> 33) % (uint64_t)longestDelay);
	return (state >> 59) == 0 ? 10 * delay : delay;
}

static void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	while (us > 0 && nanosleep(&t, &t) && errno == EINTR) continue;
}

static void waitFor(struct position p)
{
	if (!p.stream) return;
	pthread_mutex_lock(&p.stream->mu);
	while (p.stream->done < p.number) pthread_cond_wait(&p.stream->changed, &p.stream->mu);
	pthread_mutex_unlock(&p.stream->mu);
}

static bool isDone(struct position p)
{
	if (!p.stream) return true;
	pthread_mutex_lock(&p.stream->mu);
	bool done = p.stream->done >= p.number;
	pthread_mutex_unlock(&p.stream->mu);
	return done;
}

static struct position lastOf(struct stream *s)
{
	pthread_mutex_lock(&s->mu);
	struct position p = {s, s->submitted};
	pthread_mutex_unlock(&s->mu);
	return p;
}

static void *work(void *argument)
{
	struct stream *s = argument;
	for (;;) {
		pthread_mutex_lock(&s->mu);
		while (!s->first && !s->destroyed) pthread_cond_wait(&s->changed, &s->mu);
		struct operation *o = s->first;
		pthread_mutex_unlock(&s->mu);
		if (!o) return NULL;
		for (size_t i = 0; i < o->waits; i++) waitFor(o->wait[i]);
		pause_us(o->delay);
		if (o->run) o->run(o);
		pthread_mutex_lock(&s->mu);
		s->first = o->next;
		if (!s->first) s->last = NULL;
		s->done++;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->mu);
		free(o->wait);
		free(o);
	}
	return NULL;
}

// streamOf returns the stream of a handle: 0 and 1 are the legacy default stream, 2 is the default stream of the thread.
// Other small handles are non-blocking streams that tests need not create.
static struct stream *streamOf(void *handle)
{
	struct context *c = current ? current : &contexts[0];
	uintptr_t number = (uintptr_t)handle;
	if (number < 2) return &c->legacy;
	return number == 2 ? &c->perThread : number < smallHandles ? &c->small[number] : handle;
}

// dependencies returns the positions that the next operation of the stream waits for.
static size_t dependencies(struct stream *s, struct position at, struct position **out)
{
	struct context *c = &contexts[s->device];
	size_t n = 0, count = 3;
	pthread_mutex_lock(&mu);
	for (struct stream *o = c->streams; o; o = o->next) count++;
	struct position *all = calloc(count, sizeof *all);
	if (all && at.stream) all[n++] = at;
	if (all && (s == &c->legacy || s == &c->all)) {
		for (struct stream *o = c->streams; o; o = o->next)
			if (!o->nonBlocking || s == &c->all) all[n++] = lastOf(o);
		if (s == &c->all) all[n++] = lastOf(&c->legacy);
	} else if (all && !s->nonBlocking) {
		all[n++] = lastOf(&c->legacy);
	}
	pthread_mutex_unlock(&mu);
	*out = all;
	return n;
}

// submit adds a copy of the operation to the stream, behind the position at if that is of a stream.
static int submit(void *handle, struct operation o, struct position at)
{
	struct stream *s = streamOf(handle);
	struct operation *copy = malloc(sizeof *copy);
	if (!copy) return outOfMemory;
	*copy = o;
	copy->next = NULL;
	copy->delay = o.delay ? o.delay : randomDelay();
	copy->waits = dependencies(s, at, &copy->wait);
	pthread_mutex_lock(&s->mu);
	if (!s->started) {
		pthread_t thread;
		pthread_attr_t small; // hunts limit the address space, and a queue of SYCL has dozens of streams
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 64 << 10);
		int failed = pthread_create(&thread, &small, work, s);
		pthread_attr_destroy(&small);
		if (failed) {
			pthread_mutex_unlock(&s->mu);
			free(copy->wait);
			free(copy);
			return outOfMemory;
		}
		pthread_detach(thread);
		s->started = true;
	}
	if (s->last)
		s->last->next = copy;
	else
		s->first = copy;
	s->last = copy;
	s->submitted++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mu);
	return success;
}

static int synchronizeDevice(struct context *c)
{
	for (;;) {
		struct position *all;
		size_t n = 0, count = 1;
		pthread_mutex_lock(&mu);
		for (struct stream *o = c->streams; o; o = o->next) count++;
		all = calloc(count, sizeof *all);
		if (all) all[n++] = lastOf(&c->legacy);
		for (struct stream *o = c->streams; all && o; o = o->next) all[n++] = lastOf(o);
		pthread_mutex_unlock(&mu);
		if (!all) return outOfMemory;
		for (size_t i = 0; i < n; i++) waitFor(all[i]);
		free(all);
		return success;
	}
}

// blockAt returns the block that contains the address, or NULL. The caller holds mu.
static struct block *blockAt(address p)
{
	size_t low = 0, high = numBlocks;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (blocks[middle].start <= p)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0) return NULL;
	struct block *b = &blocks[low - 1];
	return p - b->start < (b->size ? b->size : 1) ? b : NULL;
}

// allocate aligns like the driver: blocks of a MiB and more to 2 MiB, smaller ones to 512 bytes. New memory has
// arbitrary contents.
static int allocate(address *out, size_t size, int kind)
{
	void *p;
	if (size == 0) return invalidValue;
	if (posix_memalign(&p, size >= 1 << 20 ? 2 << 20 : 512, size)) return outOfMemory;
	memset(p, 0xA5, size);
	pthread_mutex_lock(&mu);
	if (numBlocks == capBlocks) {
		size_t cap = capBlocks ? 2 * capBlocks : 1024;
		struct block *more = realloc(blocks, cap * sizeof *more);
		if (!more) {
			pthread_mutex_unlock(&mu);
			free(p);
			return outOfMemory;
		}
		blocks = more;
		capBlocks = cap;
	}
	size_t at = numBlocks;
	while (at > 0 && blocks[at - 1].start > (address)(uintptr_t)p) at--;
	memmove(&blocks[at + 1], &blocks[at], (numBlocks - at) * sizeof *blocks);
	blocks[at] = (struct block){(address)(uintptr_t)p, size, kind, current ? current->device : 0};
	numBlocks++;
	pthread_mutex_unlock(&mu);
	*out = (address)(uintptr_t)p;
	return success;
}

static int release(address p)
{
	pthread_mutex_lock(&mu);
	struct block *found = blockAt(p);
	if (!found || found->start != p) {
		pthread_mutex_unlock(&mu);
		return invalidValue;
	}
	struct block b = *found;
	pthread_mutex_unlock(&mu);
	synchronizeDevice(&contexts[b.device]);
	pthread_mutex_lock(&mu);
	found = blockAt(p);
	size_t at = (size_t)(found - blocks);
	memmove(found, found + 1, (numBlocks - at - 1) * sizeof *blocks);
	numBlocks--;
	pthread_mutex_unlock(&mu);
	memset((void *)(uintptr_t)b.start, 0x5A, b.size);
	free((void *)(uintptr_t)b.start);
	return success;
}

static void runCopy(const struct operation *o)
{
	memmove((void *)(uintptr_t)o->to, (void *)(uintptr_t)o->from, o->size);
}

// runFill writes size elements of 1, 2 or 4 bytes (from) to each row.
static void runFill(const struct operation *o)
{
	for (size_t row = 0; row < o->rows; row++) {
		char *p = (char *)(uintptr_t)o->to + row * o->pitch;
		for (size_t i = 0; i < o->size; i++) memcpy(p + i * o->from, &o->value, o->from);
	}
}

static const struct position none = {NULL, 0};

static int copy(address to, address from, size_t size, void *stream)
{
	return submit(stream, (struct operation){.run = runCopy, .to = to, .from = from, .size = size}, none);
}

static int fill(address to, size_t width, unsigned value, size_t size, size_t pitch, size_t rows, void *stream)
{
	struct operation o = {
	        .run = runFill, .to = to, .from = width, .value = value, .size = size, .pitch = pitch, .rows = rows};
	return submit(stream, o, none);
}

// simulated_later fills n bytes on a stream of a device, as a kernel of another library would, 20 ms after the stream
// reaches it.
int simulated_later(int device, void *stream, address to, int value, size_t n)
{
	struct context *before = current;
	current = &contexts[device];
	struct operation o = {.run = runFill, .to = to, .from = 1, .value = (unsigned)value, .size = n, .rows = 1};
	o.delay = 20000;
	int status = submit(stream, o, none);
	current = before;
	return status;
}

static pthread_cond_t letGo = PTHREAD_COND_INITIALIZER;
static bool held; // guarded by mu

static void runHeld(const struct operation *o)
{
	(void)o;
	pthread_mutex_lock(&mu);
	while (held) pthread_cond_wait(&letGo, &mu);
	pthread_mutex_unlock(&mu);
}

// simulated_hold adds work to a stream of a device that ends when a later call has hold false.
int simulated_hold(int device, void *stream, int hold)
{
	pthread_mutex_lock(&mu);
	held = hold;
	pthread_cond_broadcast(&letGo);
	pthread_mutex_unlock(&mu);
	if (!hold) return success;
	struct context *before = current;
	current = &contexts[device];
	int status = submit(stream, (struct operation){.run = runHeld}, none);
	current = before;
	return status;
}

// simulated_finish waits for all work.
int simulated_finish(void)
{
	for (int d = 0; d < maxDevices; d++) synchronizeDevice(&contexts[d]);
	return success;
}

// ---- failures, captures and lost contexts, for tests ----

static char failingName[64]; // these five: guarded by mu
static int failingSkip, failingError, failingCount, invalidated;
static bool capturing;
static __thread int captureMode; // of the thread: 0 global, 1 thread-local, 2 relaxed

// sim_fail makes count calls of a function, "*" of each, fail after skip calls that do not. "" ends this.
int sim_fail(const char *name, int skip, int error, int count)
{
	pthread_mutex_lock(&mu);
	snprintf(failingName, sizeof failingName, "%s", name);
	failingSkip = skip;
	failingError = error;
	failingCount = count;
	pthread_mutex_unlock(&mu);
	return success;
}

// sim_failed_left returns how many of these failures no call has met.
int sim_failed_left(void)
{
	return failingCount;
}

// sim_capture begins and ends a capture in the global mode, by another thread, of a
// non-blocking stream of each context.
int sim_capture(int on)
{
	pthread_mutex_lock(&mu);
	if (on && !capturing) invalidated = 0;
	capturing = on;
	pthread_mutex_unlock(&mu);
	return success;
}

// sim_invalidated returns how many calls have invalidated the capture.
int sim_invalidated(void)
{
	return invalidated;
}

static const char *withGIL = ""; // guarded by mu

// sim_with_gil returns the name of a function that can wait for a device and that a thread called with the lock of the
// interpreter of Python since the last call of this one, "" if there was none.
const char *sim_with_gil(void)
{
	const char *name = withGIL;
	withGIL = "";
	return name;
}

static bool hasGIL(void)
{
	int (*check)(void);
	*(void **)&check = dlsym(RTLD_DEFAULT, "PyGILState_Check");
	return check && check();
}

static bool isOneOf(const char *name, const char *const *all)
{
	while (*all && strcmp(*all, name)) all++;
	return *all != NULL;
}

// failure returns the error with which a call of a function fails. During a capture, calls that need all streams
// of a context fail in each thread, and those that are potentially unsafe in the threads in the global mode.
static int failure(const char *name)
{
	static const char *const conflicts[] = {"cuCtxRecordEvent", "cuCtxSynchronize", NULL};
	static const char *const unsafe[] = {
	        "cuEventQuery",   "cuEventSynchronize", "cuMemAlloc_v2", "cuMemAllocManaged",
	        "cuMemHostAlloc", "cuMemFree_v2",       "cuMemFreeHost", NULL};
	static const char *const waits[] = {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
	                                    "cuMemAlloc_v2",    "cuMemAllocManaged",   "cuMemHostAlloc",
	                                    "cuMemFree_v2",     "cuMemFreeHost",       "cuMemcpy",
	                                    "cuMemcpyDtoH_v2",  "cuMemcpyHtoD_v2",     NULL};
	int error = success;
	bool locked = isOneOf(name, waits) && hasGIL();
	pthread_mutex_lock(&mu);
	if (locked) withGIL = name;
	if (failingCount > 0 && (!strcmp(failingName, "*") || !strcmp(failingName, name))) {
		if (failingSkip > 0)
			failingSkip--;
		else
			failingCount--, error = failingError;
	}
	if (capturing && !error && (isOneOf(name, conflicts) || (captureMode == 0 && isOneOf(name, unsafe)))) {
		error = captureUnsupported;
		invalidated++;
	}
	pthread_mutex_unlock(&mu);
	return error;
}
#define CHECKED \
	int failed = failure(__func__); \
	if (failed) return failed

// The functions below have the prototypes of cuda.h, which is not needed to build this file. They take parameters that
// they do not use.
#pragma GCC diagnostic ignored "-Wunused-parameter"
// clang-format off
int cuInit(unsigned flags) { return flags ? invalidValue : numDevices ? success : noDevice; }
int cuDriverGetVersion(int *out) { return *out = 13000, success; }
int cuDeviceGetCount(int *out) { return *out = numDevices, success; }
int cuDeviceGet(int *out, int ordinal) { return ordinal < 0 || ordinal >= numDevices ? invalidDevice : (*out = ordinal, success); }
int cuDeviceGetName(char *out, int size, int device)
{
	snprintf(out, (size_t)size, "Simulated CUDA device %d", device);
	return success;
}
int cuDeviceTotalMem_v2(size_t *out, int device) { return *out = (size_t)4 << 30, success; }
int cuMemGetInfo_v2(size_t *unused, size_t *total) { CHECKED; return *unused = (size_t)2 << 30, *total = (size_t)4 << 30, success; }
int cuDeviceGetUuid_v2(unsigned char *out, int device)
{
	memset(out, 0x10 + device, 16);
	return success;
}
int cuDeviceGetPCIBusId(char *out, int size, int device)
{
	snprintf(out, (size_t)size, "0000:%02x:00.0", device + 1);
	return success;
}

// The attributes are those of an H100 where SYCL reads them, by their numbers in cuda.h; others are 0.
int cuDeviceGetAttribute(int *out, int attribute, int device)
{
	static const int values[128] = {[1] = 1024,   [2] = 1024,       [3] = 64,    [4] = 64,        [5] = 65535,
	                                [6] = 65535,  [7] = 2147483647, [8] = 49152, [9] = 65536,     [10] = 32,
	                                [12] = 65536, [13] = 1980000,   [14] = 512,  [16] = 132,      [19] = 1,
	                                [31] = 1,     [36] = 2619000,   [37] = 5120, [38] = 50 << 20, [39] = 2048,
	                                [41] = 1,     [75] = 9,         [78] = 1,    [79] = 1,        [81] = 49152,
	                                [83] = 1,     [88] = 1,         [89] = 1,    [97] = 49152,    [115] = 1};
	*out = attribute >= 0 && attribute < 128 ? values[attribute] : 0;
	return device < 0 || device >= numDevices ? invalidDevice : success;
}
int cuDeviceGetP2PAttribute(int *out, int attribute, int a, int b) { return *out = 0, success; }

int cuDevicePrimaryCtxRetain(struct context **out, int device) { CHECKED; return *out = &contexts[device], success; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { CHECKED; return *flags = 0, *active = 1, success; }
int cuDevicePrimaryCtxRelease_v2(int device) { CHECKED; return success; }
int cuCtxGetCurrent(struct context **out) { CHECKED; return *out = current, success; }
int cuCtxSetCurrent(struct context *c) { CHECKED; return current = c, success; }
int cuCtxPushCurrent_v2(struct context *c) { CHECKED; return current = c, success; }
int cuCtxPopCurrent_v2(struct context **out) { CHECKED; return *out = current, current = NULL, success; }
int cuCtxGetDevice(int *out) { CHECKED; return current ? (*out = current->device, success) : invalidContext; }
int cuCtxSynchronize(void) { CHECKED; return current ? synchronizeDevice(current) : invalidContext; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { CHECKED; return *least = 0, *greatest = -5, success; }
int cuGetErrorName(int error, const char **out) { return *out = error ? "CUDA_ERROR" : "CUDA_SUCCESS", success; }
int cuGetErrorString(int error, const char **out) { return *out = error ? "simulated error" : "no error", success; }

// The capture itself. A stream of another thread is capturing, so no stream that a caller names is.
int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = captureMode;
	captureMode = *mode;
	return *mode = before, success;
}
int cuStreamIsCapturing(void *stream, int *out) { return *out = 0, success; }

int cuEventCreate(struct event **out, unsigned flags)
{
	CHECKED;
	*out = calloc(1, sizeof **out);
	return *out ? success : outOfMemory;
}
int cuEventDestroy_v2(struct event *e) { CHECKED; return free(e), success; }
int cuEventRecord(struct event *e, void *stream)
{
	CHECKED;
	// An operation of its own, so that an event of an idle stream completes late too.
	int status = submit(stream, (struct operation){0}, none);
	if (!status) e->at = lastOf(streamOf(stream));
	return status;
}
#ifdef OLD_DRIVER // before CUDA 12.5
static
#endif
int cuCtxRecordEvent(struct context *c, struct event *e) { CHECKED; return cuEventRecord(e, &c->all); }
int cuEventQuery(struct event *e) { CHECKED; return isDone(e->at) ? success : notReady; }
int cuEventSynchronize(struct event *e) { CHECKED; return waitFor(e->at), success; }
int cuEventElapsedTime_v2(float *out, struct event *a, struct event *b)
{
	CHECKED;
	*out = 0;
	return isDone(a->at) && isDone(b->at) ? success : notReady;
}

int cuStreamCreateWithPriority(struct stream **out, unsigned flags, int priority)
{
	CHECKED;
	struct stream *s = calloc(1, sizeof *s);
	if (!s) return outOfMemory;
	initStream(s, current ? current->device : 0, flags);
	pthread_mutex_lock(&mu);
	s->next = contexts[s->device].streams;
	contexts[s->device].streams = s;
	pthread_mutex_unlock(&mu);
	return *out = s, success;
}
int cuStreamCreate(struct stream **out, unsigned flags) { CHECKED; return cuStreamCreateWithPriority(out, flags, 0); }
int cuStreamDestroy_v2(struct stream *s)
{
	CHECKED;
	if (!s) return invalidValue;
	pthread_mutex_lock(&s->mu);
	s->destroyed = true; // the thread ends after the work of the stream
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mu);
	return success;
}
int cuStreamQuery(void *stream) { CHECKED; return isDone(lastOf(streamOf(stream))) ? success : notReady; }
int cuStreamSynchronize(void *stream)
{
	CHECKED;
	struct stream *s = streamOf(stream);
	// The legacy default stream is idle when the blocking streams are.
	if (s == &contexts[s->device].legacy) submit(stream, (struct operation){0}, none);
	return waitFor(lastOf(s)), success;
}
int cuStreamWaitEvent(void *stream, struct event *e, unsigned flags) { CHECKED; return flags > 1 ? invalidValue : submit(stream, (struct operation){0}, e->at); }
int cuStreamGetFlags(void *stream, unsigned *out) { CHECKED; return *out = streamOf(stream)->nonBlocking, success; }

int cuMemAlloc_v2(address *out, size_t size) { CHECKED; return allocate(out, size, deviceMemory); }
int cuMemAllocManaged(address *out, size_t size, unsigned flags) { CHECKED; return flags ? allocate(out, size, managedMemory) : invalidValue; }
int cuMemHostAlloc(address *out, size_t size, unsigned flags) { CHECKED; return allocate(out, size, hostMemory); }
int cuMemAllocAsync(address *out, size_t size, void *stream) { CHECKED; return allocate(out, size, deviceMemory); }
int cuMemFree_v2(address p) { CHECKED; return release(p); }
int cuMemFreeHost(address p) { CHECKED; return release(p); }
int cuMemFreeAsync(address p, void *stream) { CHECKED; return release(p); }
int cuMemGetAllocationGranularity(size_t *out, const void *properties, int option) { CHECKED; return *out = 2 << 20, success; }
int cuMemGetAddressRange_v2(address *start, size_t *size, address p)
{
	CHECKED;
	pthread_mutex_lock(&mu);
	struct block *found = blockAt(p), b = found ? *found : (struct block){0};
	pthread_mutex_unlock(&mu);
	if (!found) return invalidValue;
	if (start) *start = b.start;
	if (size) *size = b.size;
	return success;
}
int cuPointerGetAttribute(void *out, int attribute, address p)
{
	CHECKED;
	pthread_mutex_lock(&mu);
	struct block *found = blockAt(p), b = found ? *found : (struct block){0};
	pthread_mutex_unlock(&mu);
	if (!found) return invalidValue;
	switch (attribute) {
	case 1: *(struct context **)out = &contexts[b.device]; return success;
	case 2: *(unsigned *)out = b.kind == hostMemory ? 1 : 2; return success;
	case 8: *(unsigned *)out = b.kind == managedMemory; return success;
	case 9: *(int *)out = b.device; return success;
	case 11: *(address *)out = b.start; return success;
	case 12: *(size_t *)out = b.size; return success;
	default: return invalidValue;
	}
}

int cuMemcpyAsync(address to, address from, size_t size, void *stream) { CHECKED; return copy(to, from, size, stream); }
int cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream) { CHECKED; return copy(to, from, size, stream); }
int cuMemcpyDtoHAsync_v2(address to, address from, size_t size, void *stream) { CHECKED; return copy(to, from, size, stream); }
int cuMemcpyHtoDAsync_v2(address to, address from, size_t size, void *stream) { CHECKED; return copy(to, from, size, stream); }
int cuMemcpy(address to, address from, size_t size)
{
	CHECKED;
	int status = copy(to, from, size, NULL);
	return status ? status : cuStreamSynchronize(NULL);
}
int cuMemcpyDtoH_v2(address to, address from, size_t size) { CHECKED; return cuMemcpy(to, from, size); }
int cuMemcpyHtoD_v2(address to, address from, size_t size) { CHECKED; return cuMemcpy(to, from, size); }
int cuMemsetD8Async(address to, unsigned char v, size_t n, void *stream) { CHECKED; return fill(to, 1, v, n, 0, 1, stream); }
int cuMemsetD16Async(address to, unsigned short v, size_t n, void *stream) { CHECKED; return fill(to, 2, v, n, 0, 1, stream); }
int cuMemsetD32Async(address to, unsigned v, size_t n, void *stream) { CHECKED; return fill(to, 4, v, n, 0, 1, stream); }
int cuMemsetD2D8Async(address to, size_t pitch, unsigned char v, size_t n, size_t rows, void *stream) { CHECKED; return fill(to, 1, v, n, pitch, rows, stream); }
int cuMemsetD2D16Async(address to, size_t pitch, unsigned short v, size_t n, size_t rows, void *stream) { CHECKED; return fill(to, 2, v, n, pitch, rows, stream); }
int cuMemsetD2D32Async(address to, size_t pitch, unsigned v, size_t n, size_t rows, void *stream) { CHECKED; return fill(to, 4, v, n, pitch, rows, stream); }
int cuMemAdvise_v2(address p, size_t size, int advice, uint64_t location) { CHECKED; return success; }
int cuMemPrefetchAsync_v2(address p, size_t size, uint64_t location, unsigned flags, void *stream) { CHECKED; return (void)p, (void)size, (void)location, submit(stream, (struct operation){0}, none); }
int cuDeviceGetDefaultMemPool(void **out, int device) { CHECKED; return *out = &contexts[device], success; }
int cuMemPoolSetAttribute(void *pool, int attribute, void *value) { CHECKED; return success; }

// Functions that the tests reach and that this driver does not have.
#define NOT_SIMULATED(name) int name(void) { return notSupported; }
NOT_SIMULATED(cuIpcGetMemHandle)
NOT_SIMULATED(cuIpcOpenMemHandle_v2)
NOT_SIMULATED(cuIpcCloseMemHandle)
NOT_SIMULATED(cuMemHostRegister_v2)
NOT_SIMULATED(cuMemHostUnregister)
NOT_SIMULATED(cuModuleLoadDataEx)
NOT_SIMULATED(cuModuleUnload)
