/* Counts of calls, failures on demand, handles, and the description of the machine. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

platform *fake_platforms[MAX_PLATFORMS];
device *fake_roots[MAX_ROOTS];
size_t fake_nplatforms, fake_nroots;

enum { MAGIC = 0x5feed, DEAD = 0xdead };
typedef struct handle {
	int magic;
	enum sort sort;
	void *object;
} handle;

static long live[SORTS];

enum { MAX_FUNCTIONS = 128 };
static struct counter {
	char name[64];
	long calls, fail_in;
} counters[MAX_FUNCTIONS];

void fake_die(const char *problem)
{
	fprintf(stderr, "fake SYCL library: %s\n", problem);
	abort();
}

void live_add(enum sort sort, int n)
{
	__atomic_fetch_add(&live[sort], n, __ATOMIC_SEQ_CST);
}
long fake_live(int sort)
{
	return __atomic_load_n(&live[sort], __ATOMIC_SEQ_CST);
}

static struct counter *counter_of(const char *function)
{
	for (int i = 0; i < MAX_FUNCTIONS; i++) {
		if (counters[i].name[0] == 0) snprintf(counters[i].name, sizeof counters[i].name, "%s", function);
		if (strcmp(counters[i].name, function) == 0) return &counters[i];
	}
	fake_die("too many functions");
}

bool fake_entry(const char *function)
{
	pthread_mutex_lock(&fake_lock);
	struct counter *c = counter_of(function);
	c->calls++;
	bool fail = c->fail_in < 0 || (c->fail_in > 0 && --c->fail_in == 0);
	pthread_mutex_unlock(&fake_lock);
	return fail;
}

long fake_calls(const char *function)
{
	pthread_mutex_lock(&fake_lock);
	long n = counter_of(function)->calls;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

/* Makes the n-th call from now on fail; 0 cancels this. */
void fake_fail(const char *function, long n)
{
	pthread_mutex_lock(&fake_lock);
	counter_of(function)->fail_in = n;
	pthread_mutex_unlock(&fake_lock);
}

void *zeroed(size_t size)
{
	void *p = calloc(1, size);

	if (p == NULL) fake_die("out of memory");
	return p;
}

/* Objects and deleted handles are never freed, so that a use after deletion is detected.
 * The list keeps them reachable for leak checkers. */
void *keep(size_t size)
{
	static void **kept;
	void **p = zeroed(sizeof *p + size);

	do p[0] = __atomic_load_n(&kept, __ATOMIC_SEQ_CST);
	while (!__atomic_compare_exchange_n(&kept, (void ***)&p[0], p, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return p + 1;
}

void *handle_new(enum sort sort, void *object)
{
	handle *h = keep(sizeof *h);

	*h = (handle){MAGIC, sort, object};
	live_add(sort, 1);
	return h;
}

void *handle_object(enum sort sort, void *p)
{
	handle *h = p;

	if (h == NULL || h->magic != MAGIC || h->sort != sort) fake_die("a NULL, deleted or foreign handle was passed");
	return h->object;
}

void handle_delete(enum sort sort, void *p)
{
	handle *h = p;

	(void)handle_object(sort, p);
	h->magic = DEAD;
	live_add(sort, -1);
}

static device *device_new(platform *p, device *parent, int type, uint64_t mem, uint32_t units, uint32_t kinds,
                          const char *name)
{
	device *d = keep(sizeof *d);

	*d = (device){.platform = p, .parent = parent, .type = type, .mem = mem, .units = units, .kinds = kinds};
	if (kinds >> FAKE_ALIGN != 0) d->align = (size_t)1 << (kinds >> FAKE_ALIGN);
	snprintf(d->name, sizeof d->name, "%.63s", name);
	return d;
}

/* "platform BACKEND NAME" */
static void add_platform(const char *line)
{
	platform *p = keep(sizeof *p);

	if (fake_nplatforms == MAX_PLATFORMS || sscanf(line, "platform %d %63[^\n]", &p->backend, p->name) != 2)
		fake_die("bad platform line");
	p->default_context = keep(sizeof *p->default_context);
	p->default_context->is_default = true;
	fake_platforms[fake_nplatforms++] = p;
}

/* "device TYPE MEMORY UNITS TILES KINDS NAME", of the last platform */
static void add_device(const char *line)
{
	int type;
	unsigned long long mem;
	unsigned units, tiles, kinds;
	char name[64], part[96];

	if (fake_nplatforms == 0 || fake_nroots == MAX_ROOTS ||
	    sscanf(line, "device %d %llu %u %u %u %63[^\n]", &type, &mem, &units, &tiles, &kinds, name) != 6 ||
	    tiles > MAX_TILES)
		fake_die("bad device line");
	platform *p = fake_platforms[fake_nplatforms - 1];
	device *d = device_new(p, NULL, type, mem, units, kinds, name);
	fake_roots[fake_nroots++] = d;
	p->default_context->devices[p->default_context->n++] = d;
	for (unsigned i = 0; i < tiles; i++) {
		snprintf(part, sizeof part, "%.40s tile %u", name, i);
		d->tiles[d->ntiles++] = device_new(p, d, type, mem / tiles, units / tiles, kinds, part);
	}
}

static void machine_read(void)
{
	const char *text = getenv("USMBRIDGE_FAKE_MACHINE");
	char *copy = strdup(text != NULL ? text : "platform 262144 Fake OpenCL\ndevice 4 1073741824 8 0 14 Fake CPU\n"),
	     *rest = copy, *line;

	while ((line = strsep(&rest, "\n")) != NULL) {
		if (strncmp(line, "platform ", 9) == 0)
			add_platform(line);
		else if (strncmp(line, "device ", 7) == 0)
			add_device(line);
		else if (line[0] != 0)
			fake_die("bad machine line");
	}
	free(copy);
}

void machine_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, machine_read);
}
