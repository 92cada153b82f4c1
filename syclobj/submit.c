//go:build linux && cgo

#include "cpuqueues.h"
#include "gate.h"
#include "symbols.h"
#include "usmb_sycl.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/*
 * The code of an asynchronous error, stored per thread: the library calls the handler on the waiting
 * thread.
 */
static _Thread_local int async_code;

void usmb_async_error(int code)
{
	async_code = code != 0 ? code : -1;
}

static _Atomic(const usmb_host_lock *) host_lock;

void usmb_sycl_set_host_lock(const usmb_host_lock *lock)
{
	atomic_store(&host_lock, lock);
}

int usmb_sycl_barriers_pend(void)
{
	const usmb_host_lock *lock = atomic_load_explicit(&host_lock, memory_order_acquire);

	return lock == NULL || !lock->active();
}

void *usmb_sycl_release_lock(void)
{
	const usmb_host_lock *lock = atomic_load_explicit(&host_lock, memory_order_acquire);

	return lock != NULL ? lock->release() : NULL;
}

void usmb_sycl_acquire_lock(void *released)
{
	if (released != NULL) atomic_load_explicit(&host_lock, memory_order_relaxed)->acquire(released);
}

int usmb_sycl_wait_used(uint32_t used)
{
	const usmb_host_lock *lock = atomic_load_explicit(&host_lock, memory_order_acquire);
	void *released;
	int err;

	if (used == 0 || lock == NULL) return USMB_SYCL_OK;
	released = lock->release();
	err = lock->await_used(used);
	if (released != NULL) lock->acquire(released);
	return err;
}

static int submitted(void *event, void **out_event)
{
	if (event == NULL) return usmb_gate_lost() ? USMB_SYCL_EASYNC : USMB_SYCL_EFAILED;
	if (out_event != NULL)
		*out_event = usmb_gave(USMB_LIVE_EVENT, event);
	else
		usmb_dp.DPCTLEvent_Delete(event);
	return USMB_SYCL_OK;
}

/*
 * Most submissions of the library take no dependencies. A preceding barrier has the same effect: it waits
 * for them, and later work of the queue waits for it.
 */
static int precede(void *queue, void **deps, size_t n)
{
	size_t i;
	int err = USMB_SYCL_OK;

	if (n == 0) return USMB_SYCL_OK;
	if (!usmb_sycl_barriers_pend()) {
		for (i = 0; i < n && err == USMB_SYCL_OK; i++) err = usmb_sycl_wait_event(deps[i]);
		return err;
	}
	return submitted(usmb_dp.DPCTLQueue_SubmitBarrierForEvents(queue, deps, n), NULL);
}

static int arguments(void *queue, const void *a, const void *b, void **deps, size_t n)
{
	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (queue == NULL || a == NULL || b == NULL || (deps == NULL && n > 0)) return USMB_SYCL_ENULL;
	return USMB_SYCL_OK;
}

int usmb_sycl_barrier(void *queue, void **deps, size_t n, void **out_event)
{
	int err = arguments(queue, queue, queue, deps, n);

	if (err != USMB_SYCL_OK) return err;
	return submitted(usmb_dp.DPCTLQueue_SubmitBarrierForEvents(queue, deps, n), out_event);
}

int usmb_sycl_memcpy(void *queue, void *dst, const void *src, size_t size, void **deps, size_t n, void **out_event)
{
	int err = arguments(queue, dst, src, deps, n);

	if (err != USMB_SYCL_OK) return err;
	if (n == 0) return submitted(usmb_dp.DPCTLQueue_Memcpy(queue, dst, src, size), out_event);
	return submitted(usmb_dp.DPCTLQueue_MemcpyWithEvents(queue, dst, src, size, deps, n), out_event);
}

int usmb_sycl_memset(void *queue, void *dst, uint8_t value, size_t size, void **deps, size_t n, void **out_event)
{
	int err = arguments(queue, dst, dst, deps, n);

	if (err == USMB_SYCL_OK) err = precede(queue, deps, n);
	if (err != USMB_SYCL_OK) return err;
	return submitted(usmb_dp.DPCTLQueue_Memset(queue, dst, value, size), out_event);
}

static void *fill(void *queue, void *dst, const void *pattern, size_t width, size_t count)
{
	uint64_t wide[2] = {0, 0};
	uint16_t two;
	uint32_t four;

	memcpy(wide, pattern, width);
	memcpy(&two, pattern, width < sizeof two ? width : sizeof two);
	memcpy(&four, pattern, width < sizeof four ? width : sizeof four);
	switch (width) {
	case 1: return usmb_dp.DPCTLQueue_Fill8(queue, dst, *(const uint8_t *)pattern, count);
	case 2: return usmb_dp.DPCTLQueue_Fill16(queue, dst, two, count);
	case 4: return usmb_dp.DPCTLQueue_Fill32(queue, dst, four, count);
	case 8: return usmb_dp.DPCTLQueue_Fill64(queue, dst, wide[0], count);
	}
	return usmb_dp.DPCTLQueue_Fill128(queue, dst, wide, count);
}

