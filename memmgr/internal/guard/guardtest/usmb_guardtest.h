/* C code that reads memory as a driver does, and handlers of signals as drivers have them. */
#ifndef USMB_GUARDTEST_H
#define USMB_GUARDTEST_H

#include <stddef.h>
#include <stdint.h>

/* The sum of n bytes, on this thread. */
uint64_t usmb_test_sum(const unsigned char *p, size_t n);
/* The same on a thread that C makes: with a signal stack of its own, or none. 0, or an errno. */
int usmb_test_sum_on_thread(const unsigned char *p, size_t n, int own_stack, uint64_t *sum);
/*
 * Installs a handler of SIGBUS over what is there: kind 0 calls the one before it, kind 1 puts
 * that back and returns, as LLVM's does. 0, or an errno.
 */
int usmb_test_install(int kind);
/* How often they were called. */
int usmb_test_calls(int kind);

#endif
