/* Submissions, events and their order. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static event *pending; /* in order of submission */
static bool holding;   /* new work waits for the test to release it */
static int async_in, async_code;
static uint64_t clock_now;

/* All with fake_lock held. */
static void execute(event *e)
{
	uint8_t *dst = e->op != NOTHING ? usm_backing(e->dst, e->size) : NULL;

	e->times[1] = ++clock_now;
	if (e->op == COPY) memmove(dst, usm_backing(e->src, e->size), e->size);
	for (size_t i = 0; e->op == FILL && i < e->size; i++) dst[i] = e->pattern[i % e->width];
	for (size_t i = 0; e->op == INCREMENT && i < e->size / 4; i++) ((int32_t *)dst)[i]++;
	e->times[2] = ++clock_now;
	e->complete = true;
}

static bool ready(const event *e)
{
	for (size_t i = 0; i < e->ndeps; i++)
		if (!e->deps[i]->complete) return false;
	return e->released;
}

static void drop(event *e)
{
	if (--e->refs == 0) free(e);
}

/* Runs all that can run. */
static void advance(void)
{
	bool again = true;

	while (again) {
		again = false;
		for (event **at = &pending; *at != NULL;) {
			event *e = *at;

			if (!ready(e)) {
				at = &e->next;
				continue;
			}
			execute(e);
			*at = e->next;
			for (size_t i = 0; i < e->ndeps; i++) drop(e->deps[i]);
			e->ndeps = 0;
			drop(e);
			again = true;
		}
	}
	pthread_cond_broadcast(&fake_changed);
}

static void depend(event *e, event *on)
{
	if (on == NULL || on->complete) return;
	if (e->ndeps == MAX_DEPS) fake_die("too many dependencies");
	on->refs++;
	e->deps[e->ndeps++] = on;
}

event *event_submit(queue *q, event prototype, void **deps, size_t n)
{
	event *e = zeroed(sizeof *e), **at = &pending;

	*e = prototype;
	e->q = q;
	e->refs = 2; /* the handle's and the pending list's */
	pthread_mutex_lock(&fake_lock);
	e->times[0] = ++clock_now;
	e->released = !holding;
	e->failed = async_in > 0 && --async_in == 0;
	depend(e, q->last);
	for (size_t i = 0; i < n; i++) depend(e, handle_object(EVENT, deps[i]));
	/* A barrier without events waits for all earlier work of its queue. */
	for (event *p = pending; prototype.op == NOTHING && n == 0 && p != NULL; p = p->next)
		if (p->q == q) depend(e, p);
	if (q->in_order || prototype.op == NOTHING) {
		if (q->last != NULL) drop(q->last);
		q->last = e;
		e->refs++;
	}
	while (*at != NULL) at = &(*at)->next;
	*at = e;
	advance();
	pthread_mutex_unlock(&fake_lock);
	return e;
}

void event_unref(event *e)
{
	pthread_mutex_lock(&fake_lock);
	drop(e);
	pthread_mutex_unlock(&fake_lock);
}

void *submit(void *q, event prototype, void **deps, size_t n)
{
	return handle_new(EVENT, event_submit(handle_object(QUEUE, q), prototype, deps, n));
}

void *DPCTLQueue_Memcpy(void *q, void *dst, const void *src, size_t size)
{
	return fake_entry(__func__) ? NULL
	                            : submit(q, (event){.op = COPY, .dst = dst, .src = src, .size = size}, NULL, 0);
}
void *DPCTLQueue_MemcpyWithEvents(void *q, void *dst, const void *src, size_t size, void **deps, size_t n)
{
	return fake_entry(__func__) ? NULL
	                            : submit(q, (event){.op = COPY, .dst = dst, .src = src, .size = size}, deps, n);
}
void *DPCTLQueue_SubmitBarrierForEvents(void *q, void **deps, size_t n)
{
	return fake_entry(__func__) ? NULL : submit(q, (event){.op = NOTHING}, deps, n);
}
/* Movement of memory is not modelled: these are work that changes nothing. */
static void *touch(const char *name, void *q, const void *p, size_t size)
{
	pthread_mutex_lock(&fake_lock);
	bool foreign = usm_backing(p, size) == p;
	pthread_mutex_unlock(&fake_lock);
	return fake_entry(name) || foreign ? NULL
	                                   : submit(q, (event){.op = FILL, .width = 1, .dst = (void *)p}, NULL, 0);
}
void *DPCTLQueue_Prefetch(void *q, const void *p, size_t size)
{
	return touch(__func__, q, p, size);
}

