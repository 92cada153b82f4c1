//go:build linux

/* The functions that Go calls: one call per operation. */
#include <stdatomic.h>
#include <stdlib.h>

#include "usmb_dl_internal.h"

static usmb_dl_tensor from_parts(const usmb_dl_parts *p, const int64_t *shape, const int64_t *strides)
{
	return (usmb_dl_tensor){(void *)p->data,  p->device,          p->ndim,       p->dtype,
	                        (int64_t *)shape, (int64_t *)strides, p->byte_offset};
}

/* Only the caller uses the slot now, so a release store is sufficient. */
static void make_live(usmb_dl_slot *slot)
{
	atomic_store_explicit(&slot->word, atomic_load_explicit(&slot->word, memory_order_relaxed) | 1,
	                      memory_order_release);
}

/* Replaces more by an error message from malloc, and returns the code. */
static int explain_in(usmb_dl_slot *s, int code)
{
	enum { TEXT = 512 };
	char *text = malloc(TEXT);

	if (text != NULL && code == USMB_DL_EVERSION)
		usmb_dl_explain_version(s->version, text, TEXT);
	else if (text != NULL)
		usmb_dl_explain(code, s->managed != NULL ? &s->own : NULL, text, TEXT);
	free(s->more);
	s->more = (int64_t *)text;
	return code;
}

int usmb_dl_slot_import(uintptr_t slot, uintptr_t managed, int versioned)
{
	usmb_dl_slot *s = (usmb_dl_slot *)slot;
	usmb_dl_tensor *t = &s->own;
	int64_t *dims = s->dims;
	int rc;

	s->managed = (void *)managed;
	s->versioned = versioned != 0;
	s->more = NULL;
	rc = usmb_dl_read_fields(s->managed, versioned, t, &s->flags, &s->version);
	if (rc != USMB_DL_OK) return explain_in(s, rc);
	if (t->ndim > USMB_DL_SLOT_NDIM && t->ndim <= USMB_DL_MAX_NDIM) {
		dims = s->more = malloc(2 * sizeof *dims * (size_t)t->ndim);
		if (dims == NULL) return USMB_DL_ENOMEM;
	}
	rc = usmb_dl_read_dims(t, s->flags, dims, dims + t->ndim, &s->span);
	if (rc != USMB_DL_OK) return explain_in(s, rc);
	s->has_strides = t->strides != NULL;
	t->strides = dims + t->ndim;
	if (t->ndim == 0) t->shape = t->strides = NULL;
	s->t = t;
	s->owner = usmb_dl_owner(s->managed, versioned, &s->drop);
	make_live(s);
	return USMB_DL_OK;
}

int usmb_dl_slot_export(uintptr_t slot, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                        int versioned, uintptr_t drop, uintptr_t ctx)
{
	usmb_dl_slot *s = (usmb_dl_slot *)slot;
	usmb_dl_tensor view = from_parts(parts, shape, strides);
	void *managed;
	int rc;

	/* The check also gives the span; usmb_dl_export need not repeat it. */
	rc = usmb_dl_check(&view, parts->flags, NULL, &s->span);
	if (rc == USMB_DL_OK && parts->device.type != USMB_DL_ONEAPI && usmb_dl_device_name(parts->device.type) == NULL)
		rc = USMB_DL_EDEVICE;
	if (rc == USMB_DL_OK)
		rc = usmb_dl_export(&view, parts->flags | USMB_DL_EXPORT_CHECKED, versioned, (usmb_drop_fn)drop,
		                    (void *)ctx, &managed);
	if (rc != USMB_DL_OK) return rc;
	s->managed = managed;
	s->more = NULL;
	s->versioned = versioned != 0;
	s->flags = versioned ? parts->flags & USMB_DL_FLAGS_KNOWN : 0;
	s->version = versioned ? (usmb_dl_version){USMB_DL_MAJOR, USMB_DL_MINOR} : (usmb_dl_version){0, 0};
	s->t = versioned ? &((usmb_dl_versioned *)managed)->t : &((usmb_dl_managed *)managed)->t;
	s->has_strides = parts->ndim > 0;
	if (s->span.nelem == 0) s->span.first = s->t->data;
	s->drop = (usmb_drop_fn)drop;
	s->owner = (void *)ctx;
	make_live(s);
	return USMB_DL_OK;
}

void usmb_dl_slot_delete(uintptr_t managed, int versioned, uintptr_t more)
{
	if (more != 0) free((void *)more);
	usmb_dl_delete((void *)managed, versioned);
}

void usmb_dl_slot_free(uintptr_t more)
{
	free((void *)more);
}

int usmb_dl_parts_check(uint64_t *out_span, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides)
{
	usmb_dl_tensor view = from_parts(parts, shape, strides);

	return usmb_dl_check(&view, parts->flags, NULL, (usmb_dl_span *)out_span);
}

void usmb_dl_parts_explain(int code, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                           char *buf, size_t n)
{
	usmb_dl_tensor view = from_parts(parts, shape, strides);

	usmb_dl_explain(code, &view, buf, n);
}
