//go:build cgo

#define _GNU_SOURCE
#include "usmb_guardtest.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

uint64_t usmb_test_sum(const unsigned char *p, size_t n)
{
	const volatile unsigned char *v = p;
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) sum += v[i];
	return sum;
}

typedef struct job {
	const unsigned char *p;
	size_t n;
	int own_stack, rc;
	uint64_t sum;
} job;

static void *work(void *arg)
{
	job *j = arg;
	stack_t stack;

	memset(&stack, 0, sizeof stack);
	if (j->own_stack) {
		stack.ss_size = 64 << 10;
		stack.ss_sp = malloc(stack.ss_size);
		if (stack.ss_sp == NULL || sigaltstack(&stack, NULL) != 0) {
			j->rc = ENOMEM;
			return NULL;
		}
	}
	j->sum = usmb_test_sum(j->p, j->n);
	if (j->own_stack) {
		void *memory = stack.ss_sp;

		stack.ss_flags = SS_DISABLE;
		(void)sigaltstack(&stack, NULL);
		free(memory);
	}
	return NULL;
}

int usmb_test_sum_on_thread(const unsigned char *p, size_t n, int own_stack, uint64_t *sum)
{
	job j = {.p = p, .n = n, .own_stack = own_stack};
	pthread_t t;
	int rc = pthread_create(&t, NULL, work, &j);

	if (rc != 0) return rc;
	pthread_join(t, NULL);
	*sum = j.sum;
	return j.rc;
}

static struct sigaction before[2];
static int calls[2];

static void chaining(int sig, siginfo_t *info, void *context)
{
	__atomic_add_fetch(&calls[0], 1, __ATOMIC_SEQ_CST);
	if (before[0].sa_flags & SA_SIGINFO) before[0].sa_sigaction(sig, info, context);
}

static void leaving(int sig, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	__atomic_add_fetch(&calls[1], 1, __ATOMIC_SEQ_CST);
	(void)sigaction(sig, &before[1], NULL);
}

int usmb_test_install(int kind)
{
	struct sigaction act;

	memset(&act, 0, sizeof act);
	act.sa_sigaction = kind == 0 ? chaining : leaving;
	act.sa_flags = SA_SIGINFO | SA_ONSTACK;
	return sigaction(SIGBUS, &act, &before[kind]) == 0 ? 0 : errno;
}

int usmb_test_calls(int kind)
{
	return __atomic_load_n(&calls[kind], __ATOMIC_SEQ_CST);
}
