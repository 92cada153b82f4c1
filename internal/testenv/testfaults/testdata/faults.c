/*
 * A stand-in for libDPCTLSyclInterface.so that forwards each function of symbols.h to the real library,
 * and makes calls fail on request. x86-64 only, as the real library.
 *
 * USMBRIDGE_FAULTS_LIBRARY is the path of the real library, and USMBRIDGE_FAULTS that of a file of zeros,
 * at least sizeof(struct control) bytes, through which the test controls this library. The first call of the
 * function that USMBRIDGE_FAULTS_FIRST names fails. With USMBRIDGE_FAULTS_SHIFT, a power of two, no block is
 * aligned to more bytes than that, and larger alignments are ignored. USMBRIDGE_FAULTS_ALIGN is the largest
 * alignment that is not refused.
 */
#define _GNU_SOURCE
#include "symbols.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The layout of the file; faults.go and tests/faults.py know the offsets. */
struct row {
	char name[48];
	_Atomic int64_t left; /* 48: the call, counted from now on, that fails; 0 for none */
	_Atomic int64_t calls;
};
enum { ROWS = 127 };
static struct control {
	_Atomic uint32_t rate;   /* 0: calls in a million that fail at random */
	_Atomic uint64_t failed; /* 8: calls that failed */
	_Atomic uint64_t random; /* 16: state of the generator */
	char reserved[40];
	struct row rows[ROWS];
} *control;

/* Offsets 0 and 8 are used below. */
struct fault {
	void *real;
	int64_t value; /* the result of a failed call */
	int fails;     /* the real function can report a failure */
	struct row *row;
};

/* Each function stores the arguments, calls decide, and then returns or continues with the real function.
 * All arguments of all functions are in integer registers and on the stack. */
__asm__(".text\n"
        "faults_common:\n"
        "push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n push %rax\n"
        "mov %rax, %rdi\n mov %rsp, %rsi\n call faults_decide\n"
        "pop %r11\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n"
        "test %eax, %eax\n jnz 1f\n jmp *0(%r11)\n"
        "1: mov 8(%r11), %rax\n ret\n");

#define X(ret, name, args) \
	__attribute__((visibility("hidden"))) struct fault fault_##name; \
	__asm__(".globl " #name "\n .type " #name ", @function\n" #name ":\n lea fault_" #name \
	        "(%rip), %rax\n jmp faults_common\n");
USMB_DPCTL_FUNCTIONS(X)
#undef X

/*
 * Allocations of a driver that does not align as requested. Its blocks lie shift bytes past the real ones,
 * which are aligned to more, unless the real driver refuses that.
 */
