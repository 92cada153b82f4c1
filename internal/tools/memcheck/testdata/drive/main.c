/*
 * drive LIBRARY ROUNDS STEP: runs ROUNDS rounds of tensors and cells, and uses the fake SYCL library while
 *     every STEP-th of its calls fails.
 * drive wrong MISTAKE: makes a mistake, to check that a tool finds it.
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

/* Not synchronized: while a failure is armed, only one thread allocates. */
static int fails(void)
{
	if (failing == 0) return 0;
	if (++count != failing) return 0;
	failures++;
	errno = ENOMEM;
	return 1;
}

/* The linker option --wrap redirects the calls of all linked files to these functions. */
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
