/* The functions of libumf.so that this package uses, resolved at run time. The prototypes
 * are those of UMF 1.2's public headers. A result of 0 means success. */
#ifndef USMB_UMF_H
#define USMB_UMF_H

#include <stddef.h>
#include <stdint.h>

typedef struct usmb_umf {
	int (*provider_create)(const void *ops, const void *params, void **provider);
	int (*provider_destroy)(void *provider);
	int (*pool_create)(const void *ops, void *provider, const void *params, int flags, void **pool);
	int (*pool_destroy)(void *pool);
	void *(*pool_malloc)(void *pool, size_t size);
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
} usmb_umf;

/* Loads the library, which stays loaded. On failure returns NULL and writes the reason to err. */
usmb_umf *usmb_umf_open(const char *path, char *err, size_t n);

enum { USMB_UMF_OS = 0, USMB_UMF_COUNTING = 1 };

typedef struct usmb_umf_pool {
	void *pool, *provider;
	usmb_umf *lib;
	/* Counts of the counting provider, which returns addresses without memory. */
	_Atomic int64_t bytes, peak;
	_Atomic uint64_t next;
} usmb_umf_pool;

/* Creates a disjoint pool. On failure returns NULL and stores UMF's code in *rc. */
usmb_umf_pool *usmb_umf_pool_new(usmb_umf *lib, int provider, size_t slab_min, size_t max_poolable, size_t capacity,
                                 size_t min_bucket, int *rc);
int usmb_umf_pool_delete(usmb_umf_pool *p);

#endif
