//go:build linux && cgo

/*
 * The table of root devices, the interned places of memory, and the check of foreign pointers that
 * finds a place.
 */
#include "cpuqueues.h"
#include "gate.h"
#include "loader.h"
#include "signals.h"
#include "place.h"
#include "symbols.h"
#include "usmb_sycl_texts.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(usmb_device_table *) root_table;
/* The number of calls that use the table now; closing waits until it is 0. */
static _Atomic int64_t visitors;

usmb_device_table *usmb_device_table_enter(void)
{
	usmb_device_table *t;

	/*
	 * Increment visitors first, then load the table. Closing clears the table first, then reads
	 * visitors. So one of the two always sees the other.
	 */
	atomic_fetch_add(&visitors, 1);
	t = atomic_load(&root_table);
	if (t == NULL) atomic_fetch_sub(&visitors, 1);
	return t;
}

void usmb_device_table_leave(void)
{
	atomic_fetch_sub_explicit(&visitors, 1, memory_order_release);
}

/* The library returns false for a failed query too. Descriptions are kept, so false is asked for twice. */
static int has(void *device, int aspect)
{
	return usmb_dp.DPCTLDevice_HasAspect(device, aspect) || usmb_dp.DPCTLDevice_HasAspect(device, aspect);
}

uint32_t usmb_device_kinds(void *device)
{
	uint32_t kinds = 0;

	if (has(device, DP_ASPECT_USM_DEVICE)) kinds |= 1u << USMB_USM_DEVICE;
	if (has(device, DP_ASPECT_USM_SHARED)) kinds |= 1u << USMB_USM_SHARED;
	if (has(device, DP_ASPECT_USM_HOST)) kinds |= 1u << USMB_USM_HOST;
	if (has(device, DP_ASPECT_FP64)) kinds |= USMB_DEVICE_DOUBLE;
	return kinds;
}

/* Returns the name of a backend or a type of devices, which is one bit. */
static const char *name_of(const char *const names[32], int bit)
{
	const char *name = bit != 0 ? names[__builtin_ctz((unsigned)bit)] : NULL;

	return name != NULL ? name : "unknown";
}

static int filter_of(void *device, char **filter)
{
	static const char *const backends[32] = {USMB_SYCL_BACKENDS}, *const types[32] = {USMB_SYCL_TYPES};
	int backend = usmb_dp.DPCTLDevice_GetBackend(device);
	int type = usmb_dp.DPCTLDevice_GetDeviceType(device);
	int position = usmb_dp.DPCTLDeviceMgr_GetPositionInDevices(device, backend | type);
	char text[64];

	/* The library reports a failure by type 0 and by a negative position. */
	if (type == 0 || position < 0) return USMB_SYCL_EFAILED;
	snprintf(text, sizeof text, "%s:%s:%d", name_of(backends, backend), name_of(types, type), position);
	*filter = strdup(text);
	return *filter != NULL ? USMB_SYCL_OK : USMB_SYCL_ENOMEM;
}

/* Returns the default context of the platform of device; owned, NULL if there is none. */
static void *default_context_of(void *device)
{
	void *platform = usmb_dp.DPCTLDevice_GetPlatform(device), *def;

	if (platform == NULL) return NULL;
	def = usmb_dp.DPCTLPlatform_GetDefaultContext(platform);
	usmb_dp.DPCTLPlatform_Delete(platform);
	return def;
}

/* Returns the context that a queue of the device has by default. */
static void *default_context(void *device)
{
	void *ctx = usmb_dp.DPCTLDeviceMgr_GetCachedContext(device);

	return usmb_gave(USMB_LIVE_CONTEXT, ctx != NULL ? ctx : default_context_of(device));
}

static int root_init(usmb_root *r, void *device)
{
	r->device = usmb_gave(USMB_LIVE_DEVICE, device);
	if (r->device == NULL) return USMB_SYCL_EFAILED;
	r->context = default_context(device);
	if (r->context == NULL) return USMB_SYCL_EFAILED;
	r->kinds = usmb_device_kinds(device);
	/* A device on which no queue can be created is listed too. */
	(void)usmb_sycl_queue_new(r->context, device, 1, 0, &r->queue);
	return filter_of(device, &r->filter);
}

