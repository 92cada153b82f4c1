//go:build linux

/*
 * Blocks of managed tensors that a thread deleted and may soon need again. Most
 * tensors live for one hand-over, on one thread, and are small.
 */
#include <pthread.h>
#include <stdlib.h>

#include "usmb_dl_internal.h"

enum { SMALL = 4, KEEP = 8 };
/* Blocks of up to SMALL dimensions are all of one size, so that each fits any of
 * them; larger ones are not kept. */
static const size_t small_size = USMB_DL_BLOCK_HEAD + 2 * SMALL * sizeof(int64_t);

#if defined(__SANITIZE_ADDRESS__)
/* Memory kept back would hide use after free from the sanitizer. */
enum { OFF = 1 };
#else
enum { OFF = 0 };
#endif

static __thread struct {
	void *kept[KEEP];
	int n;
	int state; /* 0 not known yet, 1 the end of this thread gives the blocks back, -1 keeps nothing */
} cache;

static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int have_key;

/* Runs when a thread ends. */
static void give_back(void *unused)
{
	(void)unused;
	while (cache.n > 0) free(cache.kept[--cache.n]);
	cache.state = -1;
}

static void make_key(void)
{
	have_key = pthread_key_create(&at_end, give_back) == 0;
}

/* 1 when this thread may keep blocks. */
static int know_thread(void)
{
	pthread_once(&once, make_key);
	cache.state = !OFF && have_key && pthread_setspecific(at_end, &cache) == 0 ? 1 : -1;
	return cache.state == 1;
}

void *usmb_dl_block_new(int32_t ndim)
{
	if (ndim > SMALL) return malloc(USMB_DL_BLOCK_HEAD + 2 * sizeof(int64_t) * (size_t)ndim);
	return cache.n > 0 ? cache.kept[--cache.n] : malloc(small_size);
}

void usmb_dl_block_free(void *block, int32_t ndim)
{
	if (ndim <= SMALL && cache.n < KEEP && (cache.state == 1 || (cache.state == 0 && know_thread())))
		cache.kept[cache.n++] = block;
	else
		free(block);
}
