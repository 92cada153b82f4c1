//go:build linux

/* What Go calls: one call per whole operation. */
#include <stdatomic.h>
#include <stdlib.h>

#include "usmb_dl_internal.h"

static usmb_dl_tensor from_parts(const usmb_dl_parts *p, const int64_t *shape, const int64_t *strides)
{
	return (usmb_dl_tensor){(void *)p->data,  p->device,          p->ndim,       p->dtype,
	                        (int64_t *)shape, (int64_t *)strides, p->byte_offset};
}

/* Only the caller holds the slot now: a plain release store will do. */
static void make_live(usmb_dl_slot *slot)
{
	atomic_store_explicit(&slot->word, atomic_load_explicit(&slot->word, memory_order_relaxed) | 1,
	                      memory_order_release);
}

/* Where the shape and strides of an imported tensor lie: OK or ENOMEM. */
static int keep_dims(usmb_dl_slot *slot, const usmb_dl_snapshot *s)
{
	int32_t ndim = s->t.ndim;
	int64_t *dims = slot->dims;

	slot->more = NULL;
	if (ndim > USMB_DL_SLOT_NDIM) dims = slot->more = malloc(2 * sizeof *dims * (size_t)ndim);
	if (dims == NULL) return USMB_DL_ENOMEM;
	for (int32_t i = 0; i < ndim; i++) {
		dims[i] = s->shape[i];
		dims[ndim + i] = s->strides[i];
	}
	slot->t = s->t;
	slot->t.shape = ndim > 0 ? dims : NULL;
	slot->t.strides = ndim > 0 ? dims + ndim : NULL;
	return USMB_DL_OK;
}

int usmb_dl_slot_import(uintptr_t slot, uintptr_t managed, int versioned)
{
	enum { TEXT = 512 };
	usmb_dl_slot *to = (usmb_dl_slot *)slot;
	usmb_dl_snapshot s;
	int rc = usmb_dl_read_managed((const void *)managed, versioned, &s);

	if (rc != USMB_DL_OK) {
		to->more = malloc(TEXT);
		if (to->more != NULL) usmb_dl_explain_snapshot(rc, &s, (char *)to->more, TEXT);
		return rc;
	}
	rc = keep_dims(to, &s);
	if (rc != USMB_DL_OK) return rc;
	to->managed = (void *)managed;
	to->versioned = versioned != 0;
	to->flags = s.flags;
	to->major = s.version.major;
	to->minor = s.version.minor;
	to->has_strides = s.t.strides != NULL;
	to->span = s.span;
	make_live(to);
	return USMB_DL_OK;
}

int usmb_dl_slot_export(uintptr_t slot, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                        int versioned, uintptr_t drop, uintptr_t ctx)
{
	usmb_dl_slot *s = (usmb_dl_slot *)slot;
	usmb_dl_tensor view = from_parts(parts, shape, strides);
	void *managed;
	int rc;

	/* Checked here for its span, so the builder need not do it again. */
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
	s->major = versioned ? USMB_DL_MAJOR : 0;
	s->minor = versioned ? USMB_DL_MINOR : 0;
	s->t = versioned ? ((usmb_dl_versioned *)managed)->t : ((usmb_dl_managed *)managed)->t;
	s->has_strides = 1;
	if (s->span.nelem == 0) s->span.first = s->t.data;
	make_live(s);
	return USMB_DL_OK;
}

void usmb_dl_slot_delete(uintptr_t managed, int versioned, uintptr_t more)
{
	free((void *)more);
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
