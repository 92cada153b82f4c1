/* DLPack tensors: building, reading, error texts and deletion, of valid tensors and of random contents. */
#include "drive.h"
#include "usmb_dl_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

static int64_t upto(int64_t n)
{
	return (int64_t)(draw(&state) % (uint64_t)n);
}

static long drops;

static void drop(void *owner)
{
	CHECK(*(char *)owner == 'o');
	__atomic_fetch_add(&drops, 1, __ATOMIC_RELAXED);
}

/* A tensor whose shape and strides are allocations of exactly ndim numbers. */
typedef struct {
	usmb_dl_tensor t;
	uint64_t flags;
} view;

static int64_t extreme(void)
{
	static const int64_t known[] = {0, 1, -1, 2, INT64_MAX, INT64_MIN, INT64_MAX / 2, 1 << 30, -(1 << 30), 3};

	return upto(3) == 0 ? (int64_t)draw(&state) : known[upto(10)];
}

static int64_t *numbers(int32_t n, int wild)
{
	int64_t *v = malloc((size_t)n * sizeof *v);

	CHECK(v != NULL); /* malloc(0) returns a pointer */
	for (int32_t i = 0; i < n; i++) v[i] = wild && upto(4) == 0 ? extreme() : upto(4);
	return v;
}

static usmb_dl_dtype dtype(int wild)
{
	static const usmb_dl_dtype sound[] = {{0, 8, 1}, {0, 64, 1}, {2, 32, 1}, {2, 64, 1}, {5, 128, 1},
	                                      {6, 8, 1}, {17, 4, 1}, {15, 6, 1}, {1, 1, 1},  {4, 16, 1}};

	if (!wild || upto(4) != 0) return sound[upto(10)];
	return (usmb_dl_dtype){(uint8_t)upto(256), (uint8_t)upto(256), (uint16_t)upto(3)};
}

static view make(int wild)
{
	static const int32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, 7, 64, 20};
	static const int32_t types[] = {1, 14, 4, 2, 10};
	view v = {.flags = (uint64_t)upto(8)};
	int32_t ndim = ranks[upto(10)], room = ndim;

	v.t.dtype = dtype(wild);
	v.t.device = (usmb_dl_device){types[upto(5)], (int32_t)upto(2)};
	v.t.data = (void *)(uintptr_t)(4096 + 64 * (uint64_t)upto(100));
	v.t.byte_offset = 16 * (uint64_t)upto(4);
	if (wild) {
		if (upto(8) == 0) v.t.data = (void *)(uintptr_t)extreme();
		if (upto(8) == 0) v.t.byte_offset = (uint64_t)extreme();
		if (upto(8) == 0) v.t.device = (usmb_dl_device){(int32_t)extreme(), (int32_t)extreme()};
		if (upto(8) == 0) v.flags = draw(&state);
		if (upto(8) == 0) {
			ndim = (int32_t)extreme();
			room = ndim < 0 || ndim > 64 ? 0 : ndim; /* of an invalid ndim nothing may be read */
		}
	}
	v.t.ndim = ndim;
	v.t.shape = wild && upto(8) == 0 ? NULL : numbers(room, wild);
	v.t.strides = upto(2) == 0 ? NULL : numbers(room, wild);
	return v;
}

static void end(view *v)
{
	free(v->t.shape);
	free(v->t.strides);
}

/* A message that fits, or does not: always ended within its memory. */
static void explain(int code, const usmb_dl_tensor *t, const usmb_dl_snapshot *s)
{
	size_t n = (size_t)upto(300);
	char *text = malloc(n > 0 ? n : 1);

	CHECK(text != NULL);
	if (s != NULL)
		usmb_dl_explain_snapshot(code, s, text, n);
	else
		usmb_dl_explain(code, t, text, n);
	CHECK(n == 0 || strlen(text) < n);
	free(text);
}

typedef struct {
	void *managed;
	int versioned;
} deletion;

static void *delete_elsewhere(void *arg)
{
	deletion *d = arg;

	usmb_dl_delete(d->managed, d->versioned);
	return NULL;
}

static void delete (void *managed, int versioned)
{
	deletion d = {managed, versioned};
	pthread_t t;

	if (upto(97) != 0) {
		usmb_dl_delete(managed, versioned);
		return;
	}
	CHECK(pthread_create(&t, NULL, delete_elsewhere, &d) == 0 && pthread_join(t, NULL) == 0);
}