static size_t shift, most;
#define SHIFTED(name) \
	static void *(*real_##name)(size_t, size_t, void *); \
	static void *shifted_##name(size_t align, size_t size, void *queue) \
	{ \
		char *p; \
		if (most != 0 && align > most) return NULL; \
		p = real_##name(align > 2 * shift ? align : 2 * shift, size + shift, queue); \
		if (p == NULL) p = real_##name(0, size + shift, queue); \
		return p != NULL ? p + shift : NULL; \
	}
SHIFTED(DPCTLaligned_alloc_device)
SHIFTED(DPCTLaligned_alloc_shared)
SHIFTED(DPCTLaligned_alloc_host)
static void (*real_DPCTLfree_with_context)(void *, void *);
static void shifted_DPCTLfree_with_context(void *p, void *context)
{
	real_DPCTLfree_with_context((char *)p - shift, context);
}

static size_t number_of(const char *variable)
{
	const char *text = getenv(variable);

	return text != NULL ? strtoul(text, NULL, 0) : 0;
}

static void shift_blocks(void)
{
	shift = number_of("USMBRIDGE_FAULTS_SHIFT");
	most = number_of("USMBRIDGE_FAULTS_ALIGN");
	if (shift == 0 && most == 0) return;
#define REPLACE(name) \
	real_##name = fault_##name.real; \
	fault_##name.real = shifted_##name;
	REPLACE(DPCTLaligned_alloc_device)
	REPLACE(DPCTLaligned_alloc_shared)
	REPLACE(DPCTLaligned_alloc_host)
	REPLACE(DPCTLfree_with_context)
}

static usmb_async_handler *_Atomic handler; /* of the queues, which all have the same */

static int is_allocation(struct fault *f)
{
	return f == &fault_DPCTLaligned_alloc_device || f == &fault_DPCTLaligned_alloc_shared ||
	       f == &fault_DPCTLaligned_alloc_host;
}

static int is_chosen(struct fault *f)
{
	uint64_t x = atomic_fetch_add(&control->random, 0x9e3779b97f4a7c15u);

	atomic_fetch_add(&f->row->calls, 1);
	if (!f->fails) return 0;
	if (atomic_load(&f->row->left) > 0 && atomic_fetch_sub(&f->row->left, 1) == 1) return 1;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (x >> 32) % 1000000 < atomic_load_explicit(&control->rate, memory_order_relaxed);
}

/*
 * saved: the function, r9, r8, rcx, rdx, rsi, rdi. Returns whether the call fails. An allocation without an
 * alignment after one that failed is a part of the same request, and fails as well.
 */
__attribute__((visibility("hidden"), used)) int faults_decide(struct fault *f, void **saved)
{
	static _Thread_local struct fault *failed;
	int again = f == failed && saved[6] == NULL, chosen = again || is_chosen(f);

	if (is_allocation(f)) failed = chosen ? f : NULL;
	if (f == &fault_DPCTLQueue_Create) atomic_store(&handler, (usmb_async_handler *)saved[4]);
	if (!chosen) return 0;
	atomic_fetch_add(&control->failed, 1);
	/* Work that failed is reported to the handler by the wait. */
	if (f == &fault_DPCTLEvent_WaitAndThrow) {
		((void (*)(void *))f->real)(saved[6]);
		if (atomic_load(&handler) != NULL) atomic_load (&handler)(-5);
	}
	return 1;
}

/* The functions that report a failure by another result than NULL, and the result. */
static const struct {
	const char *name;
	int64_t value;
} others[] = {{"DPCTLDeviceMgr_GetPositionInDevices", -1},
              {"DPCTLDevice_GetDeviceType", 0},
              {"DPCTLDevice_HasAspect", 0},
              {"DPCTLDevice_GetGlobalMemSize", 0},
              {"DPCTLDevice_GetMaxComputeUnits", 0},
              {"DPCTLEvent_GetCommandExecutionStatus", 0},
              {"DPCTLEvent_WaitAndThrow", 0}};

static void describe(struct fault *f, const char *result, const char *name)
{
	/* NULL from this function means a root device, so that a failure cannot be told apart. */
	f->fails = strchr(result, '*') != NULL && strcmp(name, "DPCTLDevice_GetParentDevice") != 0;
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (strcmp(name, others[i].name) == 0) {
			f->fails = 1;
			f->value = others[i].value;
		}
	strncpy(f->row->name, name, sizeof f->row->name - 1);
	if (getenv("USMBRIDGE_FAULTS_FIRST") != NULL && strcmp(getenv("USMBRIDGE_FAULTS_FIRST"), name) == 0)
		atomic_store(&f->row->left, 1);
}

static void die(const char *why)
{
	fprintf(stderr, "faults: %s\n", why);
	abort();
}

__attribute__((constructor)) static void load(void)
{
	const char *path = getenv("USMBRIDGE_FAULTS_LIBRARY"), *file = getenv("USMBRIDGE_FAULTS");
	void *real = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	int fd = file != NULL ? open(file, O_RDWR | O_CLOEXEC) : -1, n = 0;

	if (real == NULL) die(path != NULL ? dlerror() : "USMBRIDGE_FAULTS_LIBRARY is not set");
	control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || control == MAP_FAILED) die("USMBRIDGE_FAULTS names no file");
#define X(ret, name, args) \
	if (n == ROWS) die("too many functions"); \
	fault_##name.row = &control->rows[n++]; \
	fault_##name.real = dlsym(real, #name); \
	describe(&fault_##name, #ret, #name);
	USMB_DPCTL_FUNCTIONS(X)
#undef X
	shift_blocks();
}
