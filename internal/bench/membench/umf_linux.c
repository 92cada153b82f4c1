/* Loads libumf.so and creates pools over its provider of system memory, or over a provider in this file that
 * counts and has no memory. */
#include "umf.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

usmb_umf *usmb_umf_open(const char *path, char *err, size_t n)
{
	static usmb_umf u;
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		snprintf(err, n, "%s", dlerror());
		return NULL;
	}
#define F(result, name, params) \
	if ((*(void **)(void *)&u.name = dlsym(lib, #name)) == NULL) { \
		snprintf(err, n, "%s has no function %s", path, #name); \
		return NULL; \
	}
	USMB_UMF_FUNCTIONS(F)
#undef F
	return &u;
}

/* The table of a provider's operations, version 1.0, which every 1.x accepts. */
typedef struct provider_ops {
	uint32_t version;
	int (*initialize)(const void *params, void **provider);
	int (*finalize)(void *provider);
	int (*alloc)(void *provider, size_t size, size_t align, void **p);
	int (*free)(void *provider, void *p, size_t size);
	int (*get_last_native_error)(void *provider, const char **message, int32_t *error);
	int (*get_recommended_page_size)(void *provider, size_t size, size_t *page);
	int (*get_min_page_size)(void *provider, const void *p, size_t *page);
	int (*get_name)(void *provider, const char **name);
	void *optional[16]; /* purge, merge, split, ipc, ctl: NULL */
} provider_ops;

static int counting_initialize(const void *params, void **provider)
{
	*provider = (void *)params;
	return 0;
}

static int counting_finalize(void *provider)
{
	(void)provider;
	return 0;
}

static int counting_alloc(void *provider, size_t size, size_t align, void **out)
{
	usmb_umf_pool *p = provider;
	if (align < 4096) align = 4096;
	uint64_t span = (size + 2 * align + 4095) & ~(uint64_t)4095;
	uint64_t at = atomic_fetch_add(&p->next, span);
	*out = (void *)((at + align - 1) & ~(uint64_t)(align - 1));
	int64_t now = atomic_fetch_add(&p->bytes, (int64_t)size) + (int64_t)size;
	int64_t peak = atomic_load(&p->peak);
	while (now > peak && !atomic_compare_exchange_weak(&p->peak, &peak, now));
	return 0;
}

static int counting_free(void *provider, void *p, size_t size)
{
	(void)p;
	atomic_fetch_sub(&((usmb_umf_pool *)provider)->bytes, (int64_t)size);
	return 0;
}

static int counting_error(void *provider, const char **message, int32_t *error)
{
	(void)provider;
	if (message != NULL) *message = "";
	if (error != NULL) *error = 0;
	return 0;
}

static int counting_page(void *provider, size_t size, size_t *page)
{
	(void)provider, (void)size;
	*page = 4096;
	return 0;
}

static int counting_min_page(void *provider, const void *p, size_t *page)
{
	(void)provider, (void)p;
	*page = 4096;
	return 0;
}

static int counting_name(void *provider, const char **name)
{
	(void)provider;
	*name = "counting";
	return 0;
}

static const provider_ops counting_ops = {
        .version = 1u << 16,
        .initialize = counting_initialize,
        .finalize = counting_finalize,
        .alloc = counting_alloc,
        .free = counting_free,
        .get_last_native_error = counting_error,
        .get_recommended_page_size = counting_page,
        .get_min_page_size = counting_min_page,
        .get_name = counting_name,
};

static int make_provider(usmb_umf_pool *p, int address_only)
{
	usmb_umf *u = p->lib;
	if (address_only) return u->umfMemoryProviderCreate(&counting_ops, p, &p->provider);
	void *params = NULL;
	int rc = u->umfOsMemoryProviderParamsCreate(&params);
	if (rc != 0) return rc;
	rc = u->umfMemoryProviderCreate(u->umfOsMemoryProviderOps(), params, &p->provider);
	u->umfOsMemoryProviderParamsDestroy(params);
	return rc;
}

static int make_disjoint(usmb_umf_pool *p, const usmb_umf_params *of)
{
	usmb_umf *u = p->lib;
	void *params = NULL;
	int rc = u->umfDisjointPoolParamsCreate(&params);
	if (rc != 0) return rc;
	if ((rc = u->umfDisjointPoolParamsSetSlabMinSize(params, of->slab_min_size)) == 0 &&
	    (rc = u->umfDisjointPoolParamsSetMaxPoolableSize(params, of->max_poolable_size)) == 0 &&
	    (rc = u->umfDisjointPoolParamsSetCapacity(params, of->capacity)) == 0 &&
	    (rc = u->umfDisjointPoolParamsSetMinBucketSize(params, of->min_bucket_size)) == 0)
		rc = u->umfPoolCreate(u->umfDisjointPoolOps(), p->provider, params, 0, &p->pool);
	u->umfDisjointPoolParamsDestroy(params);
	return rc;
}

usmb_umf_pool *usmb_umf_pool_new(usmb_umf *lib, usmb_umf_params params, int *rc)
{
	usmb_umf_pool *p = calloc(1, sizeof *p);
	if (p == NULL) {
		*rc = 1;
		return NULL;
	}
	p->lib = lib;
	p->next = (uint64_t)1 << 44;
	*rc = make_provider(p, params.address_only);
	if (*rc == 0) {
		*rc = make_disjoint(p, &params);
		if (*rc == 0) return p;
		lib->umfMemoryProviderDestroy(p->provider);
	}
	free(p);
	return NULL;
}

int usmb_umf_pool_delete(usmb_umf_pool *p)
{
	int rc = p->lib->umfPoolDestroy(p->pool);
	if (rc == 0) rc = p->lib->umfMemoryProviderDestroy(p->provider);
	free(p);
	return rc;
}
