/* The functions of libumf.so that are used, looked up at run time. Prototypes
 * follow UMF 1.2's public headers; results are 0 for success. */
#ifndef USMB_UMF_H
#define USMB_UMF_H

#include <stddef.h>
#include <stdint.h>

typedef struct usmb_umf {
	uint32_t (*version)(void);
	int (*provider_create)(const void *ops, const void *params, void **provider);
	int (*provider_destroy)(void *provider);
	int (*pool_create)(const void *ops, void *provider, const void *params, int flags, void **pool);
	int (*pool_destroy)(void *pool);
	void *(*pool_malloc)(void *pool, size_t size);
	void *(*pool_aligned_malloc)(void *pool, size_t size, size_t align);
	int (*pool_free)(void *pool, void *p);
	int (*os_params_create)(void **params);
	int (*os_params_destroy)(void *params);
	const void *(*os_ops)(void);
	int (*disjoint_params_create)(void **params);
	int (*disjoint_params_destroy)(void *params);
	int (*disjoint_set_slab_min_size)(void *params, size_t n);
	int (*disjoint_set_max_poolable_size)(void *params, size_t n);
	int (*disjoint_set_capacity)(void *params, size_t n);
	int (*disjoint_set_min_bucket_size)(void *params, size_t n);
	const void *(*disjoint_ops)(void);
	const void *(*scalable_ops)(void);
	struct usmb_umf *next; /* tables live as long as the process */
} usmb_umf;

/* Loads the library; NULL with a reason in err. */
usmb_umf *usmb_umf_open(const char *path, char *err, size_t n);

enum { USMB_UMF_OS = 0, USMB_UMF_COUNTING = 1 };

typedef struct usmb_umf_pool {
	void *pool, *provider;
	usmb_umf *lib;
	/* What the counting provider gave: addresses with no memory behind them. */
	_Atomic int64_t bytes, peak, calls;
	_Atomic uint64_t next;
} usmb_umf_pool;

/* kind 0: disjoint, 1: scalable. NULL on failure, with the code in *rc. */
usmb_umf_pool *usmb_umf_pool_new(usmb_umf *lib, int kind, int provider, size_t slab_min, size_t max_poolable,
                                 size_t capacity, size_t min_bucket, int *rc);
int usmb_umf_pool_delete(usmb_umf_pool *p);

#endif
