/*
 * Keeping a process's signal handlers through calls that install others.
 * Private to this package.
 */
#ifndef USMB_SYCL_SIGNALS_H
#define USMB_SYCL_SIGNALS_H

#include <signal.h>

typedef struct usmb_signals {
	struct sigaction actions[NSIG];
	unsigned char valid[NSIG];
	stack_t stack;
} usmb_signals;

/* The handlers of the process and the signal stack of this thread, now. */
void usmb_signals_save(usmb_signals *s);
/* Puts back what has changed since, on the same thread. */
void usmb_signals_restore(const usmb_signals *s);

#endif
