/* The same work as in works.go, in C. */
#include "loops.h"
#include "usmb_sycl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#if defined(__GNUC__) && !defined(__clang__)
/* The caller owns the blocks in its slots; gcc's analyser reports them as leaks. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void *get(usmb_umf_pool *p, size_t size)
{
	return p != NULL ? p->lib->umfPoolMalloc(p->pool, size) : malloc(size);
}

static inline void put(usmb_umf_pool *p, void *m)
{
	if (p != NULL)
		p->lib->umfPoolFree(p->pool, m);
	else
		free(m);
}

int64_t usmb_bench_one_size(usmb_umf_pool *p, size_t size, size_t rounds)
{
	int64_t start = now();
	for (size_t i = 0; i < rounds; i++) {
		void *volatile m = get(p, size);
		if (m == NULL) return -1;
		put(p, m);
	}
	return now() - start;
}

typedef struct job {
	usmb_umf_pool *p;
	void **slots;
	const uint32_t *where, *sizes;
	size_t n;
	int64_t ns;
	pthread_barrier_t *start;
} job;

static void *replace(void *arg)
{
	job *j = arg;
	pthread_barrier_wait(j->start);
	j->ns = usmb_bench_replace(j->p, j->slots, j->where, j->sizes, j->n);
	return NULL;
}

int64_t usmb_bench_replace(usmb_umf_pool *p, void **slots, const uint32_t *where, const uint32_t *sizes, size_t n)
{
	int64_t start = now();
	for (size_t i = 0; i < n; i++) {
		void **slot = &slots[where[i]];
		if (*slot != NULL) put(p, *slot);
		*slot = get(p, sizes[i]);
		if (*slot == NULL) return -1;
	}
	return now() - start;
}

int64_t usmb_bench_replace_threads(usmb_umf_pool *p, void **slots, size_t nslots, const uint32_t *where,
                                   const uint32_t *sizes, size_t n, int threads)
{
	job jobs[16] = {0};
	pthread_t t[16];
	pthread_barrier_t start;
	int64_t longest = 0;
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		jobs[i] = (job){p, slots + nslots * (size_t)i, where, sizes, n, 0, &start};
		if (pthread_create(&t[i], NULL, replace, &jobs[i]) != 0) abort();
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		if (jobs[i].ns > longest) longest = jobs[i].ns;
	}
	pthread_barrier_destroy(&start);
	return longest;
}

void usmb_bench_clear(usmb_umf_pool *p, void **slots, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (slots[i] != NULL) put(p, slots[i]);
		slots[i] = NULL;
	}
}

int64_t usmb_bench_batch(usmb_umf_pool *p, size_t size, size_t count, size_t rounds)
{
	void **all = calloc(count, sizeof *all);
	if (all == NULL) return -1;
	int64_t start = now();
	for (size_t r = 0; r < rounds; r++) {
		for (size_t i = 0; i < count; i++) {
			if ((all[i] = get(p, size)) != NULL) continue;
			while (i > 0) put(p, all[--i]);
			free(all);
			return -1;
		}
		for (size_t i = 0; i < count; i++) put(p, all[i]);
	}
	int64_t ns = now() - start;
	free(all);
	return ns;
}

int64_t usmb_bench_script(usmb_umf_pool *p, void **slots, const uint32_t *which, const uint64_t *sizes, size_t n)
{
	int64_t start = now();
	for (size_t i = 0; i < n; i++) {
		if (sizes[i] > 0) {
			if ((slots[which[i]] = get(p, sizes[i])) == NULL) return -1;
		} else {
			put(p, slots[which[i]]);
			slots[which[i]] = NULL;
		}
	}
	return now() - start;
}

enum { BATCH = 100, RING = 64 };

typedef struct handover {
	usmb_umf_pool *p;
	size_t size, batches;
	_Atomic size_t made, taken;
	void *blocks[RING][BATCH];
} handover;

static void *produce(void *arg)
{
	handover *h = arg;
	for (size_t b = 0; b < h->batches; b++) {
		while (b - atomic_load(&h->taken) >= RING) sched_yield();
		for (int i = 0; i < BATCH; i++) h->blocks[b % RING][i] = get(h->p, h->size);
		atomic_store(&h->made, b + 1);
	}
	return NULL;
}

int64_t usmb_bench_handover(usmb_umf_pool *p, size_t size, size_t batches)
{
	handover *h = calloc(1, sizeof *h);
	if (h == NULL) return -1;
	h->p = p, h->size = size, h->batches = batches;
	int64_t start = now();
	pthread_t t;
	if (pthread_create(&t, NULL, produce, h) != 0) return -1;
	for (size_t b = 0; b < batches; b++) {
		while (atomic_load(&h->made) <= b) sched_yield();
		for (int i = 0; i < BATCH; i++) put(p, h->blocks[b % RING][i]);
		atomic_store(&h->taken, b + 1);
	}
	pthread_join(t, NULL);
	int64_t ns = now() - start;
	free(h);
	return ns;
}

int64_t usmb_bench_sycl(void *queue, void *context, uint32_t kinds, int kind, size_t size, size_t rounds)
{
	int64_t start = now();
	for (size_t i = 0; i < rounds; i++) {
		void *m = NULL;
		if (usmb_sycl_alloc(queue, kinds, kind, size, 256, &m) != 0) return -1;
		usmb_sycl_free(context, m);
	}
	return now() - start;
}