static void table_free(usmb_device_table *t)
{
	int32_t i, k;

	for (i = 0; i < t->n; i++) {
		usmb_root *r = &t->roots[i];

		for (k = 0; k < 4; k++) usmb_place_release(atomic_load(&r->places[k]));
		usmb_sycl_queue_delete(r->queue);
		usmb_sycl_context_delete(r->context);
		usmb_sycl_device_delete(r->device);
		free(r->filter);
	}
	free(t);
}

static int open_table(void)
{
	void *list;
	usmb_device_table *t;
	size_t n;
	int err = USMB_SYCL_OK;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	list = usmb_dp.DPCTLDeviceMgr_GetDevices(DP_ALL_BACKENDS | DP_ALL_DEVICES);
	if (list == NULL) return USMB_SYCL_EFAILED;
	/* Listing the devices has loaded the drivers; the first queues are created below. */
	(void)usmb_cpu_queues_set_up(usmb_load_adopted());
	n = usmb_dp.DPCTLDeviceVector_Size(list);
	t = n > INT32_MAX ? NULL : calloc(1, sizeof *t + n * sizeof t->roots[0]);
	if (t == NULL) err = USMB_SYCL_ENOMEM;
	while (err == USMB_SYCL_OK && (size_t)t->n < n) {
		void *device = usmb_dp.DPCTLDeviceVector_GetAt(list, (size_t)t->n);

		err = root_init(&t->roots[t->n++], device);
	}
	usmb_dp.DPCTLDeviceVector_Delete(list);
	if (err != USMB_SYCL_OK) {
		if (t != NULL) table_free(t);
		return err;
	}
	/* The first use of SYCL, above, has registered its destructors. */
	usmb_sycl_end_children();
	usmb_cuda_count(t);
	atomic_store(&root_table, t);
	return USMB_SYCL_OK;
}

int usmb_device_table_open(void)
{
	usmb_signals signals;
	usmb_gate g;
	int err;

	usmb_signals_save(&signals);
	usmb_gate_enter(&g);
	err = open_table();
	usmb_gate_leave(&g);
	usmb_signals_restore(&signals);
	return err;
}

void usmb_device_table_close(void)
{
	usmb_device_table *t = atomic_exchange(&root_table, NULL);

	if (t == NULL) return;
	usmb_cuda_count(NULL);
	while (atomic_load(&visitors) != 0) sched_yield();
	table_free(t);
}

const usmb_root *usmb_device_table_row(int32_t index)
{
	usmb_device_table *t = atomic_load(&root_table);

	return t != NULL && index >= 0 && index < t->n ? &t->roots[index] : NULL;
}

static int32_t find_root(usmb_device_table *t, void *device)
{
	int32_t i;

	for (i = 0; i < t->n; i++)
		if (usmb_dp.DPCTLDevice_AreEq(device, t->roots[i].device)) return i;
	return -1;
}

uint32_t usmb_kinds_of(usmb_device_table *t, void *device)
{
	int32_t root = t != NULL ? find_root(t, device) : -1;

	return root >= 0 ? t->roots[root].kinds : usmb_device_kinds(device);
}

int32_t usmb_root_of(usmb_device_table *t, void *device, int32_t *is_subdevice)
{
	int32_t root = find_root(t, device);
	void *at = device, *parent;

	*is_subdevice = 0;
	while (root < 0) {
		parent = usmb_dp.DPCTLDevice_GetParentDevice(at);
		if (at != device) usmb_dp.DPCTLDevice_Delete(at);
		if (parent == NULL) return -1;
		*is_subdevice = 1;
		at = parent;
		root = find_root(t, at);
	}
	if (at != device) usmb_dp.DPCTLDevice_Delete(at);
	return root;
}

/*
 * A place that another thread adds meanwhile reads shown after it has stored itself in places, so that one
 * of the two threads sees the other.
 */
static void show_root(usmb_root *r)
{
	usmb_place *p;
	int k;

	if (atomic_exchange(&r->shown, 1)) return;
	for (k = 0; k < 4; k++)
		if ((p = atomic_load(&r->places[k])) != NULL) __atomic_store_n(&p->shown, 1, __ATOMIC_RELAXED);
}

