/* Platforms, devices, selectors, contexts and queues. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct vector {
	enum sort sort;
	size_t n;
	void *objects[MAX_ROOTS];
} vector;

static const char *text(const char *s)
{
	live_add(TEXT, 1);
	return strdup(s);
}
void DPCTLCString_Delete(const char *s)
{
	free((void *)s);
	live_add(TEXT, -1);
}
const char *DPCTLService_GetDPCPPVersion(void)
{
	return text("fake 1.0");
}

void *vector_of(enum sort sort, void **objects, size_t n)
{
	vector *v = zeroed(sizeof *v);

	v->sort = sort;
	v->n = n;
	memcpy(v->objects, objects, n * sizeof *objects);
	return handle_new(VECTOR, v);
}
size_t DPCTLDeviceVector_Size(void *v)
{
	return ((vector *)handle_object(VECTOR, v))->n;
}
void *DPCTLDeviceVector_GetAt(void *h, size_t i)
{
	vector *v = handle_object(VECTOR, h);

	if (fake_entry(__func__) || i >= v->n) return NULL;
	return handle_new(v->sort, v->objects[i]);
}
void DPCTLDeviceVector_Delete(void *v)
{
	free(handle_object(VECTOR, v));
	handle_delete(VECTOR, v);
}
void *DPCTLDeviceVector_CreateFromArray(size_t n, void **devices)
{
	void *objects[MAX_ROOTS];

	if (fake_entry(__func__) || n > MAX_ROOTS) return NULL;
	for (size_t i = 0; i < n; i++) objects[i] = handle_object(DEVICE, devices[i]);
	return vector_of(DEVICE, objects, n);
}

/* Does a device match "backend|type" bits, 0 meaning any? */
static bool matches(const device *d, int id)
{
	int backends = id & (((1 << 5) - 1) << 16), types = id & ((1 << 6) - 1);

	return (backends == 0 || (backends & d->platform->backend)) && (types == 0 || (types & d->type));
}
void *DPCTLDeviceMgr_GetDevices(int id)
{
	void *found[MAX_ROOTS];
	size_t n = 0;

	machine_init();
	if (fake_entry(__func__)) return NULL;
	for (size_t i = 0; i < fake_nroots; i++)
		if (matches(fake_roots[i], id)) found[n++] = fake_roots[i];
	return vector_of(DEVICE, found, n);
}
int DPCTLDeviceMgr_GetPositionInDevices(void *h, int id)
{
	device *d = handle_object(DEVICE, h);
	int at = 0;

	if (fake_entry(__func__)) return -1;
	for (size_t i = 0; i < fake_nroots; i++) {
		if (fake_roots[i] == d) return matches(d, id) ? at : -1;
		at += matches(fake_roots[i], id);
	}
	return -1;
}
void *DPCTLDeviceMgr_GetCachedContext(void *h)
{
	device *d = handle_object(DEVICE, h);

	return fake_entry(__func__) || d->parent != NULL ? NULL : handle_new(CONTEXT, d->platform->default_context);
}
void *DPCTLDevice_Create(void)
{
	machine_init();
	if (fake_entry(__func__) || fake_nroots == 0) return NULL;
	for (size_t i = 0; i < fake_nroots; i++)
		if (fake_roots[i]->type == 1 << 4) return handle_new(DEVICE, fake_roots[i]);
	return handle_new(DEVICE, fake_roots[0]);
}

/* Selectors: the first root device that a "backend:type:number" list allows. */
static int bits_of(const char *word)
{
	static const struct {
		const char *word;
		int bits;
	} words[] = {{"cuda", 1 << 16},  {"level_zero", 1 << 17}, {"opencl", 1 << 18}, {"hip", 1 << 19},
	             {"accelerator", 1}, {"cpu", 1 << 2},         {"gpu", 1 << 4}};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcasecmp(word, words[i].word) == 0) return words[i].bits;
	return 0;
}
static device *select_one(char *term)
{
	int id = 0;
	long number = -1, seen = 0;

	for (char *field; (field = strsep(&term, ":")) != NULL;) {
		if (bits_of(field) != 0)
			id |= bits_of(field);
		else
			number = strtol(field, NULL, 10);
	}
	for (size_t i = 0; i < fake_nroots; i++)
		if (matches(fake_roots[i], id) && (number < 0 || seen++ == number)) return fake_roots[i];
	return NULL;
}
void *DPCTLFilterSelector_Create(const char *filter)
{
	return fake_entry(__func__) ? NULL : handle_new(SELECTOR, strdup(filter));
}
void DPCTLDeviceSelector_Delete(void *s)
{
	free(handle_object(SELECTOR, s));
	handle_delete(SELECTOR, s);
}
void *DPCTLDevice_CreateFromSelector(void *s)
{
	char *copy = strdup(handle_object(SELECTOR, s)), *rest = copy, *term;
	device *d = NULL;

	machine_init();
	if (!fake_entry(__func__))
		while (d == NULL && (term = strsep(&rest, ",")) != NULL) d = select_one(term);
	free(copy);
	return d != NULL ? handle_new(DEVICE, d) : NULL;
}

