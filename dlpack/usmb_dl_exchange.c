//go:build linux

/* Both directions of the exchange: building a managed tensor, and reading and deleting one. */
#include <pthread.h>
#include <stdlib.h>

#include "usmb_dl_internal.h"

_Static_assert(sizeof(usmb_dl_tensor) == 48 && sizeof(usmb_dl_managed) == 64 && sizeof(usmb_dl_versioned) == 80 &&
                       sizeof(usmb_dl_exchange_api) == 56,
               "the struct layouts are those of 64-bit machines");

const char usmb_dl_name_legacy[] = "dltensor";
const char usmb_dl_name_legacy_used[] = "used_dltensor";
const char usmb_dl_name_versioned[] = "dltensor_versioned";
const char usmb_dl_name_versioned_used[] = "used_dltensor_versioned";
const char usmb_dl_name_exchange_api[] = "dlpack_exchange_api";

/*
 * The block of an exported tensor. The owner's context is the ctx of the struct; the owner's function,
 * shape and strides follow it. ndim is kept apart from the tensor's, which consumers may overwrite.
 */
typedef struct {
	usmb_dl_managed m;
	usmb_drop_fn drop;
	int64_t ndim;
	int64_t dims[];
} legacy_block;

typedef struct {
	usmb_dl_versioned m;
	usmb_drop_fn drop;
	int64_t ndim;
	int64_t dims[];
} versioned_block;

/*
 * Each thread keeps a few deleted blocks for its next tensors: most tensors are small and are made and
 * deleted on one thread. Blocks of up to SMALL dimensions have one size, so that each fits any of them;
 * larger ones are not kept.
 */
enum { SMALL = 4, KEEP = 8 };
static const size_t small_size = sizeof(versioned_block) + 2 * SMALL * sizeof(int64_t);

#if defined(__SANITIZE_ADDRESS__)
/* Kept memory would hide use after free from the sanitizer. */
enum { OFF = 1 };
#else
enum { OFF = 0 };
#endif

static __thread struct {
	void *kept[KEEP];
	int n;
	int state; /* 0: undecided; 1: the end of this thread frees the blocks; -1: keep nothing */
} cache;

static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int have_key;

/* Runs when a thread ends. */
static void free_kept(void *unused)
{
	(void)unused;
	while (cache.n > 0) free(cache.kept[--cache.n]);
	cache.state = -1;
}

static void make_key(void)
{
	have_key = pthread_key_create(&at_end, free_kept) == 0;
}

/* Decides whether this thread may keep blocks. */
static int may_keep(void)
{
	pthread_once(&once, make_key);
	cache.state = !OFF && have_key && pthread_setspecific(at_end, &cache) == 0 ? 1 : -1;
	return cache.state == 1;
}

/* Returns memory for a block of either kind, NULL if out of memory. */
static void *block_new(int32_t ndim)
{
	if (ndim > SMALL) return malloc(sizeof(versioned_block) + 2 * sizeof(int64_t) * (size_t)ndim);
	return cache.n > 0 ? cache.kept[--cache.n] : malloc(small_size);
}

/* ndim is the number that the block was made for. */
static void block_free(void *block, int32_t ndim)
{
	if (ndim <= SMALL && cache.n < KEEP && (cache.state == 1 || (cache.state == 0 && may_keep())))
		cache.kept[cache.n++] = block;
	else
		free(block);
}

/* Deletes a block once; ndim lies inside it. */
static inline void end_block(void *block, int64_t *ndim, usmb_drop_fn drop, void *ctx)
{
	int32_t n = (int32_t)*ndim;

	if (n < 0) return; /* deleted before: do not drop a second reference of the owner */
	*ndim = -1;
	block_free(block, n);
	if (drop != NULL) drop(ctx);
}

static void delete_legacy(usmb_dl_managed *m)
{
	legacy_block *b = (legacy_block *)m;

	end_block(b, &b->ndim, b->drop, m->ctx);
}

static void delete_versioned(usmb_dl_versioned *m)
{
	versioned_block *b = (versioned_block *)m;

	end_block(b, &b->ndim, b->drop, m->ctx);
}

/* Writes shape and strides to dims, in the block, and sets t's pointers to them. Sets *empty and *lo, the
 * lowest element relative to the first (at most 0). */
static void copy_dims(usmb_dl_tensor *t, const usmb_dl_tensor *view, int64_t *dims, int *empty, int64_t *lo)
{
	int32_t ndim = view->ndim;
	int64_t *shape = dims, *strides = dims + ndim, n = 1;

	*empty = 0;
	*lo = 0;
	t->shape = ndim > 0 ? shape : NULL;
	t->strides = ndim > 0 ? strides : NULL;
	for (int32_t i = ndim - 1; i >= 0; i--) {
		int64_t extent = view->shape[i];

		shape[i] = extent;
		strides[i] = view->strides != NULL ? view->strides[i] : n;
		if (extent == 0) {
			*empty = 1;
			continue;
		}
		if (view->strides == NULL)
			n *= extent;
		else if (strides[i] < 0) /* wraps only in an empty tensor, where it is not used */
			*lo = (int64_t)((uint64_t)*lo + (uint64_t)strides[i] * (uint64_t)(extent - 1));
	}
}

