//go:build cgo

#define _GNU_SOURCE
#include "usmb_guard.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/*
 * The handler reads the table of ranges without a lock. A range is live while base is not 0; end
 * and protection are constant while it is live. busy counts the handlers that use the range.
 * usmb_guard_remove waits for them, so that none maps pages over addresses that are in use for
 * another purpose by then.
 */
typedef struct guarded {
	uintptr_t base, end;
	int protection;
	int lost, busy;
	int next; /* next free slot, while the slot is free */
} guarded;

static guarded ranges[USMB_GUARD_MOST];
static int used; /* slots that were used at least once */

/* Serializes add, remove and keep; guards free_slots and next, and writes of used and formers. */
static pthread_mutex_t change = PTHREAD_MUTEX_INITIALIZER;
static int free_slots = -1;

/*
 * Previous handlers, the oldest first: that of Go, and those of drivers that replaced this one.
 * An entry is written before formers counts it.
 */
enum { FORMER_MOST = 8 };
static struct sigaction former[FORMER_MOST];
static int formers;

/* The fault that this thread passed on last. If it repeats, the chosen handler did not resolve it. */
static __thread struct {
	const void *address;
	uintptr_t at;
	int level;
} handed __attribute__((tls_model("initial-exec")));

static uintptr_t where(const ucontext_t *u)
{
#if defined(__x86_64__)
	return (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t)u->uc_mcontext.pc;
#else
	return (uintptr_t)u;
#endif
}

static bool zeros(uintptr_t from, size_t size, int protection)
{
	long p = syscall(SYS_mmap, from, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
	                 0);

	/* Foreign mappings are absent in forked children. If madvise fails, a child has the zeros. */
	if (p != (long)from) return false;
	(void)syscall(SYS_madvise, from, size, MADV_DONTFORK);
	return true;
}

/*
 * Maps zeros over the page and over all pages after it in the range. All pages after the end of a
 * truncated file are missing too, and a range thus never has more than two mappings, whatever the
 * order of the accesses. If a page is missing because the file system is full or the page is
 * broken, the pages after it are replaced as well; Lost reports both cases. If the system cannot
 * map all of them, only the page is replaced.
 */
static bool replace(guarded *g, uintptr_t address, size_t page)
{
	uintptr_t from = address & ~(uintptr_t)(page - 1);

	return zeros(from, g->end - from, g->protection) || zeros(from, page, g->protection);
}

static size_t page_size; /* cached, because sysconf is not async-signal-safe */

static bool repaired(uintptr_t address)
{
	int n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);

	for (int i = 0; i < n; i++) {
		guarded *g = &ranges[i];
		bool done = false;
		uintptr_t base = __atomic_load_n(&g->base, __ATOMIC_ACQUIRE);

		if (base == 0 || address < base) continue;
		__atomic_add_fetch(&g->busy, 1, __ATOMIC_SEQ_CST);
		base = __atomic_load_n(&g->base, __ATOMIC_SEQ_CST);
		if (base != 0 && address >= base && address < g->end) {
			__atomic_store_n(&g->lost, 1, __ATOMIC_SEQ_CST);
			done = replace(g, address, page_size);
		}
		__atomic_sub_fetch(&g->busy, 1, __ATOMIC_SEQ_CST);
		if (done) return true;
	}
	return false;
}

/* Restores the default action. The access then repeats and the signal ends the process. */
static void by_default(int sig)
{
	struct sigaction act;

	memset(&act, 0, sizeof act);
	act.sa_handler = SIG_DFL;
	(void)sigaction(sig, &act, NULL);
}

/*
 * Passes a fault outside the guarded ranges to the newest previous handler. If the same fault
 * repeats at the same instruction, passes it to the handler before that one. A driver's handler
 * either uninstalls itself and returns, which repeats the fault, or calls the handler that it
 * replaced, which is this one.
 */