#define COPY_DELETE(sort, copy, delete) \
	void *copy(void *h) \
	{ \
		void *o = handle_object(sort, h); \
		return fake_entry(#copy) ? NULL : handle_new(sort, o); \
	} \
	void delete (void *h) \
	{ \
		handle_delete(sort, h); \
	}
COPY_DELETE(DEVICE, DPCTLDevice_Copy, DPCTLDevice_Delete)
COPY_DELETE(CONTEXT, DPCTLContext_Copy, DPCTLContext_Delete)
COPY_DELETE(QUEUE, DPCTLQueue_Copy, DPCTLQueue_Delete)
void DPCTLPlatform_Delete(void *h)
{
	handle_delete(PLATFORM, h);
}

#define IDENTITY(sort, equal, hash) \
	bool equal(void *a, void *b) \
	{ \
		return handle_object(sort, a) == handle_object(sort, b); \
	} \
	size_t hash(void *h) \
	{ \
		return (size_t)handle_object(sort, h); \
	}
IDENTITY(PLATFORM, DPCTLPlatform_AreEq, DPCTLPlatform_Hash)
IDENTITY(DEVICE, DPCTLDevice_AreEq, DPCTLDevice_Hash)
IDENTITY(CONTEXT, DPCTLContext_AreEq, DPCTLContext_Hash)
IDENTITY(QUEUE, DPCTLQueue_AreEq, DPCTLQueue_Hash)

#define DEV(h) ((device *)handle_object(DEVICE, h))
int DPCTLDevice_GetBackend(void *h)
{
	return DEV(h)->platform->backend;
}
int DPCTLDevice_GetDeviceType(void *h)
{
	return fake_entry(__func__) ? 0 : DEV(h)->type;
}
const char *DPCTLDevice_GetName(void *h)
{
	return fake_entry(__func__) ? NULL : text(DEV(h)->name);
}
const char *DPCTLDevice_GetVendor(void *h)
{
	return DEV(h) ? text("Fake vendor") : NULL;
}
const char *DPCTLDevice_GetDriverVersion(void *h)
{
	return DEV(h) ? text("1.2.3") : NULL;
}
size_t DPCTLDevice_GetGlobalMemSize(void *h)
{
	return DEV(h)->mem;
}
size_t DPCTLDevice_GetMaxMemAllocSize(void *h)
{
	return DEV(h)->mem;
}
uint32_t DPCTLDevice_GetMaxComputeUnits(void *h)
{
	return DEV(h)->units;
}
uint32_t DPCTLDevice_GetPartitionMaxSubDevices(void *h)
{
	return DEV(h)->units;
}
void *DPCTLDevice_GetPlatform(void *h)
{
	return fake_entry(__func__) ? NULL : handle_new(PLATFORM, DEV(h)->platform);
}
void *DPCTLDevice_GetParentDevice(void *h)
{
	return DEV(h)->parent != NULL ? handle_new(DEVICE, DEV(h)->parent) : NULL;
}
bool DPCTLDevice_HasAspect(void *h, int aspect)
{
	if (fake_entry(__func__)) return false;
	if (aspect == 6) return !(DEV(h)->kinds >> FAKE_NO_DOUBLE & 1);
	if (aspect == 22) return DEV(h)->kinds >> FAKE_IPC & 1;
	return aspect >= 12 && aspect <= 14 && (DEV(h)->kinds >> (aspect == 12 ? 1 : aspect == 13 ? 3 : 2) & 1);
}

/* Parts of counts[i] units each; they live for the process, like real ones do
 * while their parent does. */
static void *split(device *d, const size_t *counts, size_t n)
{
	void *parts[MAX_ROOTS];

	for (size_t i = 0; i < n; i++) {
		device *part = keep(sizeof *part);

		*part = *d;
		part->parent = d;
		part->ntiles = 0;
		part->units = (uint32_t)counts[i];
		parts[i] = part;
	}
	return vector_of(DEVICE, parts, n);
}
void *DPCTLDevice_CreateSubDevicesEqually(void *h, size_t units)
{
	device *d = DEV(h);
	size_t counts[MAX_ROOTS], n = d->units / units;

	if (fake_entry(__func__) || n == 0 || n > MAX_ROOTS) return NULL;
	for (size_t i = 0; i < n; i++) counts[i] = units;
	return split(d, counts, n);
}
void *DPCTLDevice_CreateSubDevicesByCounts(void *h, size_t *counts, size_t n)
{
	return fake_entry(__func__) || n > MAX_ROOTS ? NULL : split(DEV(h), counts, n);
}
void *DPCTLDevice_CreateSubDevicesByAffinity(void *h, int domain)
{
	device *d = DEV(h);

	(void)domain;
	return fake_entry(__func__) || d->ntiles == 0 ? NULL : vector_of(DEVICE, (void **)d->tiles, d->ntiles);
}

#define PLAT(h) ((platform *)handle_object(PLATFORM, h))
const char *DPCTLPlatform_GetName(void *h)
{
	return text(PLAT(h)->name);
}
const char *DPCTLPlatform_GetVendor(void *h)
{
	return PLAT(h) ? text("Fake vendor") : NULL;
}
const char *DPCTLPlatform_GetVersion(void *h)
{
	return PLAT(h) ? text("Fake 3.0") : NULL;
}
int DPCTLPlatform_GetBackend(void *h)
{
	return PLAT(h)->backend;
}
void *DPCTLPlatform_GetDefaultContext(void *h)
{
	return handle_new(CONTEXT, PLAT(h)->default_context);
}

static void *context_new(device **devices, size_t n)
{
	context *c = keep(sizeof *c);

	for (size_t i = 0; i < n && i < MAX_CONTEXT; i++) {
		if (devices[i]->platform != devices[0]->platform) return NULL;
		c->devices[c->n++] = devices[i];
	}
	return handle_new(CONTEXT, c);
}
void *DPCTLContext_Create(void *h, handler_fn *handler, int properties)
{
	device *d = DEV(h);

	(void)handler, (void)properties;
	return fake_entry(__func__) ? NULL : context_new(&d, 1);
}
void *DPCTLContext_CreateFromDevices(void *h, handler_fn *handler, int properties)
{
	vector *v = handle_object(VECTOR, h);

	(void)handler, (void)properties;
	return fake_entry(__func__) ? NULL : context_new((device **)v->objects, v->n);
}
void *DPCTLContext_GetDevices(void *h)
{
	context *c = handle_object(CONTEXT, h);

	return fake_entry(__func__) ? NULL : vector_of(DEVICE, (void **)c->devices, c->n);
}

/* A queue may be on a device of its context, or on a part of one. */
void *DPCTLQueue_Create(void *ch, void *dh, handler_fn *handler, int properties)
{
	context *c = handle_object(CONTEXT, ch);
	device *d = DEV(dh), *root = d;
	bool member = false;
	queue *q;

	if (fake_entry(__func__)) return NULL;
	for (; root != NULL && !member; root = root->parent)
		for (size_t i = 0; i < c->n; i++) member |= c->devices[i] == root;
	if (!member) return NULL;
	q = keep(sizeof *q);
	*q = (queue){.ctx = c, .dev = d, .handler = handler, .profiling = properties & 1, .in_order = properties & 2};
	return handle_new(QUEUE, q);
}
#define QUE(h) ((queue *)handle_object(QUEUE, h))
void *DPCTLQueue_GetContext(void *h)
{
	return fake_entry(__func__) ? NULL : handle_new(CONTEXT, QUE(h)->ctx);
}
void *DPCTLQueue_GetDevice(void *h)
{
	return fake_entry(__func__) ? NULL : handle_new(DEVICE, QUE(h)->dev);
}
bool DPCTLQueue_IsInOrder(void *h)
{
	return QUE(h)->in_order;
}
bool DPCTLQueue_HasEnableProfiling(void *h)
{
	return QUE(h)->profiling;
}