/* Sets data and byte_offset by the rules of usmb_dl_export. OK or ENULL. */
static int place_data(usmb_dl_tensor *t, const usmb_dl_tensor *view, uint64_t flags, int empty, int64_t lo)
{
	if (usmb_dl_is_handle_device(view->device.type)) {
		t->data = empty ? NULL : view->data;
		t->byte_offset = empty ? 0 : view->byte_offset;
		return USMB_DL_OK;
	}
	t->data = (void *)((uintptr_t)view->data + (uintptr_t)view->byte_offset); /* may be NULL when empty */
	t->byte_offset = 0;
	if (empty) {
		if (view->device.type != USMB_DL_ONEAPI) t->data = NULL;
		return t->data == NULL && view->device.type == USMB_DL_ONEAPI ? USMB_DL_ENULL : USMB_DL_OK;
	}
	if (lo < 0 && view->device.type == USMB_DL_ONEAPI) {
		int64_t bits = lo * (int64_t)usmb_dl_item_bits(view->dtype, flags);
		int64_t bytes = bits / 8 - (bits % 8 < 0);

		t->data = (char *)t->data + bytes;
		t->byte_offset = (uint64_t)-bytes;
	}
	return USMB_DL_OK;
}

/* Reports flags that legacy tensors cannot express: OK, EREADONLY or EPADDED. */
static int legacy_carries(uint64_t flags)
{
	if (flags & USMB_DL_FLAG_READ_ONLY) return USMB_DL_EREADONLY;
	return flags & USMB_DL_FLAG_SUBBYTE_PADDED ? USMB_DL_EPADDED : USMB_DL_OK;
}

static int check_export(const usmb_dl_tensor *view, uint64_t flags, int versioned)
{
	int rc;

	if (flags & ~(USMB_DL_FLAGS_KNOWN | USMB_DL_EXPORT_CHECKED)) return USMB_DL_EFLAGS;
	if (!versioned) {
		rc = legacy_carries(flags);
		/* Padding matters for sub-byte elements only. */
		if (rc == USMB_DL_EPADDED && view != NULL && view->dtype.bits >= 8) rc = USMB_DL_OK;
		if (rc != USMB_DL_OK) return rc;
	}
	if (flags & USMB_DL_EXPORT_CHECKED) return USMB_DL_OK;
	rc = usmb_dl_check(view, flags, NULL, NULL);
	return rc == USMB_DL_OK && usmb_dl_device_name(view->device.type) == NULL ? USMB_DL_EDEVICE : rc;
}

/* Writes the fields of the block outside the tensor. */
static void seal(void *block, int versioned, uint64_t flags, int32_t ndim, usmb_drop_fn drop, void *ctx)
{
	if (versioned) {
		versioned_block *b = block;

		b->m.version = (usmb_dl_version){USMB_DL_MAJOR, USMB_DL_MINOR};
		b->m.ctx = ctx;
		b->m.deleter = delete_versioned;
		b->m.flags = flags & USMB_DL_FLAGS_KNOWN;
		b->drop = drop;
		b->ndim = ndim;
	} else {
		legacy_block *b = block;

		b->m.ctx = ctx;
		b->m.deleter = delete_legacy;
		b->drop = drop;
		b->ndim = ndim;
	}
}

/* Reports whether a checked layout with strides has elements, and none lies below the first. */
static int ascending(const usmb_dl_tensor *view)
{
	for (int32_t i = 0; i < view->ndim; i++)
		if (view->strides[i] < 0 || view->shape[i] == 0) return 0;
	return 1;
}

/* Fast path of most exports: a checked layout, no flags, and data is the first element's address. */
static int export_plain(const usmb_dl_tensor *view, int versioned, usmb_drop_fn drop, void *ctx, void **out)
{
	int32_t ndim = view->ndim;
	char *block = block_new(ndim);
	int64_t *dims;
	usmb_dl_tensor *t;
	int empty = 0;

	if (block == NULL) return USMB_DL_ENOMEM;
	t = versioned ? &((versioned_block *)block)->m.t : &((legacy_block *)block)->m.t;
	dims = versioned ? ((versioned_block *)block)->dims : ((legacy_block *)block)->dims;
	for (int32_t i = 0; i < ndim; i++) {
		dims[i] = view->shape[i];
		dims[ndim + i] = view->strides[i];
		empty |= view->shape[i] == 0;
	}
	t->data = empty ? NULL : (void *)((uintptr_t)view->data + (uintptr_t)view->byte_offset);
	t->device = view->device;
	t->ndim = ndim;
	t->dtype = view->dtype;
	t->shape = ndim > 0 ? dims : NULL;
	t->strides = ndim > 0 ? dims + ndim : NULL;
	t->byte_offset = 0;
	seal(block, versioned, 0, ndim, drop, ctx);
	*out = block;
	return USMB_DL_OK;
}

