/*
 * A C program that uses the C parts without Go and without Python. The tests of package memcheck run it alone,
 * under valgrind and with sanitizers. Each argument is in an allocation of exactly the size that the callee may
 * read.
 */
#ifndef USMB_DRIVE_H
#define USMB_DRIVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The numbers of conditions that held, and of calls and allocations that failed on purpose. */
extern long checks, failures;

#define CHECK(condition) \
	do { \
		__atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED); \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

/* Returns the next pseudo-random number. */
uint64_t draw(uint64_t *state);

/* scarce_arm lets the n-th allocation of the C parts from now on fail; 0: none. scarce_count counts them. */
void scarce_arm(long n);
long scarce_count(void);

/* Makes a mistake. */
int wrong(const char *mistake);

void drive_cells(long rounds);
void drive_tensors(long rounds);
void drive_sycl(const char *library, long step);

#endif
