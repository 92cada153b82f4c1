//go:build linux

/*
 * Owners whose function is a Go function. Drops come from any thread, which
 * Go must not be entered on: a drop only pushes a node on a lock-free list and,
 * when Go's goroutine said that it sleeps, writes an eventfd it waits on.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "usmb_dl_internal.h"

static _Atomic(usmb_dl_gofunc *) dropped;
static atomic_int armed;
static atomic_int wakefd = -1;

usmb_dl_gofunc *usmb_dl_gofunc_new(uint64_t id)
{
	usmb_dl_gofunc *f = malloc(sizeof *f);

	if (f != NULL) {
		f->next = NULL;
		f->id = id;
	}
	return f;
}

/* A full counter means that a wake-up is already due: the write may fail. */
static void wake(void)
{
	static const uint64_t one = 1;
	int saved = errno;
	ssize_t n = write(atomic_load(&wakefd), &one, sizeof one);

	(void)n;
	errno = saved;
}

void usmb_dl_gofunc_drop(void *gofunc)
{
	usmb_dl_gofunc *f = gofunc, *head = atomic_load_explicit(&dropped, memory_order_relaxed);

	do f->next = head;
	while (!atomic_compare_exchange_weak_explicit(&dropped, &head, f, memory_order_seq_cst, memory_order_relaxed));
	if (atomic_load(&armed) && atomic_exchange(&armed, 0)) wake();
}

usmb_dl_gofunc *usmb_dl_gofunc_take(void)
{
	return atomic_exchange(&dropped, NULL);
}

int usmb_dl_gofunc_wakefd(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd >= 0) atomic_store(&wakefd, fd);
	return fd;
}

int usmb_dl_gofunc_arm(void)
{
	atomic_store(&armed, 1);
	if (atomic_load(&dropped) == NULL) return 1;
	/* A drop came between: take it, unless its pusher wakes us anyway. */
	return !atomic_exchange(&armed, 0);
}