int usmb_sycl_fill(void *queue, void *dst, const void *pattern, size_t width, size_t count, void **deps, size_t n,
                   void **out_event)
{
	int err = arguments(queue, dst, pattern, deps, n);

	if (err != USMB_SYCL_OK) return err;
	if (width != 1 && width != 2 && width != 4 && width != 8 && width != 16) return USMB_SYCL_EARG;
	err = precede(queue, deps, n);
	if (err != USMB_SYCL_OK) return err;
	return submitted(fill(queue, dst, pattern, width, count), out_event);
}

int usmb_sycl_prefetch(void *queue, const void *ptr, size_t size, void **deps, size_t n, void **out_event)
{
	int err = arguments(queue, ptr, ptr, deps, n);

	if (err == USMB_SYCL_OK) err = precede(queue, deps, n);
	if (err != USMB_SYCL_OK) return err;
	return submitted(usmb_dp.DPCTLQueue_Prefetch(queue, ptr, size), out_event);
}

/* The maximum depth of the search for dependencies. */
enum { WAIT_DEPTH = 64 };

/*
 * Waits until the event has another state than pending, without the driver's wait, where that can hang
 * (cpuqueues.c). All events are polled, because SYCL cannot name the device of every event. The driver is called less and less often, so that long work leaves it the processor.
 */
static void poll_event(void *event)
{
	enum { YIELDS = 20, STEP = 10000, MOST = 1000000 }; /* nanoseconds */
	struct timespec pause = {0, 0};
	int turn;

	if (!usmb_cpu_queues_poll()) return;
	for (turn = 0;; turn++) {
		int status = usmb_dp.DPCTLEvent_GetCommandExecutionStatus(event);

		if (status == DP_EVENT_COMPLETE || status == DP_EVENT_UNKNOWN) return;
		if (turn < YIELDS) {
			sched_yield();
			continue;
		}
		if (pause.tv_nsec < MOST) pause.tv_nsec += STEP;
		nanosleep(&pause, NULL);
	}
}

static void wait_one(void *event)
{
	poll_event(event);
	usmb_dp.DPCTLEvent_WaitAndThrow(event);
}

/* Waits for the events that a command depends on. A command that depends on a host task may not be
 * enqueued yet. SYCL's wait then enqueues it and waits for the host task with the lock of SYCL's
 * graph held, which every submission needs. dpnp's host tasks take Python's GIL, and the thread
 * that has the GIL may be submitting: the three threads would be in a deadlock. A command whose dependencies
 * are complete is enqueued without a wait. */
static void wait_dependencies(void *event, int depth)
{
	if (depth == WAIT_DEPTH) return;
	void *list = usmb_dp.DPCTLEvent_GetWaitList(event);
	size_t n = list ? usmb_dp.DPCTLEventVector_Size(list) : 0;

	for (size_t i = 0; i < n; i++) {
		void *before = usmb_dp.DPCTLEventVector_GetAt(list, i);

		if (before == NULL) continue;
		if (!usmb_sycl_event_done(before)) {
			wait_dependencies(before, depth + 1);
			wait_one(before);
		}
		usmb_dp.DPCTLEvent_Delete(before);
	}
	if (list) usmb_dp.DPCTLEventVector_Delete(list);
}

/* Releases the lock of host tasks if the event is pending. Callers of a wait that returns immediately can have another
 * lock, after which the lock of host tasks must not be acquired. */
static void *release_lock_for(void *event)
{
	if (usmb_sycl_barriers_pend() || usmb_sycl_event_state(event) != USMB_SYCL_EVENT_PENDING) return NULL;
	return usmb_sycl_release_lock();
}

