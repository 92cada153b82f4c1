/* The peer's half of the measurements: the same work in C on a UMF pool, or on
 * malloc when the pool is NULL, or on raw SYCL memory. Results are nanoseconds
 * for the whole call, -1 when an allocation failed. */
#ifndef USMB_MEMBENCH_LOOPS_H
#define USMB_MEMBENCH_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "umf.h"

int64_t usmb_bench_one_size(usmb_umf_pool *p, size_t size, size_t rounds);
/* Replaces slots[where[i]] by a block of sizes[i] bytes, for each i. */
int64_t usmb_bench_replace(usmb_umf_pool *p, void **slots, const uint32_t *where, const uint32_t *sizes, size_t n);
int64_t usmb_bench_replace_threads(usmb_umf_pool *p, void **slots, size_t nslots, const uint32_t *where,
                                   const uint32_t *sizes, size_t n, int threads);
/* Frees the blocks in the slots. */
void usmb_bench_clear(usmb_umf_pool *p, void **slots, size_t n);
/* count blocks of one size, all live, then all freed; rounds times. */
int64_t usmb_bench_batch(usmb_umf_pool *p, size_t size, size_t count, size_t rounds);
/* A script of steps: sizes[i] > 0 allocates into which[i], 0 frees it. */
int64_t usmb_bench_script(usmb_umf_pool *p, void **slots, const uint32_t *which, const uint64_t *sizes, size_t n);
/* One thread allocates, another frees, in batches of 100. */
int64_t usmb_bench_handover(usmb_umf_pool *p, size_t size, size_t batches);
/* Raw unified shared memory through the C library's shim. */
int64_t usmb_bench_sycl(void *queue, void *context, uint32_t kinds, int kind, size_t size, size_t rounds);

#endif
