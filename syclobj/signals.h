/*
 * Preserving the signal handlers of the process across calls that install handlers. Private to this package.
 */
#ifndef USMB_SYCL_SIGNALS_H
#define USMB_SYCL_SIGNALS_H

#include <signal.h>

typedef struct usmb_signals {
	struct sigaction actions[NSIG];
	unsigned char valid[NSIG];
	stack_t stack;
} usmb_signals;

/* Saves the handlers of the process and the signal stack of this thread. */
void usmb_signals_save(usmb_signals *s);
/* Restores those that have changed since, on the same thread. */
void usmb_signals_restore(const usmb_signals *s);

#endif