int usmb_dl_export(const usmb_dl_tensor *view, uint64_t flags, int versioned, usmb_drop_fn drop, void *ctx, void **out)
{
	size_t head = versioned ? sizeof(versioned_block) : sizeof(legacy_block);
	usmb_dl_tensor *t;
	int rc, empty;
	int64_t lo;
	char *block;

	if (flags == USMB_DL_EXPORT_CHECKED && (view->strides != NULL || view->ndim == 0) &&
	    (view->device.type == USMB_DL_CPU || (view->device.type == USMB_DL_ONEAPI && ascending(view))))
		return export_plain(view, versioned, drop, ctx, out);
	rc = check_export(view, flags, versioned);
	if (rc != USMB_DL_OK) return rc;
	block = block_new(view->ndim);
	if (block == NULL) return USMB_DL_ENOMEM;
	t = versioned ? &((versioned_block *)block)->m.t : &((legacy_block *)block)->m.t;
	t->device = view->device;
	t->ndim = view->ndim;
	t->dtype = view->dtype;
	copy_dims(t, view, (int64_t *)(block + head), &empty, &lo);
	rc = place_data(t, view, flags, empty, lo);
	if (rc != USMB_DL_OK) {
		block_free(block, view->ndim);
		return rc;
	}
	seal(block, versioned, flags, view->ndim, drop, ctx);
	*out = block;
	return USMB_DL_OK;
}

/* Copies the fields, but not the arrays of shape and strides. Each field is read once. */
static void copy_fields(usmb_dl_tensor *to, const usmb_dl_tensor *from)
{
	to->data = READ(from->data);
	to->device.type = READ(from->device.type);
	to->device.id = READ(from->device.id);
	to->ndim = READ(from->ndim);
	to->dtype = READ(from->dtype);
	to->shape = READ(from->shape);
	to->strides = READ(from->strides);
	to->byte_offset = READ(from->byte_offset);
}

int usmb_dl_read_fields(const void *managed, int versioned, usmb_dl_tensor *t, uint64_t *flags,
                        usmb_dl_version *version)
{
	const usmb_dl_versioned *v = managed;

	if (managed == NULL) return USMB_DL_ENULL;
	*flags = 0;
	*version = (usmb_dl_version){0, 0};
	if (!versioned) {
		copy_fields(t, &((const usmb_dl_managed *)managed)->t);
		return USMB_DL_OK;
	}
	version->major = READ(v->version.major);
	version->minor = READ(v->version.minor);
	if (version->major != USMB_DL_MAJOR) return USMB_DL_EVERSION;
	*flags = READ(v->flags);
	copy_fields(t, &v->t);
	return USMB_DL_OK;
}

int usmb_dl_read(const usmb_dl_tensor *t, uint64_t flags, usmb_dl_snapshot *out)
{
	out->t = (usmb_dl_tensor){0};
	out->flags = flags;
	out->version = (usmb_dl_version){0, 0};
	if (t == NULL) return USMB_DL_ENULL;
	copy_fields(&out->t, t);
	return usmb_dl_read_dims(&out->t, out->flags, out->shape, out->strides, &out->span);
}

int usmb_dl_read_managed(const void *managed, int versioned, usmb_dl_snapshot *out)
{
	int rc;

	out->t = (usmb_dl_tensor){0};
	rc = usmb_dl_read_fields(managed, versioned, &out->t, &out->flags, &out->version);
	return rc == USMB_DL_OK ? usmb_dl_read_dims(&out->t, out->flags, out->shape, out->strides, &out->span) : rc;
}

int usmb_dl_is_own(const void *managed, int versioned)
{
	if (versioned) return ((const usmb_dl_versioned *)managed)->deleter == delete_versioned;
	return ((const usmb_dl_managed *)managed)->deleter == delete_legacy;
}

void *usmb_dl_owner(const void *managed, int versioned, usmb_drop_fn *drop)
{
	const versioned_block *v = managed;
	const legacy_block *l = managed;

	*drop = NULL;
	if (!usmb_dl_is_own(managed, versioned) || (versioned ? v->ndim : l->ndim) < 0) return NULL;
	*drop = versioned ? v->drop : l->drop;
	return versioned ? v->m.ctx : l->m.ctx;
}

void usmb_dl_delete(void *managed, int versioned)
{
	if (managed == NULL) return;
	if (versioned) {
		usmb_dl_versioned *m = managed;

		if (m->deleter != NULL) m->deleter(m);
	} else {
		usmb_dl_managed *m = managed;

		if (m->deleter != NULL) m->deleter(m);
	}
}

int usmb_dl_negotiate(int has_max, uint32_t major, uint32_t minor, uint64_t flags, int *versioned)
{
	(void)minor; /* minor versions only add values, so that all of one major version can read the struct */
	*versioned = has_max && major >= USMB_DL_MAJOR;
	return *versioned ? USMB_DL_OK : legacy_carries(flags);
}

const usmb_dl_exchange_api *usmb_dl_exchange_find(const void *api)
{
	const usmb_dl_exchange_header *h = api;

	/* A chain has one table per major version, so that a longer one is a loop. */
	for (int i = 0; h != NULL && i < 64; i++, h = h->prev_api)
		if (h->version.major == USMB_DL_MAJOR) return (const usmb_dl_exchange_api *)h;
	return NULL;
}
