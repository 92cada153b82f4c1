/* Unified shared memory. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIND_DEVICE = 1, KIND_SHARED = 2, KIND_HOST = 3 };

/*
 * Memory has two mappings: one at the user's address, which the host cannot access if
 * the kind is device, and one for the fake's own copies.
 */
typedef struct block {
	char *user, *backing, *base;
	size_t size, mapped, shift;
	int kind, fd;
	bool opened; /* memory of another process */
	context *ctx;
	device *dev;
	struct block *next;
} block;

static block *blocks;

static block *find(const void *p)
{
	for (block *b = blocks; b != NULL; b = b->next)
		if ((const char *)p >= b->user && (const char *)p < b->user + b->size) return b;
	return NULL;
}

/* The caller holds fake_lock. For foreign memory it returns p. */
void *usm_backing(const void *p, size_t size)
{
	block *b = find(p);

	if (b == NULL) return (void *)p;
	if ((const char *)p + size > b->user + b->size) fake_die("work reaches beyond its allocation");
	return b->backing + ((const char *)p - b->user);
}

static bool map_file(block *b)
{
	b->base = mmap(NULL, b->mapped, b->kind == KIND_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE,
	               MAP_SHARED | MAP_NORESERVE, b->fd, 0);
	b->backing = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, b->fd, 0);
	return b->base != MAP_FAILED && b->backing != MAP_FAILED;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static bool map(block *b, size_t align)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), odd = b->dev->align, slack = larger(larger(align, page), 2 * odd);

	b->fd = memfd_create("fake usm", MFD_CLOEXEC);
	b->mapped = ((b->size + page - 1) & ~(page - 1)) + slack + odd;
	if (b->fd < 0 || ftruncate(b->fd, (off_t)b->mapped) != 0 || !map_file(b)) return false;
	/* Only memory that other processes can open needs the file. */
	if (b->kind != KIND_DEVICE || (b->dev->kinds >> FAKE_IPC & 1) == 0) {
		close(b->fd);
		b->fd = -1;
	}
	b->shift = (-(size_t)b->base & (slack - 1)) + odd; /* an odd multiple of the device's alignment */
	b->user = b->base + b->shift;
	b->backing += b->shift;
	return true;
}

/*
 * Returns whether a call fails on demand. An attempt without an alignment after a failed one is a part of
 * the same request, and fails as well: the device has no memory.
 */
static bool refuses(const char *name, size_t align)
{
	static _Thread_local bool refused;

	refused = (align == 0 && refused) || fake_entry(name);
	return refused;
}

static void *alloc(const char *name, int kind, size_t align, size_t size, void *h)
{
	queue *q = handle_object(QUEUE, h);
	block *b;

	if (refuses(name, align) || size == 0 || (align & (align - 1)) != 0) return NULL;
	if (q->dev->align != 0 && align > q->dev->align) return NULL;
	if ((q->dev->kinds >> kind & 1) == 0) {
		if (kind == KIND_HOST)
			fake_die("host memory on a device without it: the real library throws through C");
		return NULL;
	}
	if (kind != KIND_HOST && (size > q->dev->mem || q->dev->used > q->dev->mem - size)) return NULL;
	b = zeroed(sizeof *b);
	*b = (block){.size = size, .kind = kind, .ctx = q->ctx, .dev = q->dev};
	if (!map(b, align)) {
		free(b);
		return NULL;
	}
	pthread_mutex_lock(&fake_lock);
	if (kind != KIND_HOST) q->dev->used += size;
	b->next = blocks;
	blocks = b;
	pthread_mutex_unlock(&fake_lock);
	live_add(USM, 1);
	return b->user;
}
void *DPCTLaligned_alloc_device(size_t align, size_t size, void *q)
{
	return alloc(__func__, KIND_DEVICE, align, size, q);
}
void *DPCTLaligned_alloc_shared(size_t align, size_t size, void *q)
{
	return alloc(__func__, KIND_SHARED, align, size, q);
}
void *DPCTLaligned_alloc_host(size_t align, size_t size, void *q)
{
	return alloc(__func__, KIND_HOST, align, size, q);
}

static void drop(block *b)
{
	munmap(b->base, b->mapped);
	munmap(b->backing - b->shift, b->mapped);
	if (b->fd >= 0) close(b->fd);
	free(b);
}