int usmb_sycl_current_queue(int32_t device_id, void **out_queue)
{
	usmb_device_table *t;
	int err = USMB_SYCL_EDEVICEID;

	if (out_queue == NULL) return USMB_SYCL_ENULL;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	if (device_id >= 0 && device_id < t->n) {
		*out_queue = t->roots[device_id].queue;
		err = *out_queue != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
		show_root(&t->roots[device_id]);
	}
	usmb_device_table_leave();
	return err;
}

/*
 * The interned places. A place whose count has reached zero stays in the table until its releaser has the
 * lock. Look-ups skip it and never revive it, so that exactly one thread frees it.
 */
enum { BUCKETS = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usmb_place *places[BUCKETS];
static uint64_t next_serial = 1;
static uint32_t next_id = 1; /* 0 is not used */
static uint32_t *free_ids;   /* stack of ids for reuse */
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

/* Called with the lock held. Grows free_ids too, so that returning the id cannot fail. */
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

int usmb_place_show(usmb_place *p, void *queue)
{
	void *none = NULL, *own;

	if (queue == p->queue || usmb_sycl_queue_equal(queue, p->queue)) {
		__atomic_store_n(&p->shown, 1, __ATOMIC_RELAXED);
		return USMB_SYCL_OK;
	}
	if (__atomic_load_n(&p->other, __ATOMIC_ACQUIRE) != NULL) return USMB_SYCL_OK;
	own = usmb_sycl_queue_copy(queue);
	if (own == NULL) return USMB_SYCL_EFAILED;
	if (!__atomic_compare_exchange_n(&p->other, &none, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		usmb_sycl_queue_delete(own);
	return USMB_SYCL_OK;
}

static void place_free(usmb_place *p)
{
	usmb_sycl_queue_delete(p->other);
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
	at = &places[bucket_of(p->context, p->device, p->kind)];
	while (*at != p) at = &(*at)->next;
	*at = p->next;
	free_ids[free_n++] = p->id;
	pthread_mutex_unlock(&lock);
	place_free(p);
}

/* Reports whether ctx is the default context of the platform of device; -1 if the runtime fails. */
static int in_default_context(usmb_device_table *t, int32_t root, void *ctx, void *device)
{
	void *def;
	int same;

	if (root >= 0) return usmb_dp.DPCTLContext_AreEq(ctx, t->roots[root].context);
	def = default_context_of(device);
	if (def == NULL) return -1;
	same = usmb_dp.DPCTLContext_AreEq(ctx, def);
	usmb_dp.DPCTLContext_Delete(def);
	return same;
}

char *usmb_place_explain(const usmb_place *p, char *buf, size_t n)
{
	const char *where = p->filter[0] != 0 ? p->filter : "a device that is not a root device",
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

static int describe_place(usmb_device_table *t, usmb_place *p)
{
	p->root = usmb_root_of(t, p->device, &p->is_subdevice);
	p->default_context = in_default_context(t, p->root, p->context, p->device);
	if (p->default_context < 0) return USMB_SYCL_EFAILED;
	p->host_readable = p->kind == USMB_USM_SHARED || p->kind == USMB_USM_HOST;
	p->kinds = usmb_kinds_of(t, p->device);
	p->ordinal = p->root >= 0 ? t->roots[p->root].ordinal : -1;
	if (!p->default_context)
		p->dl_error = USMB_SYCL_ENOTDEFAULT;
	else if (p->root < 0)
		p->dl_error = USMB_SYCL_ENOINDEX;
	p->dl_type = USMB_DLPACK_ONEAPI;
	p->dl_id = p->root;
	return USMB_SYCL_OK;
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

	/* In a context of several devices the queue may be on another device. */
	if (given == NULL || !queue_is_on(given, p->device)) {
		given = NULL;
		if (p->default_context && p->root >= 0 && !p->is_subdevice) given = t->roots[p->root].queue;
	}
	if (given != NULL) return usmb_sycl_queue_copy(given);
	(void)usmb_sycl_queue_new(p->context, p->device, 1, 0, &queue);
	return queue;
}

/*
 * Fills a zeroed place. A place is interned only if all of this succeeds, because it stays as it is while
 * one of its allocations lives; after a failure the next call tries again.
 */
static int place_fill(usmb_device_table *t, usmb_place *p, void *ctx, void *device, void *queue)
{
	int err;

	p->context = usmb_sycl_context_copy(ctx);
	p->device = usmb_sycl_device_copy(device);
	if (p->context == NULL || p->device == NULL) return USMB_SYCL_EFAILED;
	err = describe_place(t, p);
	if (err != USMB_SYCL_OK) return err;
	p->filter = strdup(p->root >= 0 ? t->roots[p->root].filter : "");
	if (p->filter == NULL) return USMB_SYCL_ENOMEM;
	p->queue = queue_for(t, p, queue);
	return p->queue != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

static int place_make(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue, usmb_place **out)
{
	usmb_place *p = calloc(1, sizeof *p);
	int err;

	if (p == NULL) return USMB_SYCL_ENOMEM;
	usmb_gave(USMB_LIVE_PLACE, p);
	p->refs = 1;
	p->kind = kind;
	err = place_fill(t, p, ctx, device, queue);
	if (err != USMB_SYCL_OK)
		place_free(p);
	else
		*out = p;
	return err;
}

/* Called with the lock held. */
static usmb_place *find(size_t bucket, void *ctx, void *device, int32_t kind)
{
	usmb_place *p;

	for (p = places[bucket]; p != NULL; p = p->next)
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
			p->next = places[bucket];
			places[bucket] = p;
		}
	}
	pthread_mutex_unlock(&lock);
	if (err == USMB_SYCL_OK) *out = p;
	return err;
}

int usmb_place_intern(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue, usmb_place **out)
{
	_Atomic(usmb_place *) *slot = NULL;
	usmb_root *root = NULL;
	usmb_place *p, *none = NULL;
	int32_t i;
	int err;

	/*
	 * Root devices in their default context, the most common case, have their places in the table of
	 * devices: no hash and no lock.
	 */
	for (i = 0; i < t->n && slot == NULL; i++)
		if (usmb_dp.DPCTLDevice_AreEq(device, t->roots[i].device) &&
		    usmb_dp.DPCTLContext_AreEq(ctx, t->roots[i].context)) {
			root = &t->roots[i];
			slot = &root->places[kind];
		}
	if (slot != NULL && (p = atomic_load(slot)) != NULL) {
		usmb_place_retain(p);
		*out = p;
		return USMB_SYCL_OK;
	}
	/* A root's place always has the root's own queue. */
	err = intern(t, ctx, device, kind, slot != NULL ? NULL : queue, &p);
	if (err != USMB_SYCL_OK) return err;
	if (slot != NULL) {
		usmb_place_retain(p);
		if (!atomic_compare_exchange_strong(slot, &none, p)) usmb_place_release(p);
		if (atomic_load(&root->shown)) __atomic_store_n(&p->shown, 1, __ATOMIC_RELAXED);
	}
	*out = p;
	return USMB_SYCL_OK;
}

/* The library declares its pointer functions without const. */
#define PTR(p) ((void *)(uintptr_t)(p))

/* Checks a foreign span [lo, hi): the kind of lo in ctx and of hi-1 (if hi > lo + 1), in this order. */
static int check(void *ctx, const void *lo, const void *hi, int32_t *kind)
{
	const char *last = (const char *)hi - 1;
	int of_last;

	*kind = usmb_dp.DPCTLUSM_GetPointerType(PTR(lo), ctx);
	if (*kind < USMB_USM_DEVICE || *kind > USMB_USM_HOST) return usmb_kind_error(*kind);
	if (last <= (const char *)lo) return USMB_SYCL_OK;
	of_last = usmb_dp.DPCTLUSM_GetPointerType(PTR(last), ctx);
	if (of_last == USMB_USM_FAILED) return USMB_SYCL_EASYNC;
	return of_last == *kind ? USMB_SYCL_OK : USMB_SYCL_EOVERRUN;
}

/*
 * A device that an exchange names: that of the queue, or device; both may be NULL. SYCL reports the first
 * device of the context for host USM, so the named device decides there. Other memory has one device, which
 * can be a part of the named one.
 */
typedef struct naming {
	void *queue, *device;
} naming;

static void *owned_device(void *ctx, int32_t kind, const void *lo, naming n)
{
	if (kind == USMB_USM_HOST && n.queue != NULL) return usmb_sycl_queue_device(n.queue);
	if (kind == USMB_USM_HOST && n.device != NULL) return usmb_sycl_device_copy(n.device);
	return usmb_gave(USMB_LIVE_DEVICE, usmb_dp.DPCTLUSM_GetPointerDevice(PTR(lo), ctx));
}

/* queue, if not NULL, becomes the queue of a new place. */
static int place_of(usmb_device_table *t, void *ctx, void *queue, naming n, const void *lo, const void *hi,
                    usmb_place **out)
{
	int32_t kind;
	int err = check(ctx, lo, hi, &kind);
	void *device;

	if (err != USMB_SYCL_OK) return err;
	device = owned_device(ctx, kind, lo, n);
	if (device == NULL) return USMB_SYCL_ENODEVICE;
	err = usmb_place_intern(t, ctx, device, kind, queue, out);
	usmb_sycl_device_delete(device);
	return err;
}

int usmb_sycl_dlpack_import(int32_t device_id, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	int err = USMB_SYCL_EDEVICEID;

	if (lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	if (device_id >= 0 && device_id < t->n) {
		usmb_root *root = &t->roots[device_id];

		err = place_of(t, root->context, NULL, (naming){.device = root->device}, lo, hi, out);
	}
	usmb_device_table_leave();
	return err;
}

int usmb_sycl_place_in(void *ctx, void *queue, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	int err;

	if (ctx == NULL || lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	err = place_of(t, ctx, NULL, (naming){.queue = queue}, lo, hi, out);
	usmb_device_table_leave();
	return err;
}

int usmb_sycl_place_for(void *ctx, void *queue, const void *lo, const void *hi, usmb_place **out)
{
	usmb_device_table *t;
	void *of_queue = NULL;
	int err = USMB_SYCL_OK;

	if ((ctx == NULL && queue == NULL) || lo == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (hi < lo) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	if (queue != NULL) {
		of_queue = usmb_dp.DPCTLQueue_GetContext(queue);
		if (of_queue == NULL)
			err = USMB_SYCL_EFAILED;
		else if (ctx != NULL && !usmb_dp.DPCTLContext_AreEq(ctx, of_queue))
			err = USMB_SYCL_EARG;
	}
	if (err == USMB_SYCL_OK)
		err = place_of(t, ctx != NULL ? ctx : of_queue, queue, (naming){.queue = queue}, lo, hi, out);
	if (of_queue != NULL) usmb_dp.DPCTLContext_Delete(of_queue);
	usmb_device_table_leave();
	return err;
}

int usmb_place_in_order(const usmb_place *place)
{
	static const char cpu[] = "opencl:cpu:";

	return usmb_cpu_queues_in_order() && place->filter != NULL && strncmp(place->filter, cpu, sizeof cpu - 1) == 0;
}

int usmb_sycl_place_new(void *queue, int32_t kind, usmb_place **out)
{
	usmb_device_table *t;
	void *ctx, *device;
	int err = USMB_SYCL_EFAILED;

	if (queue == NULL || out == NULL) return USMB_SYCL_ENULL;
	if (kind < USMB_USM_DEVICE || kind > USMB_USM_HOST) return USMB_SYCL_EARG;
	t = usmb_device_table_enter();
	if (t == NULL) return USMB_SYCL_ENOLIB;
	ctx = usmb_dp.DPCTLQueue_GetContext(queue);
	device = usmb_dp.DPCTLQueue_GetDevice(queue);
	if (ctx != NULL && device != NULL) {
		if ((usmb_kinds_of(t, device) >> kind & 1) == 0)
			err = USMB_SYCL_EKIND;
		else
			err = usmb_place_intern(t, ctx, device, kind, queue, out);
	}
	if (ctx != NULL) usmb_dp.DPCTLContext_Delete(ctx);
	if (device != NULL) usmb_dp.DPCTLDevice_Delete(device);
	usmb_device_table_leave();
	return err;
}
