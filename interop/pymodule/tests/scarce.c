/* scarce.c: malloc and its like fail on demand, for callers in given places alone. Built and
   preloaded by test_scarce.py. USMB_SCARCE names a file of the places, two hexadecimal addresses
   a line, ascending, counted from where the program was loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
	unsigned long first, end;
} places[1 << 14];
static size_t nplaces;
static unsigned long base;
static atomic_long count, failing;

static int first_object(struct dl_phdr_info *info, size_t size, void *to)
{
	(void)size;
	*(unsigned long *)to = info->dlpi_addr;
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	const char *name = getenv("USMB_SCARCE");
	FILE *f = name ? fopen(name, "r") : NULL;
	if (!f) return;
	dl_iterate_phdr(first_object, &base);
	size_t n = 0;
	while (n < sizeof places / sizeof *places && fscanf(f, "%lx %lx", &places[n].first, &places[n].end) == 2) n++;
	fclose(f);
	nplaces = n;
}

/* The n-th from now on fails; none for 0. */
void usmb_scarce_arm(long n)
{
	failing = n;
	count = 0;
}

long usmb_scarce_count(void)
{
	return count;
}

static int fails(void *caller)
{
	unsigned long at = (unsigned long)caller - base;
	size_t low = 0, high = nplaces;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (places[middle].end < at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == nplaces || at < places[low].first || atomic_fetch_add(&count, 1) + 1 != failing) return 0;
	errno = ENOMEM;
	return 1;
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}
