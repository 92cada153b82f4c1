//go:build linux && cgo

/* What was ignored when this code came into the process. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>

#include "usmb_pysignals.h"

static unsigned char ignored[NSIG];

/* The lowest priority that is not the system's own: before Go's start, which has none. */
__attribute__((constructor(101))) static void note_ignored(void)
{
	struct sigaction now;
	for (int sig = 1; sig < NSIG; sig++)
		ignored[sig] = sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void usmb_py_ignore_again(void)
{
	struct sigaction now;
	for (int sig = 1; sig < NSIG; sig++)
		if (ignored[sig] && sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN) signal(sig, SIG_IGN);
}
