/*
 * drive LIBRARY ROUNDS STEP: the fake SYCL library, rounds of tensors and cells, and every
 *     STEP-th of the library's calls that fails.
 * drive wrong MISTAKE: makes a mistake, for those who want to know that it is found.
 */
#include "drive.h"

#include <errno.h>
#include <string.h>

long checks, failures;
static long count, failing;

uint64_t draw(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

void scarce_arm(long n)
{
	failing = n;
	count = 0;
}

long scarce_count(void)
{
	return count;
}

/* Threads allocate only while nothing is armed. */
static int fails(void)
{
	if (failing == 0) return 0;
	if (++count != failing) return 0;
	failures++;
	errno = ENOMEM;
	return 1;
}

/* The linker leads the calls of all that is linked in here. */
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
char *__real_strdup(const char *);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}
char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "wrong") == 0) return wrong(argv[2]);
	if (argc != 4) {
		fprintf(stderr, "usage: drive LIBRARY ROUNDS STEP\n");
		return 2;
	}
	drive_cells(atol(argv[2]));
	drive_tensors(atol(argv[2]));
	drive_sycl(argv[1], atol(argv[3]));
	printf("%ld checks held, %ld calls and allocations failed\n", checks, failures);
	return 0;
}
