//go:build linux

/* What Go calls: one call per whole operation. */
#include <stdatomic.h>

#include "usmb_dl_internal.h"

static usmb_dl_tensor from_parts(const usmb_dl_parts *p, const int64_t *shape, const int64_t *strides)
{
	return (usmb_dl_tensor){(void *)p->data,  p->device,          p->ndim,       p->dtype,
	                        (int64_t *)shape, (int64_t *)strides, p->byte_offset};
}

static void fill_slot(usmb_dl_slot *slot, void *managed, int versioned, const usmb_dl_tensor *t, uint64_t flags)
{
	slot->managed = managed;
	slot->versioned = versioned != 0;
	slot->t = t;
	slot->flags = flags;
	slot->major = versioned ? ((usmb_dl_versioned *)managed)->version.major : 0;
	slot->minor = versioned ? ((usmb_dl_versioned *)managed)->version.minor : 0;
	/* Only the caller holds the slot now: a plain release store will do. */
	atomic_store_explicit(&slot->word, atomic_load_explicit(&slot->word, memory_order_relaxed) | 1,
	                      memory_order_release);
}

int usmb_dl_slot_import(uintptr_t slot, uintptr_t managed, int versioned)
{
	usmb_dl_slot *s = (usmb_dl_slot *)slot;
	const usmb_dl_tensor *t;
	uint64_t flags;
	int rc = usmb_dl_open((void *)managed, versioned, &t, &flags);

	if (rc == USMB_DL_OK) rc = usmb_dl_check(t, flags, NULL, &s->span);
	if (rc == USMB_DL_OK) fill_slot(s, (void *)managed, versioned, t, flags);
	return rc;
}

int usmb_dl_slot_export(uintptr_t slot, const usmb_dl_parts *parts, const int64_t *shape, const int64_t *strides,
                        int versioned, uintptr_t drop, uintptr_t ctx)
{
	usmb_dl_slot *s = (usmb_dl_slot *)slot;
	usmb_dl_tensor view = from_parts(parts, shape, strides);
	const usmb_dl_tensor *t;
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
	t = versioned ? &((usmb_dl_versioned *)managed)->t : &((usmb_dl_managed *)managed)->t;
	if (s->span.nelem == 0) s->span.first = t->data;
	fill_slot(s, managed, versioned, t, versioned ? parts->flags & USMB_DL_FLAGS_KNOWN : 0);
	return USMB_DL_OK;
}

void usmb_dl_slot_delete(uintptr_t managed, int versioned)
{
	usmb_dl_delete((void *)managed, versioned);
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
