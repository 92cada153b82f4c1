//go:build linux && cgo

#define _GNU_SOURCE
#include "signals.h"

#include <string.h>

/*
 * Drivers contain an LLVM that installs its own handlers for SIGSEGV and other signals, and its own signal
 * stack, when it is first used. A nil dereference in Go would then end the process instead of being a
 * panic, and an embedded interpreter would lose its handlers.
 */
void usmb_signals_save(usmb_signals *s)
{
	int sig;

	memset(s, 0, sizeof *s);
	for (sig = 1; sig < NSIG; sig++) s->valid[sig] = sigaction(sig, NULL, &s->actions[sig]) == 0;
	if (sigaltstack(NULL, &s->stack) != 0) s->stack.ss_flags = SS_ONSTACK;
}

void usmb_signals_restore(const usmb_signals *s)
{
	struct sigaction now;
	stack_t stack;
	int sig;

	for (sig = 1; sig < NSIG; sig++)
		if (s->valid[sig] && sigaction(sig, NULL, &now) == 0 &&
		    now.sa_sigaction != s->actions[sig].sa_sigaction)
			(void)sigaction(sig, &s->actions[sig], NULL);
	/* The stack cannot be replaced while it is in use. */
	if (s->stack.ss_flags != SS_ONSTACK && sigaltstack(NULL, &stack) == 0 && stack.ss_sp != s->stack.ss_sp)
		(void)sigaltstack(&s->stack, NULL);
}
