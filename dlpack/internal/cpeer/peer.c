//go:build linux

#include "peer.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_llong deleted;

int64_t usmb_peer_deleted(void)
{
	return atomic_load(&deleted);
}

static int64_t *copy_ints(const int64_t *from, int32_t n)
{
	int64_t *to = NULL;

	if (from != NULL && (to = malloc(sizeof *to * (size_t)(n > 0 ? n : 1))) != NULL && n > 0)
		memcpy(to, from, sizeof *to * (size_t)n);
	return to;
}

/* Overwrites the fields, so that a second deletion or a late read is detected. */
static void delete_versioned(usmb_peer_versioned *self)
{
	atomic_fetch_add(&deleted, 1);
	free(self->tensor.shape);
	free(self->tensor.strides);
	memset(self, 0xdd, sizeof *self);
	free(self);
}

static void delete_legacy(usmb_peer_managed *self)
{
	atomic_fetch_add(&deleted, 1);
	free(self->tensor.shape);
	free(self->tensor.strides);
	memset(self, 0xdd, sizeof *self);
	free(self);
}

usmb_peer_versioned *usmb_peer_produce(uint32_t major, uint32_t minor, uint64_t flags, usmb_peer_tensor fields,
                                       const int64_t *shape, const int64_t *strides)
{
	usmb_peer_versioned *m = calloc(1, sizeof *m);

	if (m == NULL) return NULL;
	m->major = major;
	m->minor = minor;
	m->flags = flags;
	m->deleter = delete_versioned;
	m->tensor = fields;
	m->tensor.shape = copy_ints(shape, fields.ndim);
	m->tensor.strides = copy_ints(strides, fields.ndim);
	return m;
}

usmb_peer_managed *usmb_peer_produce_legacy(usmb_peer_tensor fields, const int64_t *shape, const int64_t *strides)
{
	usmb_peer_managed *m = calloc(1, sizeof *m);

	if (m == NULL) return NULL;
	m->deleter = delete_legacy;
	m->tensor = fields;
	m->tensor.shape = copy_ints(shape, fields.ndim);
	m->tensor.strides = copy_ints(strides, fields.ndim);
	return m;
}

static void count_versioned(usmb_peer_versioned *self)
{
	(void)self;
	atomic_fetch_add(&deleted, 1);
}

static void count_legacy(usmb_peer_managed *self)
{
	(void)self;
	atomic_fetch_add(&deleted, 1);
}

void usmb_peer_keep(void *managed, int versioned)
{
	if (versioned)
		((usmb_peer_versioned *)managed)->deleter = count_versioned;
	else
		((usmb_peer_managed *)managed)->deleter = count_legacy;
}

usmb_peer_tensor *usmb_peer_tensor_of(void *managed, int versioned)
{
	return versioned ? &((usmb_peer_versioned *)managed)->tensor : &((usmb_peer_managed *)managed)->tensor;
}

static void delete_managed(void *managed, int versioned)
{
	if (versioned) {
		usmb_peer_versioned *m = managed;

		if (m->deleter != NULL) m->deleter(m);
	} else {
		usmb_peer_managed *m = managed;

		if (m->deleter != NULL) m->deleter(m);
	}
}

static double sum_dim(const usmb_peer_tensor *t, const char *at, int32_t dim)
{
	int64_t item = t->bits / 8;
	double sum = 0;

	if (dim == t->ndim) return t->bits == 32 ? *(const float *)at : *(const double *)at;
	for (int64_t i = 0; i < t->shape[dim]; i++) sum += sum_dim(t, at + i * t->strides[dim] * item, dim + 1);
	return sum;
}

double usmb_peer_sum(void *managed, int versioned)
{
	const usmb_peer_tensor *t = usmb_peer_tensor_of(managed, versioned);
	double sum = NAN;

	if (t->device_type == 1 && t->code == 2 && (t->bits == 32 || t->bits == 64) && t->lanes == 1)
		sum = sum_dim(t, (const char *)t->data + t->byte_offset, 0);
	delete_managed(managed, versioned);
	return sum;
}

typedef struct {
	void *managed;
	int versioned;
} deletion;

static void *delete_thread(void *arg)
{
	deletion *d = arg;

	delete_managed(d->managed, d->versioned);
	return NULL;
}

int usmb_peer_delete_on_thread(void *managed, int versioned)
{
	deletion d = {managed, versioned};
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, delete_thread, &d);

	return rc != 0 ? rc : pthread_join(thread, NULL);
}

int usmb_peer_delete_in_child(void *managed, int versioned, void *owner)
{
	int64_t before = owner != NULL ? ((usmb_peer_owner *)owner)->drops : 0;
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		alarm(10); /* ends a deleter that blocks */
		delete_managed(managed, versioned);
		_exit(owner == NULL || ((usmb_peer_owner *)owner)->drops == before + 1 ? 0 : 1);
	}
	if (child < 0 || waitpid(child, &status, 0) != child) return -1;
	return status;
}

struct usmb_peer_writer {
	volatile usmb_peer_tensor *tensor;
	usmb_peer_tensor before;
	atomic_int stop;
	pthread_t thread;
};

static void *write_on(void *arg)
{
	usmb_peer_writer *w = arg;
	volatile usmb_peer_tensor *t = w->tensor;
	const usmb_peer_tensor *b = &w->before;

	while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		t->ndim = 64;
		t->bits = 64;
		for (int i = 0; i < 64; i++) t->shape[i] = 2;
		t->strides = NULL;
		t->ndim = b->ndim;
		t->bits = b->bits;
		for (int i = 0; i < 64; i++) t->shape[i] = 1;
		t->strides = b->strides;
	}
	return NULL;
}

usmb_peer_writer *usmb_peer_write_start(usmb_peer_tensor *t)
{
	usmb_peer_writer *w = calloc(1, sizeof *w);

	if (w == NULL) return NULL;
	w->tensor = t;
	w->before = *t;
	if (pthread_create(&w->thread, NULL, write_on, w) == 0) return w;
	free(w);
	return NULL;
}

void usmb_peer_write_stop(usmb_peer_writer *w)
{
	atomic_store(&w->stop, 1);
	pthread_join(w->thread, NULL);
	free(w);
}

void usmb_peer_drop(void *owner)
{
	__atomic_add_fetch(&((usmb_peer_owner *)owner)->drops, 1, __ATOMIC_SEQ_CST);
}