int usmb_sycl_wait_event(void *event)
{
	void *released;
	usmb_gate g;
	int done;

	if (event == NULL) return USMB_SYCL_OK;
	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	usmb_gate_enter_for_some(&g);
	released = release_lock_for(event);
	async_code = 0;
	wait_dependencies(event, 0);
	wait_one(event);
	/* The library discards exceptions of the wait; the status shows the failure. */
	done = usmb_sycl_event_done(event);
	usmb_gate_leave_after_some(&g);
	usmb_sycl_acquire_lock(released);
	if (async_code != 0) return USMB_SYCL_EASYNC;
	return done ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

int usmb_sycl_event_done(void *event)
{
	if (event == NULL) return 1;
	return usmb_ready() && usmb_dp.DPCTLEvent_GetCommandExecutionStatus(event) == DP_EVENT_COMPLETE;
}

void usmb_sycl_events_done(void *const *events, size_t n, uint8_t *done)
{
	usmb_gate g;

	usmb_gate_enter_for_some(&g);
	for (size_t i = 0; i < n; i++) done[i] = (uint8_t)usmb_sycl_event_done(events[i]);
	usmb_gate_leave_after_some(&g);
}

int usmb_sycl_event_state(void *event)
{
	int status = usmb_ready() ? usmb_dp.DPCTLEvent_GetCommandExecutionStatus(event) : DP_EVENT_UNKNOWN;

	if (status == DP_EVENT_COMPLETE) return USMB_SYCL_EVENT_COMPLETE;
	return status == DP_EVENT_UNKNOWN ? USMB_SYCL_EVENT_UNKNOWN : USMB_SYCL_EVENT_PENDING;
}

void *usmb_sycl_event_copy(void *event)
{
	if (event == NULL || !usmb_ready()) return NULL;
	return usmb_gave(USMB_LIVE_EVENT, usmb_dp.DPCTLEvent_Copy(event));
}

void usmb_sycl_event_delete(void *event)
{
	if (event == NULL) return;
	usmb_dp.DPCTLEvent_Delete(event);
	usmb_took(USMB_LIVE_EVENT);
}

void usmb_sycl_events_delete(void *const *events, size_t n)
{
	usmb_gate g;

	usmb_gate_enter_for_some(&g);
	for (size_t i = 0; i < n; i++) usmb_sycl_event_delete(events[i]);
	usmb_gate_leave_after_some(&g);
}

/* Reports whether an earlier one of the queues, or except, is the same as queue i. */
static int is_repeated(void *const *queues, size_t i, void *except)
{
	size_t k;

	if (except != NULL && usmb_sycl_queue_equal(queues[i], except)) return 1;
	for (k = 0; k < i; k++)
		if (usmb_sycl_queue_equal(queues[i], queues[k])) return 1;
	return 0;
}

enum { BATCH = 8 };

/*
 * Submits a barrier to each queue except for repeated ones, and writes the events. Barriers are used because
 * the library's wait for a queue lets C++ exceptions through.
 */
static int barriers(void *const *queues, size_t n, void *except, void **events, size_t *count)
{
	size_t i;
	int err, result = USMB_SYCL_OK;

	*count = 0;
	for (i = 0; i < n; i++) {
		if (is_repeated(queues, i, except)) continue;
		err = usmb_sycl_barrier(queues[i], NULL, 0, &events[*count]);
		if (err == USMB_SYCL_OK)
			++*count;
		else if (result == USMB_SYCL_OK)
			result = err;
	}
	return result;
}

/* Barriers to submit, and their events. */
struct batch {
	void *const *queues;
	size_t n, count;
	void *except, *events[BATCH + 1];
};

static int submit_batch(void *arg)
{
	struct batch *b = arg;

	return barriers(b->queues, b->n, b->except, b->events, &b->count);
}

static int wait_batch(struct batch *b, int patient)
{
	const usmb_host_lock *lock = atomic_load_explicit(&host_lock, memory_order_acquire);
	void *released = lock != NULL ? lock->release() : NULL;
	int result = lock != NULL ? lock->quiet(b->queues, b->n, submit_batch, b, patient) : submit_batch(b);
	size_t i;

	for (i = 0; i < b->count; i++) {
		int err = usmb_sycl_wait_event(b->events[i]);

		if (result == USMB_SYCL_OK) result = err;
		usmb_sycl_event_delete(b->events[i]);
	}
	if (released != NULL) lock->acquire(released);
	return result;
}

/* Waits for queues that are not equal to except. */
static int wait_queues(void *const *queues, size_t n, void *except, int patient)
{
	int result = USMB_SYCL_OK;
	size_t done;

	for (done = 0; done < n; done += BATCH) {
		struct batch b = {.queues = queues + done, .n = n - done < BATCH ? n - done : BATCH, .except = except};
		int err = wait_batch(&b, patient);

		if (err == USMB_SYCL_BUSY) return err; /* the caller repeats all */
		if (result == USMB_SYCL_OK) result = err;
	}
	return result;
}

int usmb_sycl_wait_queues(void *const *queues, size_t n)
{
	return wait_queues(queues, n, NULL, 1);
}

int usmb_sycl_try_wait_queues(void *const *queues, size_t n)
{
	return wait_queues(queues, n, NULL, 0);
}

int usmb_sycl_order(void *queue, void *event, void *const *others, size_t n)
{
	void *except = usmb_sycl_queue_in_order(queue) ? queue : NULL;
	size_t done = 0;
	int err;

	if (!usmb_sycl_barriers_pend()) {
		err = usmb_sycl_wait_event(event);
		return err == USMB_SYCL_OK ? wait_queues(others, n, except, 1) : err;
	}
	do {
		struct batch b = {.queues = others + done, .n = n - done < BATCH ? n - done : BATCH, .except = except};

		err = submit_batch(&b);
		done += b.n;
		if (event != NULL) b.events[b.count++] = event;
		if (err == USMB_SYCL_OK && b.count > 0) err = usmb_sycl_barrier(queue, b.events, b.count, NULL);
		if (event != NULL) b.count--;
		event = NULL;
		usmb_sycl_events_delete(b.events, b.count);
	} while (err == USMB_SYCL_OK && done < n);
	return err;
}