static void *fill(const char *name, void *q, void *dst, const void *pattern, size_t width, size_t count)
{
	event e = {.op = FILL, .dst = dst, .size = width * count, .width = width};

	memcpy(e.pattern, pattern, width);
	return fake_entry(name) ? NULL : submit(q, e, NULL, 0);
}
void *DPCTLQueue_Memset(void *q, void *p, uint8_t v, size_t n)
{
	return fill(__func__, q, p, &v, 1, n);
}
void *DPCTLQueue_Fill8(void *q, void *p, uint8_t v, size_t n)
{
	return fill(__func__, q, p, &v, 1, n);
}
void *DPCTLQueue_Fill16(void *q, void *p, uint16_t v, size_t n)
{
	return fill(__func__, q, p, &v, 2, n);
}
void *DPCTLQueue_Fill32(void *q, void *p, uint32_t v, size_t n)
{
	return fill(__func__, q, p, &v, 4, n);
}
void *DPCTLQueue_Fill64(void *q, void *p, uint64_t v, size_t n)
{
	return fill(__func__, q, p, &v, 8, n);
}
void *DPCTLQueue_Fill128(void *q, void *p, uint64_t *v, size_t n)
{
	return fill(__func__, q, p, v, 16, n);
}

void *DPCTLEvent_Copy(void *h)
{
	event *e = handle_object(EVENT, h);

	if (fake_entry(__func__)) return NULL;
	pthread_mutex_lock(&fake_lock);
	e->refs++;
	pthread_mutex_unlock(&fake_lock);
	return handle_new(EVENT, e);
}
/* Commands of the fake library keep no list of their dependencies: all lists are empty. */
void *DPCTLEvent_GetWaitList(void *h)
{
	handle_object(EVENT, h);
	return NULL;
}
size_t DPCTLEventVector_Size(void *h)
{
	(void)h;
	return 0;
}
void *DPCTLEventVector_GetAt(void *h, size_t i)
{
	(void)h;
	(void)i;
	return NULL;
}
void DPCTLEventVector_Delete(void *h)
{
	(void)h;
}
void DPCTLEvent_Delete(void *h)
{
	event *e = handle_object(EVENT, h);

	handle_delete(EVENT, h);
	event_unref(e);
}
void DPCTLEvent_WaitAndThrow(void *h)
{
	event *e = handle_object(EVENT, h);
	handler_fn *handler = NULL;

	(void)fake_entry(__func__);
	pthread_mutex_lock(&fake_lock);
	while (!e->complete) pthread_cond_wait(&fake_changed, &fake_lock);
	if (e->failed) {
		e->failed = false;
		handler = e->q->handler;
	}
	pthread_mutex_unlock(&fake_lock);
	if (handler != NULL) handler(async_code);
}

int DPCTLEvent_GetCommandExecutionStatus(void *h)
{
	event *e = handle_object(EVENT, h);

	if (fake_entry(__func__)) return 0;
	pthread_mutex_lock(&fake_lock);
	bool complete = e->complete;
	pthread_mutex_unlock(&fake_lock);
	return complete ? 3 : 1;
}
static uint64_t time_of(void *h, int which)
{
	event *e = handle_object(EVENT, h);

	return e->q->profiling && e->complete ? e->times[which] : 0;
}
uint64_t DPCTLEvent_GetProfilingInfoSubmit(void *h)
{
	return time_of(h, 0);
}
uint64_t DPCTLEvent_GetProfilingInfoStart(void *h)
{
	return time_of(h, 1);
}
uint64_t DPCTLEvent_GetProfilingInfoEnd(void *h)
{
	return time_of(h, 2);
}

/* For the tests. */
void fake_hold(int on)
{
	pthread_mutex_lock(&fake_lock);
	holding = on != 0;
	pthread_mutex_unlock(&fake_lock);
}
long fake_pending(void)
{
	long n = 0;

	pthread_mutex_lock(&fake_lock);
	for (event *e = pending; e != NULL; e = e->next) n++;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
/* Releases the pending work from the i-th piece on, or all for -1; it still waits for its
 * dependencies. */
void fake_release(long i)
{
	pthread_mutex_lock(&fake_lock);
	for (event *e = pending; e != NULL; e = e->next, i--)
		if (i <= 0) e->released = true;
	advance();
	pthread_mutex_unlock(&fake_lock);
}
/* The n-th submission from now on reports this error when it is waited for. */
void fake_async(int n, int code)
{
	pthread_mutex_lock(&fake_lock);
	async_in = n;
	async_code = code;
	pthread_mutex_unlock(&fake_lock);
}
