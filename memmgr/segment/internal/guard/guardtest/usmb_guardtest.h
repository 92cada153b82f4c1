/* C code that reads memory and installs signal handlers as drivers do. */
#ifndef USMB_GUARDTEST_H
#define USMB_GUARDTEST_H

#include <stddef.h>
#include <stdint.h>

/* Returns the sum of n bytes, computed on this thread. */
uint64_t usmb_test_sum(const unsigned char *p, size_t n);
/* Computes the sum on a new thread, which has a signal stack if own_stack is not 0. Returns 0 or
 * an errno. */
int usmb_test_sum_on_thread(const unsigned char *p, size_t n, int own_stack, uint64_t *sum);
/*
 * Replaces the SIGBUS handler. Kind 0 calls the replaced handler; kind 1 reinstalls it and
 * returns, as the handler of LLVM does. Returns 0 or an errno.
 */
int usmb_test_install(int kind);
/* Returns how often the handler of a kind was called. */
int usmb_test_calls(int kind);

#endif
