//go:build linux && cgo

#include "symbols.h"
#include "devicetable.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The intern table. A place whose count has reached zero may still be found
 * here for the moment until its releaser gets the lock; such a place is passed
 * over, never revived, so that exactly one thread frees it.
 */
enum { BUCKETS = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usmb_place *table[BUCKETS];
static uint64_t next_serial = 1;
static uint32_t next_id = 1; /* 0 is nobody's */
static uint32_t *free_ids;   /* stack of ids to give again */
static size_t free_n, free_cap;

void usmb_place_retain(usmb_place *p)
{
	if (p != NULL) __atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
}

static int retain_if_alive(usmb_place *p)
{
	int64_t n = __atomic_load_n(&p->refs, __ATOMIC_RELAXED);

	while (n > 0)
		if (__atomic_compare_exchange_n(&p->refs, &n, n + 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return 1;
	return 0;
}

static size_t bucket_of(void *ctx, void *device, int32_t kind)
{
	size_t h = usmb_dp.DPCTLContext_Hash(ctx) * 31 + usmb_dp.DPCTLDevice_Hash(device);

	return ((h >> 4) * 31 + (size_t)kind) % BUCKETS;
}

/* With the lock held. Room for the id's return is made when it is given out. */
static int take_id(uint32_t *id)
{
	if (free_n > 0) {
		*id = free_ids[--free_n];
		return 1;
	}
	if (next_id > free_cap) {
		size_t cap = free_cap == 0 ? 64 : 2 * free_cap;
		uint32_t *grown = realloc(free_ids, cap * sizeof *grown);

		if (grown == NULL) return 0;
		free_ids = grown;
		free_cap = cap;
	}
	*id = next_id++;
	return 1;
}

void usmb_place_note_consumer(usmb_place *p, void *queue)
{
	void *none = NULL, *own;

	if (usmb_place_consumer(p) != NULL) return;
	own = usmb_sycl_queue_copy(queue);
	if (own != NULL &&
	    !__atomic_compare_exchange_n(&p->consumer, &none, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		usmb_sycl_queue_delete(own);
}

static void place_free(usmb_place *p)
{
	usmb_sycl_queue_delete(p->consumer);
	usmb_sycl_queue_delete(p->queue);
	usmb_sycl_context_delete(p->context);
	usmb_sycl_device_delete(p->device);
	free((char *)p->filter);
	free(p);
	usmb_took(USMB_LIVE_PLACE);
}

void usmb_place_release(usmb_place *p)
{
	usmb_place **at;

	if (p == NULL || __atomic_fetch_sub(&p->refs, 1, __ATOMIC_ACQ_REL) != 1) return;
	pthread_mutex_lock(&lock);
	at = &table[bucket_of(p->context, p->device, p->kind)];
	while (*at != p) at = &(*at)->next;
	*at = p->next;
	free_ids[free_n++] = p->id;
	pthread_mutex_unlock(&lock);
	place_free(p);
}

/* The default context of the platform of device; owned, NULL when there is none. */
static void *default_context_of(void *device)
{
	void *platform = usmb_dp.DPCTLDevice_GetPlatform(device), *def;

	if (platform == NULL) return NULL;
	def = usmb_dp.DPCTLPlatform_GetDefaultContext(platform);
	usmb_dp.DPCTLPlatform_Delete(platform);
	return def;
}

/* Is ctx the default context of the platform of device? */
static int in_default_context(usmb_device_table *t, int32_t root, void *ctx, void *device)
{
	void *def;
	int same;

	if (root >= 0) return usmb_dp.DPCTLContext_AreEq(ctx, t->roots[root].context);
	def = default_context_of(device);
	if (def == NULL) return 0;
	same = usmb_dp.DPCTLContext_AreEq(ctx, def);
	usmb_dp.DPCTLContext_Delete(def);
	return same;
}

char *usmb_place_explain(const usmb_place *p, char *buf, size_t n)
{
	const char *where = p->filter[0] != 0 ? p->filter : "a device that is no root device",
	           *part = p->is_subdevice ? "a part of " : "";
	void *def;

	if (n == 0) return buf;
	buf[0] = 0;
	if (p->dl_error == USMB_SYCL_ENOTDEFAULT) {
		def = default_context_of(p->device);
		if (def != NULL) {
			snprintf(buf, n,
			         "memory on %s%s in context %#zx, while the default context of its platform is %#zx",
			         part, where, usmb_dp.DPCTLContext_Hash(p->context), usmb_dp.DPCTLContext_Hash(def));
			usmb_dp.DPCTLContext_Delete(def);
			return buf;
		}
	}
	if (p->dl_error != USMB_SYCL_OK)
		snprintf(buf, n, "memory on %s%s in context %#zx", part, where, usmb_dp.DPCTLContext_Hash(p->context));
	return buf;
}

static void settle(usmb_device_table *t, usmb_place *p)
{
	p->root = usmb_root_of(t, p->device, &p->is_subdevice);
	p->default_context = in_default_context(t, p->root, p->context, p->device);
	p->host_readable = p->kind == USMB_USM_SHARED || p->kind == USMB_USM_HOST;
	p->kinds = usmb_device_kinds(p->device);
	if (!p->default_context)
		p->dl_error = USMB_SYCL_ENOTDEFAULT;
	else if (p->root < 0)
		p->dl_error = USMB_SYCL_ENOINDEX;
	p->dl_type = USMB_DLPACK_ONEAPI;
	p->dl_id = p->root;
}

static int queue_is_on(void *queue, void *device)
{
	void *of_queue = usmb_dp.DPCTLQueue_GetDevice(queue);
	int same;

	if (of_queue == NULL) return 0;
	same = usmb_dp.DPCTLDevice_AreEq(of_queue, device);
	usmb_dp.DPCTLDevice_Delete(of_queue);
	return same;
}

static void *queue_for(usmb_device_table *t, usmb_place *p, void *given)
{
	void *queue = NULL;

	/* In a context over several devices the queue may be another device's. */
	if (given != NULL && queue_is_on(given, p->device)) return usmb_sycl_queue_copy(given);
	if (p->default_context && p->root >= 0 && !p->is_subdevice)
		return usmb_sycl_queue_copy(t->roots[p->root].queue);
	/* Without a queue the memory can still be shared, only not copied. */
	(void)usmb_sycl_queue_new(p->context, p->device, 1, 0, &queue);
	return queue;
}

static int place_make(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue, usmb_place **out)
{
	usmb_place *p = calloc(1, sizeof *p);

	if (p == NULL) return USMB_SYCL_ENOMEM;
	usmb_gave(USMB_LIVE_PLACE, p);
	p->refs = 1;
	p->kind = kind;
	p->context = usmb_sycl_context_copy(ctx);
	p->device = usmb_sycl_device_copy(device);
	if (p->context == NULL || p->device == NULL) {
		place_free(p);
		return USMB_SYCL_EFAILED;
	}
	settle(t, p);
	p->filter = strdup(p->root >= 0 ? t->roots[p->root].filter : "");
	if (p->filter == NULL) {
		place_free(p);
		return USMB_SYCL_ENOMEM;
	}
	p->queue = queue_for(t, p, queue);
	*out = p;
	return USMB_SYCL_OK;
}

/* With the lock held. */
static usmb_place *find(size_t bucket, void *ctx, void *device, int32_t kind)
{
	usmb_place *p;

	for (p = table[bucket]; p != NULL; p = p->next)
		if (p->kind == kind && usmb_dp.DPCTLContext_AreEq(p->context, ctx) &&
		    usmb_dp.DPCTLDevice_AreEq(p->device, device) && retain_if_alive(p))
			return p;
	return NULL;
}

static int intern(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue, usmb_place **out)
{
	size_t bucket = bucket_of(ctx, device, kind);
	usmb_place *p;
	int err = USMB_SYCL_OK;

	pthread_mutex_lock(&lock);
	p = find(bucket, ctx, device, kind);
	if (p == NULL) {
		err = place_make(t, ctx, device, kind, queue, &p);
		if (err == USMB_SYCL_OK && !take_id(&p->id)) {
			place_free(p);
			err = USMB_SYCL_ENOMEM;
		}
		if (err == USMB_SYCL_OK) {
			p->serial = next_serial++;
			p->next = table[bucket];
			table[bucket] = p;
		}
	}
	pthread_mutex_unlock(&lock);
	if (err == USMB_SYCL_OK) *out = p;
	return err;
}

int usmb_place_intern(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue, usmb_place **out)
{
	_Atomic(usmb_place *) *slot = NULL;
	usmb_place *p, *none = NULL;
	int32_t i;
	int err;

	/* Root devices in their default context, nearly all memory there is, have
	 * their places in the table of devices itself: no hash, no lock. */
	for (i = 0; i < t->n && slot == NULL; i++)
		if (usmb_dp.DPCTLDevice_AreEq(device, t->roots[i].device) &&
		    usmb_dp.DPCTLContext_AreEq(ctx, t->roots[i].context))
			slot = &t->roots[i].places[kind];
	if (slot != NULL && (p = atomic_load(slot)) != NULL) {
		usmb_place_retain(p);
		*out = p;
		return USMB_SYCL_OK;
	}
	/* A root's place keeps the root's own queue, whoever asks first. */
	err = intern(t, ctx, device, kind, slot != NULL ? NULL : queue, &p);
	if (err != USMB_SYCL_OK) return err;
	if (slot != NULL) {
		usmb_place_retain(p);
		if (!atomic_compare_exchange_strong(slot, &none, p)) usmb_place_release(p);
	}
	*out = p;
	return USMB_SYCL_OK;
}