void DPCTLfree_with_context(void *p, void *h)
{
	context *c = handle_object(CONTEXT, h);

	(void)fake_entry(__func__);
	pthread_mutex_lock(&fake_lock);
	for (block **at = &blocks; *at != NULL; at = &(*at)->next) {
		block *b = *at;

		if (b->user != p || b->ctx != c) continue;
		if (b->opened) fake_die("free of memory of another process, which must be closed");
		*at = b->next;
		if (b->kind != KIND_HOST) b->dev->used -= b->size;
		drop(b);
		pthread_mutex_unlock(&fake_lock);
		live_add(USM, -1);
		return;
	}
	fake_die("free of an address that is not an allocation of the context");
}

int DPCTLUSM_GetPointerType(void *p, void *h)
{
	context *c = handle_object(CONTEXT, h);

	if (fake_entry(__func__)) return 0;
	pthread_mutex_lock(&fake_lock);
	block *b = find(p);
	int kind = b != NULL && b->ctx == c ? b->kind : 0;
	pthread_mutex_unlock(&fake_lock);
	return kind;
}
void *DPCTLUSM_GetPointerDevice(void *p, void *h)
{
	context *c = handle_object(CONTEXT, h);

	if (fake_entry(__func__)) return NULL;
	pthread_mutex_lock(&fake_lock);
	block *b = find(p);
	pthread_mutex_unlock(&fake_lock);
	if (b == NULL || b->ctx != c)
		fake_die("query of the device of memory outside the context: the real library throws through C");
	return handle_new(DEVICE, b->kind == KIND_HOST ? c->devices[0] : b->dev);
}
/*
 * Handles of device memory for other processes with this library: they contain the
 * process and its file descriptor.
 */
struct handle_data {
	char magic[8];
	int pid, fd;
	size_t size, mapped, shift;
};

bool DPCTLIPCMem_Available(void)
{
	return true;
}
int DPCTLIPCMem_GetHandle(void *p, void *h, char **data, size_t *size)
{
	context *c = handle_object(CONTEXT, h);
	struct handle_data *d;

	if (fake_entry(__func__)) return 1;
	pthread_mutex_lock(&fake_lock);
	block *b = find(p);
	if (b == NULL || b->ctx != c || b->kind != KIND_DEVICE || b->fd < 0)
		fake_die("handle of memory that is not shareable device memory");
	d = zeroed(sizeof *d);
	*d = (struct handle_data){"fakeIPC", getpid(), b->fd, b->size, b->mapped, b->shift};
	pthread_mutex_unlock(&fake_lock);
	*data = (char *)d;
	*size = sizeof *d;
	live_add(TEXT, 1);
	return 0;
}
void DPCTLIPCMem_FreeHandleData(char *data)
{
	free(data);
	live_add(TEXT, -1);
}
void *DPCTLIPCMem_OpenHandle(const char *data, size_t size, void *h, void *dh)
{
	context *c = handle_object(CONTEXT, h);
	device *dev = handle_object(DEVICE, dh);
	struct handle_data d;
	char path[64];
	block *b;

	if (fake_entry(__func__) || size != sizeof d) return NULL;
	memcpy(&d, data, sizeof d);
	if (strncmp(d.magic, "fakeIPC", sizeof d.magic) != 0) return NULL;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", d.pid, d.fd);
	b = zeroed(sizeof *b);
	*b = (block){.size = d.size, .mapped = d.mapped, .shift = d.shift, .kind = KIND_DEVICE, .ctx = c, .dev = dev};
	b->opened = true;
	b->fd = open(path, O_RDWR | O_CLOEXEC);
	if (b->fd < 0 || !map_file(b)) {
		if (b->fd >= 0) close(b->fd);
		free(b);
		return NULL;
	}
	b->user = b->base + b->shift;
	b->backing += b->shift;
	pthread_mutex_lock(&fake_lock);
	b->next = blocks;
	blocks = b;
	pthread_mutex_unlock(&fake_lock);
	live_add(USM, 1);
	return b->user;
}
void DPCTLIPCMem_CloseHandle(void *p, void *h)
{
	context *c = handle_object(CONTEXT, h);

	(void)fake_entry(__func__);
	pthread_mutex_lock(&fake_lock);
	for (block **at = &blocks; *at != NULL; at = &(*at)->next) {
		block *b = *at;

		if (b->user != p || b->ctx != c) continue;
		if (!b->opened) fake_die("close of memory of this process");
		*at = b->next;
		drop(b);
		pthread_mutex_unlock(&fake_lock);
		live_add(USM, -1);
		return;
	}
	fake_die("close of memory that was not opened");
}

/* Returns the bytes of device and shared memory in use on the i-th root device. */
unsigned long long fake_used(long i)
{
	unsigned long long n;

	pthread_mutex_lock(&fake_lock);
	n = fake_roots[i]->used;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