static void built(void)
{
	view v = make(upto(2) == 0);
	int versioned = upto(2) == 0;
	char *owner = malloc(1);
	void *managed = NULL;
	long before = drops;
	usmb_dl_snapshot s;

	CHECK(owner != NULL);
	*owner = 'o';
	int rc = usmb_dl_export(&v.t, v.flags, versioned, drop, owner, &managed);
	explain(rc, &v.t, NULL);
	if (rc != USMB_DL_OK) {
		CHECK(managed == NULL && drops == before);
		free(owner);
		end(&v);
		return;
	}
	int32_t ndim = v.t.ndim;
	end(&v); /* the tensor has copies */
	CHECK(usmb_dl_is_own(managed, versioned) && !usmb_dl_is_handle_device(-1));
	CHECK(usmb_dl_read_managed(managed, versioned, &s) == USMB_DL_OK && s.t.ndim == ndim);
	for (int32_t i = 0; i < ndim; i++) CHECK(s.shape[i] == s.t.shape[i] && s.shape[i] >= 0);
	delete (managed, versioned);
	CHECK(drops == before + 1);
	free(owner);
}

static void deleted(usmb_dl_versioned *m)
{
	free(m);
	drops++;
}
static void deleted_legacy(usmb_dl_managed *m)
{
	free(m);
	drops++;
}

/* Reads tensors of a producer into a snapshot, and imports them like Go. */
static void taken(void)
{
	view v = make(1);
	int versioned = upto(2) == 0, other = versioned && upto(8) == 0;
	/* Of another major version only the version and the deleter may be read. */
	size_t size = other ? offsetof(usmb_dl_versioned, flags)
	                    : (versioned ? sizeof(usmb_dl_versioned) : sizeof(usmb_dl_managed));
	void *managed = malloc(size);
	usmb_dl_slot *slot = calloc(1, sizeof *slot);
	usmb_dl_snapshot *s = malloc(sizeof *s);
	long before = drops;

	CHECK(managed != NULL && slot != NULL && s != NULL);
	memset(managed, 0, size);
	if (versioned) {
		usmb_dl_versioned *m = managed;

		m->version = (usmb_dl_version){other ? (uint32_t)upto(9) * 2 : 1, (uint32_t)upto(9)};
		m->deleter = deleted;
		if (!other) {
			m->t = v.t;
			m->flags = v.flags;
		}
	} else {
		((usmb_dl_managed *)managed)->t = v.t;
		((usmb_dl_managed *)managed)->deleter = deleted_legacy;
	}
	int rc = usmb_dl_read_managed(managed, versioned, s);
	CHECK((rc == USMB_DL_EVERSION) == other);
	explain(rc, NULL, s);
	CHECK(usmb_dl_slot_import((uintptr_t)slot, (uintptr_t)managed, versioned) == rc);
	if (rc == USMB_DL_OK) {
		usmb_dl_span span;

		CHECK(usmb_dl_check(&s->t, s->flags, s->strides, &span) == USMB_DL_OK);
		CHECK(span.nelem == s->span.nelem && span.lo == s->span.lo && span.hi == s->span.hi);
		CHECK(slot->span.nelem == span.nelem && atomic_load(&slot->word) == 1);
		usmb_dl_slot_delete((uintptr_t)managed, versioned, (uintptr_t)slot->more);
	} else {
		usmb_dl_slot_free((uintptr_t)slot->more);
		delete (managed, versioned);
	}
	CHECK(drops == before + 1);
	free(slot);
	free(s);
	end(&v);
}

/* The functions that Go calls to export and to check. */
static void parts(void)
{
	view v = make(upto(2) == 0);
	usmb_dl_parts p = {(uintptr_t)v.t.data, v.t.device, v.t.ndim, v.t.dtype, v.t.byte_offset, v.flags};
	usmb_dl_slot *slot = calloc(1, sizeof *slot);
	char *owner = malloc(1), text[200];
	uint64_t span[sizeof(usmb_dl_span) / 8];
	long before = drops;

	CHECK(slot != NULL && owner != NULL);
	*owner = 'o';
	int versioned = upto(2) == 0, checked = usmb_dl_parts_check(span, &p, v.t.shape, v.t.strides);
	usmb_dl_parts_explain(checked, &p, v.t.shape, v.t.strides, text, sizeof text);
	int rc = usmb_dl_slot_export((uintptr_t)slot, &p, v.t.shape, v.t.strides, versioned, (uintptr_t)drop,
	                             (uintptr_t)owner);
	CHECK(rc != USMB_DL_OK || checked == USMB_DL_OK);
	if (rc == USMB_DL_OK) usmb_dl_slot_delete((uintptr_t)slot->managed, versioned, (uintptr_t)slot->more);
	CHECK(drops == before + (rc == USMB_DL_OK));
	free(slot);
	free(owner);
	end(&v);
}

