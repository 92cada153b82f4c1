/* C threads that make, retain and drop owner cells. */
#include "helpers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct job {
	usmb_cell **cells;
	size_t n;
	usmb_list *list;
	uint32_t seed;
	size_t done;
} job;

static void *drop_all(void *arg)
{
	job *j = arg;
	for (size_t i = 0; i < j->n; i++) usmb_cell_drop(j->cells[i]);
	return NULL;
}

int usmb_test_drop_on_threads(usmb_cell **cells, size_t n, int threads)
{
	pthread_t *t = calloc((size_t)threads, sizeof *t);
	job *jobs = calloc((size_t)threads, sizeof *jobs);
	int rc = t == NULL || jobs == NULL ? ENOMEM : 0;
	int started = 0;
	for (; rc == 0 && started < threads; started++) {
		size_t lo = n * (size_t)started / (size_t)threads;
		size_t hi = n * (size_t)(started + 1) / (size_t)threads;
		jobs[started] = (job){.cells = cells + lo, .n = hi - lo};
		rc = pthread_create(&t[started], NULL, drop_all, &jobs[started]);
		if (rc != 0) break;
	}
	for (int i = 0; i < started; i++) pthread_join(t[i], NULL);
	free(t);
	free(jobs);
	return rc;
}

static _Atomic int64_t usmb_test_zeros;

static void count_zero(usmb_cell *cell)
{
	atomic_fetch_add(&usmb_test_zeros, (int64_t)(intptr_t)cell->ctx);
}

int64_t usmb_test_zero_sum(void)
{
	return atomic_load(&usmb_test_zeros);
}

void *usmb_test_count_zero(void)
{
	return (void *)count_zero;
}

void usmb_test_run_list(usmb_list *list, size_t n)
{
	for (size_t done = 0; done < n; sched_yield()) done += usmb_list_run(list, NULL);
}

/* Makes, retains and drops cells in random order, 64 at a time. */
static void *churn(void *arg)
{
	job *j = arg;
	usmb_cell *held[64] = {0};
	uint32_t x = j->seed;
	for (size_t i = 0; i < j->n; i++) {
		x ^= x << 13, x ^= x >> 17, x ^= x << 5;
		size_t k = x % 64;
		if (held[k] != NULL) {
			usmb_cell_retain(held[k]);
			usmb_cell_drop(held[k]);
			usmb_cell_drop(held[k]);
		}
		held[k] = usmb_cell_new(j->list);
		if (held[k] == NULL) return NULL;
		held[k]->ctx = (void *)(intptr_t)1;
		if (x & 0x10000) held[k]->at_zero = count_zero;
		j->done++;
	}
	for (size_t k = 0; k < 64; k++) usmb_cell_drop(held[k]);
	return NULL;
}

size_t usmb_test_churn(usmb_list *list, size_t n, int threads)
{
	pthread_t t[16];
	job jobs[16];
	size_t done = 0;
	int started = 0;
	if (threads > 16) threads = 16;
	for (; started < threads; started++) {
		jobs[started] = (job){.list = list, .n = n, .seed = 2463534242u + (uint32_t)started * 7919u};
		if (pthread_create(&t[started], NULL, churn, &jobs[started]) != 0) break;
	}
	for (int i = 0; i < started; i++) {
		pthread_join(t[i], NULL);
		done += jobs[i].done;
	}
	return done;
}

int usmb_test_drop_in_fork(usmb_cell *cell)
{
	pid_t pid = fork();
	if (pid < 0) return -1;
	if (pid == 0) {
		/* The forked child of a threaded process may call only async-signal-safe functions. */
		uint32_t before = usmb_cell_count(cell);
		usmb_cell_drop(cell);
		usmb_list *list = usmb_list_new();
		usmb_cell *fresh = list == NULL ? NULL : usmb_cell_new(list);
		int ok = fresh != NULL && usmb_cell_count(cell) == before - 1;
		if (fresh != NULL) {
			usmb_cell_drop(fresh);
			ok = ok && usmb_list_run(list, NULL) == 1;
		}
		_exit(ok ? 0 : 1);
	}
	int status = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

usmb_test_layout usmb_test_offsets(void)
{
	usmb_test_layout l = {
	        .cell = {offsetof(usmb_cell, word),      offsetof(usmb_cell, next),
		         offsetof(usmb_cell, pending),   offsetof(usmb_cell, queue),
		         offsetof(usmb_cell, requested), offsetof(usmb_cell, private),
		         offsetof(usmb_cell, resource),  offsetof(usmb_cell, flags),
		         offsetof(usmb_cell, stack),     offsetof(usmb_cell, tag),
		         offsetof(usmb_cell, home),      offsetof(usmb_cell, at_zero),
		         offsetof(usmb_cell, data),      offsetof(usmb_cell, size),
		         offsetof(usmb_cell, place),     offsetof(usmb_cell, ctx),
		         offsetof(usmb_cell, block),     offsetof(usmb_cell, link),
		         offsetof(usmb_cell, magazine),  sizeof(usmb_cell)},
	        .list = {offsetof(usmb_list, word), offsetof(usmb_list, head), offsetof(usmb_list, waker),
		         offsetof(usmb_list, id), offsetof(usmb_list, own), sizeof(usmb_list)},
	        .control = {offsetof(usmb_control, free_head), offsetof(usmb_control, bump),
		            offsetof(usmb_control, committed), offsetof(usmb_control, limit),
		            offsetof(usmb_control, slab), offsetof(usmb_control, waker), offsetof(usmb_control, layout),
		            offsetof(usmb_control, cell_bytes), sizeof(usmb_control)},
	        .flags = {USMB_CELL_READONLY, USMB_CELL_EXPORTED, USMB_CELL_HOST_READABLE, USMB_CELL_FOREIGN,
		          USMB_CELL_QUEUED, USMB_CELL_PENDING_HELD, USMB_CELL_POISONED, USMB_CELL_CHARGED,
		          USMB_CELL_LENT, USMB_CELL_ASYNC, USMB_CELL_ON_QUEUES, USMB_CELL_ALIAS, USMB_CELL_FAILED,
		          USMB_CELL_CUDA, USMB_CELL_IMPORTED, USMB_CELL_USED},
	        .layout = USMB_OWNER_LAYOUT,
	};
	return l;
}
