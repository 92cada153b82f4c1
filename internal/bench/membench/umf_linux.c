/* Loads libumf.so and creates pools over its provider of system memory, or over a provider in this file that
 * counts and has no memory. */
#include "umf.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static int usmb_umf_symbol(void *lib, const char *name, void **to, char *err, size_t n)
{
	*to = dlsym(lib, name);
	if (*to == NULL) snprintf(err, n, "the library has no function %s", name);
	return *to != NULL;
}

usmb_umf *usmb_umf_open(const char *path, char *err, size_t n)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		snprintf(err, n, "%s", dlerror());
		return NULL;
	}
	usmb_umf *u = calloc(1, sizeof *u);
	if (u == NULL) {
		snprintf(err, n, "out of memory");
		return NULL;
	}
	const struct {
		const char *name;
		void **to;
	} wanted[] = {
	        {"umfMemoryProviderCreate", (void **)&u->provider_create},
	        {"umfMemoryProviderDestroy", (void **)&u->provider_destroy},
	        {"umfPoolCreate", (void **)&u->pool_create},
	        {"umfPoolDestroy", (void **)&u->pool_destroy},
	        {"umfPoolMalloc", (void **)&u->pool_malloc},
	        {"umfPoolFree", (void **)&u->pool_free},
	        {"umfOsMemoryProviderParamsCreate", (void **)&u->os_params_create},
	        {"umfOsMemoryProviderParamsDestroy", (void **)&u->os_params_destroy},
	        {"umfOsMemoryProviderOps", (void **)&u->os_ops},
	        {"umfDisjointPoolParamsCreate", (void **)&u->disjoint_params_create},
	        {"umfDisjointPoolParamsDestroy", (void **)&u->disjoint_params_destroy},
	        {"umfDisjointPoolParamsSetSlabMinSize", (void **)&u->disjoint_set_slab_min_size},
	        {"umfDisjointPoolParamsSetMaxPoolableSize", (void **)&u->disjoint_set_max_poolable_size},
	        {"umfDisjointPoolParamsSetCapacity", (void **)&u->disjoint_set_capacity},
	        {"umfDisjointPoolParamsSetMinBucketSize", (void **)&u->disjoint_set_min_bucket_size},
	        {"umfDisjointPoolOps", (void **)&u->disjoint_ops},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		if (!usmb_umf_symbol(lib, wanted[i].name, wanted[i].to, err, n)) {
			free(u);
			return NULL;
		}
	}
	return u;
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

static int make_provider(usmb_umf_pool *p, int provider)
{
	usmb_umf *u = p->lib;
	if (provider == USMB_UMF_COUNTING) return u->provider_create(&counting_ops, p, &p->provider);
	void *params = NULL;
	int rc = u->os_params_create(&params);
	if (rc != 0) return rc;
	rc = u->provider_create(u->os_ops(), params, &p->provider);
	u->os_params_destroy(params);
	return rc;
}

static int make_disjoint(usmb_umf_pool *p, size_t slab_min, size_t max_poolable, size_t capacity, size_t min_bucket)
{
	usmb_umf *u = p->lib;
	void *params = NULL;
	int rc = u->disjoint_params_create(&params);
	if (rc != 0) return rc;
	if ((rc = u->disjoint_set_slab_min_size(params, slab_min)) == 0 &&
	    (rc = u->disjoint_set_max_poolable_size(params, max_poolable)) == 0 &&
	    (rc = u->disjoint_set_capacity(params, capacity)) == 0 &&
	    (rc = u->disjoint_set_min_bucket_size(params, min_bucket)) == 0)
		rc = u->pool_create(u->disjoint_ops(), p->provider, params, 0, &p->pool);
	u->disjoint_params_destroy(params);
	return rc;
}

usmb_umf_pool *usmb_umf_pool_new(usmb_umf *lib, int provider, size_t slab_min, size_t max_poolable, size_t capacity,
                                 size_t min_bucket, int *rc)
{
	usmb_umf_pool *p = calloc(1, sizeof *p);
	if (p == NULL) {
		*rc = 1;
		return NULL;
	}
	p->lib = lib;
	p->next = (uint64_t)1 << 44;
	*rc = make_provider(p, provider);
	if (*rc == 0) {
		*rc = make_disjoint(p, slab_min, max_poolable, capacity, min_bucket);
		if (*rc == 0) return p;
		lib->provider_destroy(p->provider);
	}
	free(p);
	return NULL;
}

int usmb_umf_pool_delete(usmb_umf_pool *p)
{
	int rc = p->lib->pool_destroy(p->pool);
	if (rc == 0) rc = p->lib->provider_destroy(p->provider);
	free(p);
	return rc;
}