/* Texts whose allocation ends with their last byte. */
static void names(void)
{
	for (unsigned code = 0; code < 256; code++)
		for (unsigned bits = 0; bits < 256; bits++) {
			usmb_dl_dtype d = {(uint8_t)code, (uint8_t)bits, 1}, back;
			const char *name = usmb_dl_dtype_name(d), *type = usmb_dl_dtype_typestr(d);

			if (name != NULL) CHECK(usmb_dl_dtype_by_name(name, &back) == 0 && back.bits == bits);
			if (type == NULL) continue;
			for (size_t n = 0; n <= strlen(type); n++) {
				char *part = malloc(n > 0 ? n : 1);

				CHECK(part != NULL);
				memcpy(part, type, n);
				int rc = usmb_dl_dtype_by_typestr(part, n, &back);
				CHECK(n < strlen(type) || (rc == 0 && back.bits == bits));
				free(part);
			}
		}
	for (int i = 0; i < 20000; i++) {
		size_t n = (size_t)upto(7);
		char *text = malloc(n + 1);
		usmb_dl_dtype d;

		CHECK(text != NULL);
		for (size_t k = 0; k < n; k++) text[k] = "<>=|fiubcVO0123456789\0\xff"[upto(24)];
		text[n] = 0;
		(void)usmb_dl_dtype_by_name(text, &d);
		char *exact = malloc(n > 0 ? n : 1);
		CHECK(exact != NULL);
		memcpy(exact, text, n);
		(void)usmb_dl_dtype_by_typestr(exact, n, &d);
		free(exact);
		free(text);
	}
	for (int32_t type = -2; type < 300; type++) (void)usmb_dl_device_name(type);
	for (int code = -3; code < USMB_DL_ECODES + 3; code++) explain(code, NULL, NULL);
}

/* Exchange tables of several versions. The allocation of one with another major version ends after its header. */
static void tables(void)
{
	usmb_dl_exchange_header *old = malloc(sizeof *old), *next = malloc(sizeof *next);
	usmb_dl_exchange_api *ours = calloc(1, sizeof *ours);

	CHECK(old != NULL && next != NULL && ours != NULL);
	*old = (usmb_dl_exchange_header){{0, 9}, NULL};
	ours->header = (usmb_dl_exchange_header){{1, 3}, old};
	*next = (usmb_dl_exchange_header){{2, 0}, &ours->header};
	CHECK(usmb_dl_exchange_find(next) == ours && usmb_dl_exchange_find(ours) == ours);
	CHECK(usmb_dl_exchange_find(old) == NULL && usmb_dl_exchange_find(NULL) == NULL);
	next->prev_api = next;
	CHECK(usmb_dl_exchange_find(next) == NULL);
	free(old);
	free(next);
	free(ours);
	for (uint32_t i = 0; i < 64; i++) {
		int versioned;
		int rc = usmb_dl_negotiate(i & 1, i >> 1 & 3, i >> 3 & 1, i >> 4, &versioned);
		CHECK(rc == USMB_DL_OK || !versioned);
	}
}

/* Each allocation fails in turn: the functions take no tensor and return an error. */
static void scarce(void)
{
	for (int32_t ndim = 0; ndim <= 64; ndim++)
		for (int versioned = 0; versioned < 2; versioned++)
			for (long n = 1; n <= 3; n++) {
				usmb_dl_tensor t = {(void *)(uintptr_t)4096, {1, 0}, ndim, {2, 32, 1}, NULL, NULL, 0};
				usmb_dl_slot *slot = calloc(1, sizeof *slot);
				void *keep[9], *managed = NULL;
				char owner = 'o';
				long before = drops;

				CHECK(slot != NULL);
				t.shape = numbers(ndim, 0);
				/* First use up the tensors that the thread caches. */
				for (int i = 0; i < 9; i++)
					CHECK(usmb_dl_export(&(usmb_dl_tensor){.device = {1, 0},
					                                       .dtype = {2, 32, 1},
					                                       .data = slot},
					                     0, 1, NULL, NULL, &keep[i]) == USMB_DL_OK);
				scarce_arm(n);
				int rc = usmb_dl_export(&t, 0, versioned, drop, &owner, &managed);
				long made = scarce_count();
				scarce_arm(0);
				for (int i = 0; i < 9; i++) usmb_dl_delete(keep[i], 1);
				CHECK(rc == (made >= n ? USMB_DL_ENOMEM : USMB_DL_OK) && drops == before);
				if (rc == USMB_DL_OK) {
					scarce_arm(n);
					rc = usmb_dl_slot_import((uintptr_t)slot, (uintptr_t)managed, versioned);
					scarce_arm(0);
					CHECK(rc == USMB_DL_OK || rc == USMB_DL_ENOMEM);
					usmb_dl_slot_free((uintptr_t)slot->more);
					usmb_dl_delete(managed, versioned);
					CHECK(drops == before + 1);
				}
				free(t.shape);
				free(slot);
			}
}

void drive_tensors(long rounds)
{
	names();
	tables();
	scarce();
	for (long i = 0; i < rounds; i++) {
		built();
		taken();
		parts();
	}
	usmb_dl_delete(NULL, 0);
	usmb_dl_delete(NULL, 1);
}
