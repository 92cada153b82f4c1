//go:build linux && cgo

/*
 * Intel's OpenCL driver for CPUs hangs when several threads wait for events of out-of-order queues,
 * because a thread that waits may run the wait of another thread inside its own. Barriers, markers and
 * clFinish on an out-of-order queue that several threads use crash it. In-order queues never failed;
 * testdata/clstress.c shows both in plain OpenCL. SYCL's queues are out-of-order by default, dpctl's too.
 *
 * Therefore this file makes that driver create in-order queues where out-of-order ones are requested. That
 * is one of the orders that an out-of-order queue may choose: an event exists before a command can wait for
 * it, so commands depend on earlier commands only.
 *
 * The ICD interface of OpenCL requires that each platform object begins with the address of a table of the
 * driver's functions, by which loaders and SYCL's adapter call the driver. usmb_cpu_queues_set_up replaces
 * one entry of that table. It changes only a table that has the driver's own function there.
 *
 * Queues that exist already stay as they are. If there may be such queues, waits poll the state of the
 * event before they call the driver's wait.
 */
#define _GNU_SOURCE
#include "cpuqueues.h"
#include "loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Constants and signatures of cl.h and cl_icd.h. */
enum {
	CL_PLATFORM_NAME = 0x0902,
	CL_DEVICE_TYPE = 0x1000,
	CL_DEVICE_TYPE_CPU = 1 << 1,
	CL_QUEUE_PROPERTIES = 0x1093,
	CL_QUEUE_OUT_OF_ORDER = 1 << 0,
	CL_QUEUE_ON_DEVICE = 1 << 2, /* for kernels to enqueue on; must be out-of-order */
	/* Entries of the table. */
	ENTRY_PLATFORM_INFO = 1,
	ENTRY_DEVICE_INFO = 3,
	ENTRY_CREATE_QUEUE = 123
};
typedef int32_t info_fn(void *object, uint32_t name, size_t size, void *value, size_t *written);
typedef void *create_queue_fn(void *context, void *device, const uint64_t *properties, int32_t *error);
typedef int32_t platforms_fn(uint32_t n, void **platforms, uint32_t *found);
typedef void *extension_fn(const char *name);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int state = USMB_CPU_QUEUES_ABSENT;
static _Atomic int poll_waits, all_in_order;
static create_queue_fn *create_queue;
static info_fn *device_info;

/* The entry that replaces the driver's clCreateCommandQueueWithProperties. */
static void *create_in_order(void *context, void *device, const uint64_t *properties, int32_t *error)
{
	enum { PAIRS = 16 }; /* OpenCL has three properties */
	uint64_t own[2 * PAIRS + 1], type = 0;
	size_t n = 0;

	if (properties == NULL || device_info(device, CL_DEVICE_TYPE, sizeof type, &type, NULL) != 0 ||
	    type != CL_DEVICE_TYPE_CPU)
		return create_queue(context, device, properties, error);
	for (; properties[n] != 0; n += 2) {
		if (n == 2 * PAIRS) return create_queue(context, device, properties, error);
		own[n] = properties[n];
		own[n + 1] = properties[n + 1];
		if (own[n] == CL_QUEUE_PROPERTIES && (own[n + 1] & CL_QUEUE_ON_DEVICE) == 0)
			own[n + 1] &= ~(uint64_t)CL_QUEUE_OUT_OF_ORDER;
	}
	own[n] = 0;
	return create_queue(context, device, own, error);
}

static void *symbol(void *library, const char *name)
{
	return dlsym(library, name);
}

/* Replaces the entry in the table of a platform. */
static int replace(void *library, void *platform)
{
	void **table = *(void ***)platform, **entry = &table[ENTRY_CREATE_QUEUE];
	void *own = symbol(library, "clCreateCommandQueueWithProperties"), *hook;
	create_queue_fn *fn = create_in_order;
	long page = sysconf(_SC_PAGESIZE);
	info_fn *platform_info;
	char name[64] = "";

	if (own == NULL || *entry != own) return USMB_CPU_QUEUES_UNKNOWN;
	memcpy(&platform_info, &table[ENTRY_PLATFORM_INFO], sizeof platform_info);
	if (platform_info(platform, CL_PLATFORM_NAME, sizeof name, name, NULL) != 0 ||
	    strcmp(name, "Intel(R) OpenCL") != 0)
		return USMB_CPU_QUEUES_ABSENT;
	memcpy(&create_queue, &own, sizeof own);
	memcpy(&device_info, &table[ENTRY_DEVICE_INFO], sizeof device_info);
	if (mprotect((void *)((uintptr_t)entry & ~((uintptr_t)page - 1)), (size_t)page, PROT_READ | PROT_WRITE) != 0)
		return USMB_CPU_QUEUES_UNKNOWN;
	memcpy(&hook, &fn, sizeof hook);
	__atomic_store_n(entry, hook, __ATOMIC_RELEASE);
	return USMB_CPU_QUEUES_IN_ORDER;
}

/* Finds the platforms of the driver, which SYCL has loaded. */
static int set_up(void)
{
	enum { MOST = 8 };
	void *library, *platforms[MOST], *found;
	const char *choice = getenv("USMBRIDGE_CPU_QUEUES");
	extension_fn *extension;
	platforms_fn *get;
	uint32_t i, n = 0;
	char path[4096];
	int now, result = USMB_CPU_QUEUES_ABSENT;

	if (!usmb_load_find("libintelocl.so", path, sizeof path)) return USMB_CPU_QUEUES_ABSENT;
	if (choice != NULL && strcmp(choice, "driver") == 0) return USMB_CPU_QUEUES_DRIVER;
	library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	found = library != NULL ? symbol(library, "clGetExtensionFunctionAddress") : NULL;
	if (found == NULL) return USMB_CPU_QUEUES_UNKNOWN;
	memcpy(&extension, &found, sizeof found);
	found = extension("clIcdGetPlatformIDsKHR");
	if (found == NULL) return USMB_CPU_QUEUES_UNKNOWN;
	memcpy(&get, &found, sizeof found);
	if (get(MOST, platforms, &n) != 0) return USMB_CPU_QUEUES_UNKNOWN;
	for (i = 0; i < n && i < MOST && result != USMB_CPU_QUEUES_IN_ORDER; i++) {
		now = replace(library, platforms[i]);
		if (now != USMB_CPU_QUEUES_ABSENT) result = now;
	}
	return result;
}

int usmb_cpu_queues_set_up(int late)
{
	int now;

	pthread_mutex_lock(&lock);
	if (state == USMB_CPU_QUEUES_ABSENT) {
		state = set_up();
		if (state == USMB_CPU_QUEUES_IN_ORDER && late) state = USMB_CPU_QUEUES_LATE;
		atomic_store(&all_in_order, state == USMB_CPU_QUEUES_IN_ORDER);
		atomic_store(&poll_waits, state > USMB_CPU_QUEUES_IN_ORDER);
	}
	now = state;
	pthread_mutex_unlock(&lock);
	return now;
}

int usmb_cpu_queues_in_order(void)
{
	return atomic_load_explicit(&all_in_order, memory_order_relaxed);
}

int usmb_cpu_queues_poll(void)
{
	return atomic_load_explicit(&poll_waits, memory_order_relaxed);
}
