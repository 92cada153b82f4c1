//go:build linux && cgo

/*
 * Whether a queue of SYCL has pending work.
 *
 * sycl::queue::ext_oneapi_empty answers without a barrier and without a wait. libDPCTLSyclInterface.so does not have it,
 * so it is called in libsycl by its C++ name. It may throw where a driver fails. Code without a handler for C++
 * exceptions would end the process, so call_guarded is one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "symbols.h"
#include "usmb_sycl.h"

/* Releases before this one of libsycl.so were not tested: there, queues count as busy. */
enum { FIRST_VERSION = 9 };

#if defined(__x86_64__)

static struct {
	int (*empty)(const void *queue);              /* bool sycl::queue::ext_oneapi_empty() const */
	void (*set_register)(void *, int, uintptr_t); /* _Unwind_SetGR */
	void (*set_address)(void *, uintptr_t);       /* _Unwind_SetIP */
	void *(*begin_catch)(void *);                 /* __cxa_begin_catch */
	void (*end_catch)(void);                      /* __cxa_end_catch */
	int guards;                                   /* these four are there */
} cxx; /* written before usmb_symbols_ready is set; empty is NULL if one of them is missing */

/* Calls f(arg), of which only the lowest byte counts. Returns -1 if it threw an exception. */
__attribute__((visibility("hidden"))) int usmb_call_guarded(int (*f)(const void *), const void *arg);
/* Parts of it. */
__attribute__((visibility("hidden"), used)) void usmb_guard_catch(void *exception);
__attribute__((visibility("hidden"), used)) int usmb_guard_personality(int version, int actions, uint64_t class,
                                                                       void *exception, void *context);
__attribute__((visibility("hidden"))) extern const char usmb_guard_handler[];

__asm__(".text\n"
        "	.p2align 5\n"
        "	.globl usmb_call_guarded\n"
        "	.hidden usmb_call_guarded\n"
        "	.type usmb_call_guarded, @function\n"
        "usmb_call_guarded:\n"
        "	.cfi_startproc\n"
        "	.cfi_personality 0x9b, usmb_guard_personality_at\n"
        "	endbr64\n"
        "	subq $8, %rsp\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	movq %rdi, %rax\n"
        "	movq %rsi, %rdi\n"
        "	call *%rax\n"
        "	movzbl %al, %eax\n"
        "	addq $8, %rsp\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	ret\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	.globl usmb_guard_handler\n"
        "	.hidden usmb_guard_handler\n"
        "usmb_guard_handler:\n"
        "	endbr64\n"
        "	movq %rax, %rdi\n"
        "	call usmb_guard_catch\n"
        "	movl $-1, %eax\n"
        "	addq $8, %rsp\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	ret\n"
        "	.cfi_endproc\n"
        "	.size usmb_call_guarded, .-usmb_call_guarded\n"
        "	.section .data.rel.local,\"aw\"\n"
        "	.p2align 3\n"
        "	.hidden usmb_guard_personality_at\n"
        "usmb_guard_personality_at:\n"
        "	.quad usmb_guard_personality\n"
        "	.text\n");

/* The personality routine of usmb_call_guarded, as the C++ ABI for Itanium defines it: it handles all exceptions, but not the end
 * of a thread. */
int usmb_guard_personality(int version, int actions, uint64_t class, void *exception, void *context)
{
	enum { SEARCH_PHASE = 1, HANDLER_FRAME = 4, FORCE_UNWIND = 8 };
	enum { FATAL_PHASE1_ERROR = 3, HANDLER_FOUND = 6, INSTALL_CONTEXT = 7, CONTINUE_UNWIND = 8 };

	(void)class;
	if (version != 1) return FATAL_PHASE1_ERROR;
	if (actions & FORCE_UNWIND) return CONTINUE_UNWIND;
	if (actions & SEARCH_PHASE) return HANDLER_FOUND;
	if (!(actions & HANDLER_FRAME)) return CONTINUE_UNWIND;
	cxx.set_register(context, 0 /* rax */, (uintptr_t)exception);
	cxx.set_address(context, (uintptr_t)usmb_guard_handler);
	return INSTALL_CONTEXT;
}

void usmb_guard_catch(void *exception)
{
	(void)cxx.begin_catch(exception);
	cxx.end_catch();
}

/* The number in the name of a library, as in libsycl.so.9; 0 if there is none. */
static int version_of(const void *address)
{
	Dl_info info;
	const char *name, *suffix;

	if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return 0;
	name = strrchr(info.dli_fname, '/');
	suffix = strstr(name != NULL ? name : info.dli_fname, ".so.");
	return suffix != NULL ? atoi(suffix + 4) : 0;
}

static int bind(void *lib, const char *name, void *to)
{
	void *fn = dlsym(lib, name);

	memcpy(to, &fn, sizeof fn);
	return fn != NULL;
}

void usmb_empty_bind(void *lib)
{
	int (*empty)(const void *) = NULL;
	void *fn;

	cxx.guards = bind(lib, "_Unwind_SetGR", &cxx.set_register) && bind(lib, "_Unwind_SetIP", &cxx.set_address) &&
	             bind(lib, "__cxa_begin_catch", &cxx.begin_catch) && bind(lib, "__cxa_end_catch", &cxx.end_catch);
	if (!cxx.guards || !bind(lib, "_ZNK4sycl3_V15queue16ext_oneapi_emptyEv", &empty)) return;
	memcpy(&fn, &empty, sizeof fn);
	if (version_of(fn) >= FIRST_VERSION) cxx.empty = empty;
}

int usmb_guarded(int (*f)(const void *), const void *arg)
{
	return cxx.guards ? usmb_call_guarded(f, arg) : f(arg) & 0xff;
}

int usmb_sycl_queue_empty(void *queue)
{
	usmb_gate g;
	int empty;

	if (!usmb_ready() || cxx.empty == NULL) return 0;
	if (!usmb_gated()) return usmb_call_guarded(cxx.empty, queue) == 1;
	usmb_gate_enter(&g);
	empty = usmb_call_guarded(cxx.empty, queue);
	usmb_gate_leave(&g);
	return empty == 1;
}

#else

void usmb_empty_bind(void *lib)
{
	(void)lib;
}

int usmb_sycl_queue_empty(void *queue)
{
	(void)queue;
	return 0;
}

int usmb_guarded(int (*f)(const void *), const void *arg)
{
	return f(arg) & 0xff; /* there is no CUDA backend for other processors */
}

#endif
