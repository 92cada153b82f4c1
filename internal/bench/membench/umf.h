/* The functions of libumf.so that this package uses, resolved at run time, with the prototypes of UMF 1.2's public
 * headers. A result of 0 means success. */
#ifndef USMB_UMF_H
#define USMB_UMF_H

#include <stddef.h>
#include <stdint.h>

#define USMB_UMF_FUNCTIONS(F) \
	F(int, umfMemoryProviderCreate, (const void *ops, const void *params, void **provider)) \
	F(int, umfMemoryProviderDestroy, (void *provider)) \
	F(int, umfPoolCreate, (const void *ops, void *provider, const void *params, int flags, void **pool)) \
	F(int, umfPoolDestroy, (void *pool)) \
	F(void *, umfPoolMalloc, (void *pool, size_t size)) \
	F(int, umfPoolFree, (void *pool, void *p)) \
	F(int, umfOsMemoryProviderParamsCreate, (void **params)) \
	F(int, umfOsMemoryProviderParamsDestroy, (void *params)) \
	F(const void *, umfOsMemoryProviderOps, (void)) \
	F(int, umfDisjointPoolParamsCreate, (void **params)) \
	F(int, umfDisjointPoolParamsDestroy, (void *params)) \
	F(int, umfDisjointPoolParamsSetSlabMinSize, (void *params, size_t n)) \
	F(int, umfDisjointPoolParamsSetMaxPoolableSize, (void *params, size_t n)) \
	F(int, umfDisjointPoolParamsSetCapacity, (void *params, size_t n)) \
	F(int, umfDisjointPoolParamsSetMinBucketSize, (void *params, size_t n)) \
	F(const void *, umfDisjointPoolOps, (void))

typedef struct usmb_umf {
#define F(result, name, params) result(*name) params;
	USMB_UMF_FUNCTIONS(F)
#undef F
} usmb_umf;

/* Loads the library, which stays loaded. On failure returns NULL and writes the reason to err. */
usmb_umf *usmb_umf_open(const char *path, char *err, size_t n);

/* The parameters of a disjoint pool. */
typedef struct usmb_umf_params {
	size_t slab_min_size, max_poolable_size, capacity, min_bucket_size;
	int address_only; /* the provider counts, and returns addresses without memory */
} usmb_umf_params;

typedef struct usmb_umf_pool {
	void *pool, *provider;
	usmb_umf *lib;
	/* Counts of the provider of addresses. */
	_Atomic int64_t bytes, peak;
	_Atomic uint64_t next;
} usmb_umf_pool;

/* Creates a disjoint pool of host memory, because UMF has no provider for SYCL. On failure returns NULL and stores
 * UMF's code in *rc. */
usmb_umf_pool *usmb_umf_pool_new(usmb_umf *lib, usmb_umf_params params, int *rc);
/* Destroys a pool without blocks in use. */
int usmb_umf_pool_delete(usmb_umf_pool *p);

#endif