static void hand_on(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = where(context);
	int n = __atomic_load_n(&formers, __ATOMIC_ACQUIRE);
	bool again = handed.address == info->si_addr && handed.at == at && handed.level > 0 && handed.level <= n;
	int level = again ? handed.level - 1 : n - 1;
	const struct sigaction *f = &former[level < 0 ? 0 : level];

	handed.address = info->si_addr;
	handed.at = at;
	handed.level = level;
	if (n == 0 || (!(f->sa_flags & SA_SIGINFO) && (f->sa_handler == SIG_DFL || f->sa_handler == SIG_IGN)))
		by_default(sig);
	else if (f->sa_flags & SA_SIGINFO)
		f->sa_sigaction(sig, info, context);
	else
		f->sa_handler(sig);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	/* Repair neither signals sent by a process, which have no address, nor misaligned accesses, which
	 * zero pages would not resolve. */
	bool missing = info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR || info->si_code == BUS_MCEERR_AR;

	if (!missing || !repaired((uintptr_t)info->si_addr)) hand_on(sig, info, context);
	errno = saved;
}

static bool is_ours(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_fault;
}

static bool same_handler(const struct sigaction *a, const struct sigaction *b)
{
	if ((a->sa_flags & SA_SIGINFO) != (b->sa_flags & SA_SIGINFO)) return false;
	return a->sa_flags & SA_SIGINFO ? a->sa_sigaction == b->sa_sigaction : a->sa_handler == b->sa_handler;
}

/* Appends a handler to former, unless it is in the table or the table is full. */
static void remember(const struct sigaction *a)
{
	int n = formers;

	for (int i = 0; i < n; i++)
		if (same_handler(&former[i], a)) return;
	if (n == FORMER_MOST) return;
	former[n] = *a;
	__atomic_store_n(&formers, n + 1, __ATOMIC_RELEASE);
}

/* Installs the handler if it is not installed. The caller holds change. */
static int install(void)
{
	struct sigaction now, act;

	if (sigaction(SIGBUS, NULL, &now) != 0) return errno;
	if (is_ours(&now)) return 0;
	if (page_size == 0) page_size = (size_t)sysconf(_SC_PAGESIZE);
	remember(&now);
	memset(&act, 0, sizeof act);
	act.sa_sigaction = on_fault;
	/* Use the signal stack, because a goroutine's stack is too small for a handler. A thread
	 * without a signal stack uses its normal one. Block all other signals, so that no other
	 * handler delays this one while usmb_guard_remove waits for it. */
	act.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & (SA_RESTART | SA_NODEFER));
	sigfillset(&act.sa_mask);
	return sigaction(SIGBUS, &act, NULL) == 0 ? 0 : errno;
}

int usmb_guard_keep(void)
{
	struct sigaction now;
	int err;

	if (sigaction(SIGBUS, NULL, &now) == 0 && is_ours(&now)) return 0;
	pthread_mutex_lock(&change);
	err = install();
	pthread_mutex_unlock(&change);
	return err;
}

int usmb_guard_add(uintptr_t base, size_t size, int writable)
{
	int i, err;

	pthread_mutex_lock(&change);
	err = install();
	i = free_slots;
	if (err == 0 && i < 0 && used == USMB_GUARD_MOST) err = ENOSPC;
	if (err == 0) {
		guarded *g;

		if (i < 0)
			i = used;
		else
			free_slots = ranges[i].next;
		g = &ranges[i];
		g->end = base + size;
		g->protection = PROT_READ | (writable ? PROT_WRITE : 0);
		__atomic_store_n(&g->lost, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&g->base, base, __ATOMIC_SEQ_CST);
		if (i == used) __atomic_store_n(&used, i + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&change);
	if (err == 0) return i;
	errno = err;
	return -1;
}

void usmb_guard_remove(int range)
{
	guarded *g = &ranges[range];

	__atomic_store_n(&g->base, 0, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&g->busy, __ATOMIC_SEQ_CST) != 0) sched_yield();
	pthread_mutex_lock(&change);
	g->next = free_slots;
	free_slots = range;
	pthread_mutex_unlock(&change);
}

int usmb_guard_lost(int range)
{
	return __atomic_load_n(&ranges[range].lost, __ATOMIC_SEQ_CST);
}
