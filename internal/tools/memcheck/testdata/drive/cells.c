/* Owner cells: creation, references from several threads, drop lists, a forked child. */
#include "drive.h"
#include "usmb_owner.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void usmb_owner_bind(usmb_control *control);
void usmb_chain_finish(usmb_cell *chain);
int usmb_owner_forked(void);

enum { CELLS = 4096, SLAB = 512, THREADS = 16, SHARED = 64 };

/* Reserves the range of cells, as Go does at the start of a program. */
static void reserve(void)
{
	usmb_control *c =
	        mmap(NULL, CELLS * sizeof(usmb_cell), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(c != MAP_FAILED);
	CHECK(mprotect(c, SLAB * sizeof(usmb_cell), PROT_READ | PROT_WRITE) == 0);
	c->limit = CELLS;
	c->slab = SLAB;
	c->layout = USMB_OWNER_LAYOUT;
	c->cell_bytes = sizeof(usmb_cell);
	c->waker.fd = -1;
	atomic_store(&c->bump, 1);
	atomic_store(&c->committed, SLAB);
	usmb_owner_bind(c);
}

static atomic_long ended;

static void end_memory(usmb_cell *cell)
{
	free(cell->data);
	atomic_fetch_add(&ended, 1);
}

static usmb_cell *cell_of(usmb_list *home, size_t size)
{
	usmb_cell *c = usmb_cell_new(home);

	CHECK(c != NULL);
	c->data = malloc(size);
	CHECK(c->data != NULL);
	c->size = size;
	c->at_zero = end_memory;
	return c;
}

/* Takes all cells, frees them, and takes them again: each has a new generation. */
static void use_up(void)
{
	static usmb_cell *held[CELLS];
	static uint32_t generation[CELLS];
	int n = 0;

	CHECK(usmb_cell_new(NULL) != NULL); /* stays in use, so that the others do not begin at number 1 */
	while ((held[n] = usmb_cell_new(NULL)) != NULL) {
		generation[n] = usmb_cell_generation(held[n]);
		n++;
	}
	CHECK(n == CELLS - 2);
	for (int i = 0; i < n; i++) {
		CHECK(usmb_cell_count(held[i]) == 1 && usmb_cell_at(usmb_cell_index(held[i])) == held[i]);
		CHECK(usmb_cell_try_retain(held[i], generation[i]));
		usmb_cell_drop(held[i]);
		usmb_cell_drop(held[i]);
		CHECK(!usmb_cell_try_retain(held[i], generation[i]));
		CHECK(usmb_cell_count(held[i]) == 0);
	}
	usmb_cell_drop(NULL);
}

static int keep_out(usmb_cell *dead)
{
	if (dead->requested != 7) return 0;
	usmb_cell_finish(dead);
	return 1;
}

static void lists(void)
{
	usmb_list *list = usmb_list_new();
	usmb_cell *c[10], *rest = NULL, *at;
	uint64_t woken = 0;
	long before = atomic_load(&ended);

	CHECK(list != NULL && usmb_list_empty(list) && usmb_list_take(list) == NULL);
	for (int i = 0; i < 10; i++) {
		c[i] = cell_of(list, (size_t)i + 1);
		if (i >= 5) { /* Go runs at_zero of these */
			free(c[i]->data);
			c[i]->at_zero = NULL;
		}
	}
	for (int i = 0; i < 10; i++) usmb_cell_drop(c[i]);
	CHECK(!usmb_list_empty(list));
	CHECK(usmb_list_run(list, &rest) == 5 && atomic_load(&ended) == before + 5);
	at = rest;
	for (int i = 5; i < 10; i++, at = at->next) CHECK(at != NULL && at == c[i]); /* oldest first */
	CHECK(at == NULL);
	usmb_chain_finish(rest);
	CHECK(usmb_list_run(list, NULL) == 0);

	/* A list with a filter, and with a waker that sleeps. */
	list->here = keep_out;
	list->own.fd = eventfd(0, EFD_NONBLOCK);
	list->waker = &list->own;
	CHECK(list->own.fd >= 0);
	c[0] = cell_of(list, 3);
	c[0]->requested = 7;
	c[1] = cell_of(list, 3);
	usmb_cell_drop(c[0]);
	CHECK(usmb_list_empty(list));
	atomic_store(&list->own.armed, 1);
	usmb_cell_drop(c[1]);
	CHECK(read(list->own.fd, &woken, sizeof woken) == sizeof woken && woken == 1);
	CHECK(atomic_load(&list->own.armed) == 0);
	CHECK(usmb_list_run(list, NULL) == 1);
	CHECK(read(list->own.fd, &woken, sizeof woken) < 0 && errno == EAGAIN);
	close(list->own.fd);
	usmb_cell_recycle((usmb_cell *)list);
}

static usmb_cell *shared[SHARED];
static long rounds_each;

/* Retains and drops shared cells, and creates and drops its own. */
static void *churn(void *seed)
{
	uint64_t s = (uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;

	for (long i = 0; i < rounds_each; i++) {
		usmb_cell *c = shared[draw(&s) % SHARED];

		usmb_cell_retain(c);
		CHECK(((char *)c->data)[draw(&s) % c->size] == 'x');
		usmb_cell_hold_pending(c);
		usmb_cell_let_pending(c);
		usmb_cell_drop(c);
		c = cell_of(i % 3 == 0 ? shared[0]->home : NULL, 1 + draw(&s) % 64);
		usmb_cell_drop(c);
		if (i % 64 == 0) usmb_list_run(shared[0]->home, NULL);
	}
	return NULL;
}

static void threads(long rounds)
{
	pthread_t t[THREADS];
	usmb_list *list = usmb_list_new();
	long before = atomic_load(&ended);

	rounds_each = rounds / THREADS + 1;
	for (int i = 0; i < SHARED; i++) {
		shared[i] = cell_of(list, 32);
		memset(shared[i]->data, 'x', 32);
	}
	for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, churn, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++) CHECK(pthread_join(t[i], NULL) == 0);
	for (int i = 0; i < SHARED; i++) {
		CHECK(usmb_cell_count(shared[i]) == 1);
		usmb_cell_drop(shared[i]);
	}
	usmb_list_run(list, NULL);
	CHECK(atomic_load(&ended) == before + SHARED + THREADS * rounds_each);
	usmb_cell_recycle((usmb_cell *)list);
}

static void forked(void)
{
	usmb_cell *c = cell_of(NULL, 8);
	int status = 0;
	pid_t child;

	CHECK(!usmb_owner_forked());
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		usmb_cell_drop(c);
		c = cell_of(NULL, 8);
		usmb_cell_drop(c);
		_exit(usmb_owner_forked() ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(usmb_cell_count(c) == 1);
	usmb_cell_drop(c);
}

void drive_cells(long rounds)
{
	CHECK(usmb_cell_new(NULL) == NULL && usmb_list_new() == NULL); /* the range is not reserved yet */
	reserve();
	use_up();
	lists();
	threads(rounds);
	forked();
}
