/* Functions of the owner cell. alloc.go and list.go have the same functions in Go: change
 * both together. */
#include "usmb_owner.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

usmb_control *usmb_owner_control;

/* Set in forked children. There the eventfds still wake the parent's reapers, so waking is
 * disabled. Cells and lists work on the child's copy. */
static _Atomic int usmb_forked;

static void usmb_owner_in_child(void)
{
	atomic_store(&usmb_forked, 1);
}

void usmb_owner_bind(usmb_control *control)
{
	usmb_owner_control = control;
	pthread_atfork(NULL, NULL, usmb_owner_in_child);
}

/* Returns 1 in a process that was forked from the one that loaded this library. */
int usmb_owner_forked(void)
{
	return atomic_load(&usmb_forked);
}

static usmb_cell *usmb_pop_free(usmb_control *ctl)
{
	uint64_t head = atomic_load_explicit(&ctl->free_head, memory_order_acquire);
	while ((uint32_t)head != 0) {
		usmb_cell *cell = usmb_cell_at((uint32_t)head);
		/* Another thread may take the cell before the load of link. The tag in head then
		 * differs, and the exchange fails. */
		uint64_t next = ((head >> 32) + 1) << 32 | atomic_load_explicit(&cell->link, memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(&ctl->free_head, &head, next, memory_order_acq_rel,
		                                          memory_order_acquire))
			return cell;
	}
	return NULL;
}

/* Makes the next slab accessible. Several threads may commit the same slab: setting the same
 * protection twice is harmless. */
static int usmb_commit(usmb_control *ctl, uint32_t have)
{
	uint32_t want = ctl->limit - have < ctl->slab ? ctl->limit - have : ctl->slab;
	if (want == 0) return 0;
	if (mprotect(usmb_cell_at(have), (size_t)want * sizeof(usmb_cell), PROT_READ | PROT_WRITE) != 0) return 0;
	atomic_compare_exchange_strong(&ctl->committed, &have, have + want);
	return 1;
}

static usmb_cell *usmb_bump(usmb_control *ctl)
{
	for (;;) {
		uint32_t n = atomic_load(&ctl->bump);
		uint32_t have = atomic_load(&ctl->committed);
		if (n >= have) {
			if (!usmb_commit(ctl, have)) return NULL;
			continue;
		}
		if (atomic_compare_exchange_weak(&ctl->bump, &n, n + 1)) return usmb_cell_at(n);
	}
}

static usmb_cell *usmb_raw_cell(void)
{
	usmb_control *ctl = usmb_owner_control;
	if (ctl == NULL) return NULL;
	usmb_cell *cell = usmb_pop_free(ctl);
	return cell != NULL ? cell : usmb_bump(ctl);
}

usmb_cell *usmb_cell_new(usmb_list *home)
{
	usmb_cell *cell = usmb_raw_cell();
	if (cell == NULL) return NULL;
	cell->next = NULL;
	cell->home = home;
	cell->at_zero = NULL;
	cell->data = NULL;
	cell->size = UINT64_MAX;
	atomic_store_explicit(&cell->pending, NULL, memory_order_relaxed);
	cell->place = NULL;
	cell->ctx = NULL;
	atomic_store_explicit(&cell->queue, NULL, memory_order_relaxed);
	cell->requested = 0;
	cell->block = 0;
	cell->resource = 0;
	atomic_store_explicit(&cell->flags, 0, memory_order_relaxed);
	cell->stack = 0;
	cell->tag = 0;
	cell->private = cell->magazine = 0;
	uint64_t w = atomic_load_explicit(&cell->word, memory_order_relaxed);
	atomic_store_explicit(&cell->word, (w >> 32) << 32 | 1, memory_order_release);
	return cell;
}

void usmb_cell_recycle(usmb_cell *cell)
{
	usmb_control *ctl = usmb_owner_control;
	uint64_t w = atomic_load_explicit(&cell->word, memory_order_relaxed);
	atomic_store_explicit(&cell->word, ((w >> 32) + 1) << 32, memory_order_release);
	uint64_t head = atomic_load_explicit(&ctl->free_head, memory_order_relaxed);
	uint64_t next;
	do {
		atomic_store_explicit(&cell->link, (uint32_t)head, memory_order_relaxed);
		next = ((head >> 32) + 1) << 32 | usmb_cell_index(cell);
	} while (!atomic_compare_exchange_weak_explicit(&ctl->free_head, &head, next, memory_order_acq_rel,
	                                                memory_order_relaxed));
}

void usmb_cell_finish(usmb_cell *cell)
{
	if (cell->at_zero != NULL) cell->at_zero(cell);
	usmb_cell_recycle(cell);
}

/* Finishes a chain that the caller owns. */
void usmb_chain_finish(usmb_cell *cell)
{
	while (cell != NULL) {
		usmb_cell *next = cell->next;
		usmb_cell_finish(cell);
		cell = next;
	}
}

static void usmb_wake(usmb_waker *waker)
{
	if (atomic_load(&waker->armed) == 0 || atomic_exchange(&waker->armed, 0) == 0) return;
	if (atomic_load_explicit(&usmb_forked, memory_order_relaxed)) return;
	uint64_t one = 1;
	/* EAGAIN means that the counter is full, so a signal is already pending. */
	ssize_t n = write(waker->fd, &one, sizeof one);
	(void)n;
}

void usmb_cell_push(usmb_cell *cell)
{
	usmb_list *list = cell->home;
	if (list == NULL) {
		usmb_cell_finish(cell);
		return;
	}
	if (list->here != NULL && list->here(cell)) return;
	/* Read waker before the push: after it, the list may be drained and retired. */
	usmb_waker *waker = list->waker;
	usmb_cell *head = atomic_load_explicit(&list->head, memory_order_relaxed);
	do {
		cell->next = head;
	} while (!atomic_compare_exchange_weak(&list->head, &head, cell));
	if (waker != NULL) usmb_wake(waker);
}

void usmb_cell_drop(void *cell)
{
	if (cell != NULL && usmb_cell_unref(cell)) usmb_cell_push(cell);
}

void usmb_cell_drop_observed(void *cell)
{
	usmb_cell_unobserve(cell);
	usmb_cell_drop(cell);
}

usmb_list *usmb_list_new(void)
{
	usmb_cell *cell = usmb_raw_cell();
	if (cell == NULL) return NULL;
	memset((char *)cell + sizeof cell->word, 0, sizeof *cell - sizeof cell->word);
	usmb_list *list = (usmb_list *)cell;
	list->own.fd = -1;
	return list;
}

usmb_cell *usmb_list_take(usmb_list *list)
{
	usmb_cell *cell = atomic_exchange(&list->head, NULL);
	usmb_cell *oldest = NULL;
	while (cell != NULL) {
		usmb_cell *next = cell->next;
		cell->next = oldest;
		oldest = cell;
		cell = next;
	}
	return oldest;
}

size_t usmb_list_run(usmb_list *list, usmb_cell **rest)
{
	usmb_cell *cell = usmb_list_take(list);
	usmb_cell **tail = rest;
	size_t finished = 0;
	while (cell != NULL) {
		usmb_cell *next = cell->next;
		if (cell->at_zero == NULL && rest != NULL) {
			*tail = cell;
			tail = &cell->next;
		} else {
			usmb_cell_finish(cell);
			finished++;
		}
		cell = next;
	}
	if (rest != NULL) *tail = NULL;
	return finished;
}
