/* Unified shared memory. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIND_DEVICE = 1, KIND_SHARED = 2, KIND_HOST = 3 };

/*
 * Memory has two mappings: the address the user has, which the host may not
 * touch if the kind is device, and one for the fake's own copies.
 */
typedef struct block {
	char *user, *backing, *base;
	size_t size, mapped, shift;
	int kind;
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

/* With fake_lock held. Foreign memory is its own backing. */
void *usm_backing(const void *p, size_t size)
{
	block *b = find(p);

	if (b == NULL) return (void *)p;
	if ((const char *)p + size > b->user + b->size) fake_die("work reaches beyond its allocation");
	return b->backing + ((const char *)p - b->user);
}

static bool map(block *b, size_t align)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), slack = align > page ? align : page;
	int fd = memfd_create("fake usm", MFD_CLOEXEC);

	b->mapped = ((b->size + page - 1) & ~(page - 1)) + slack;
	if (fd < 0 || ftruncate(fd, (off_t)b->mapped) != 0) return false;
	b->base = mmap(NULL, b->mapped, b->kind == KIND_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE,
	               MAP_SHARED | MAP_NORESERVE, fd, 0);
	b->backing = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	if (b->base == MAP_FAILED || b->backing == MAP_FAILED) return false;
	b->shift = -(size_t)b->base & (slack - 1);
	b->user = b->base + b->shift;
	b->backing += b->shift;
	return true;
}

static void *alloc(const char *name, int kind, size_t align, size_t size, void *h)
{
	queue *q = handle_object(QUEUE, h);
	block *b;

	if (fake_entry(name) || size == 0 || (align & (align - 1)) != 0) return NULL;
	if ((q->dev->kinds >> kind & 1) == 0) {
		if (kind == KIND_HOST)
			fake_die("host memory on a device without it: the real library throws through C");
		return NULL;
	}
	if (kind != KIND_HOST && (size > q->dev->mem || q->dev->used > q->dev->mem - size)) return NULL;
	b = calloc(1, sizeof *b);
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

void DPCTLfree_with_context(void *p, void *h)
{
	context *c = handle_object(CONTEXT, h);

	(void)fake_entry(__func__);
	pthread_mutex_lock(&fake_lock);
	for (block **at = &blocks; *at != NULL; at = &(*at)->next) {
		block *b = *at;

		if (b->user != p || b->ctx != c) continue;
		*at = b->next;
		if (b->kind != KIND_HOST) b->dev->used -= b->size;
		munmap(b->base, b->mapped);
		munmap(b->backing - b->shift, b->mapped);
		free(b);
		pthread_mutex_unlock(&fake_lock);
		live_add(USM, -1);
		return;
	}
	fake_die("free of what is no allocation of the context");
}

int DPCTLUSM_GetPointerType(void *p, void *h)
{
	context *c = handle_object(CONTEXT, h);

	(void)fake_entry(__func__);
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
		fake_die("the device of what is no memory of the context: the real library throws through C");
	return handle_new(DEVICE, b->kind == KIND_HOST ? c->devices[0] : b->dev);
}
/* Bytes in use on the i-th root device, of device and shared memory. */
unsigned long long fake_used(long i)
{
	unsigned long long n;

	pthread_mutex_lock(&fake_lock);
	n = fake_roots[i]->used;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
