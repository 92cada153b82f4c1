/*
 * A C program that uses the C parts without Go and without Python: built and run by the
 * tests of package memcheck, plain, under valgrind and under sanitizers. Whatever it hands
 * over lies in memory of exactly the size that the callee may look at.
 */
#ifndef USMB_DRIVE_H
#define USMB_DRIVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Conditions that held, and calls and allocations that were made to fail. */
extern long checks, failures;

#define CHECK(condition) \
	do { \
		__atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED); \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

/* Numbers that are the same in each run. */
uint64_t draw(uint64_t *state);

/* The n-th allocation of the C parts from now on fails, none for 0; how many there were. */
void scarce_arm(long n);
long scarce_count(void);

/* Makes a mistake. */
int wrong(const char *mistake);

void drive_cells(long rounds);
void drive_tensors(long rounds);
void drive_sycl(const char *library, long step);

#endif
