//go:build linux && cgo

#include "kernel.h"
#include "objects.h"
#include "signals.h"
#include "symbols.h"
#include "usmb_sycl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void usmb_work_limits_of(void *device, usmb_work_limits *out)
{
	size_t *extent = usmb_dp.DPCTLDevice_GetMaxWorkItemSizes3d(device);

	memset(out, 0, sizeof *out);
	out->local_bytes = usmb_dp.DPCTLDevice_GetLocalMemSize(device);
	out->group = usmb_dp.DPCTLDevice_GetMaxWorkGroupSize(device);
	if (extent == NULL) return;
	memcpy(out->extent, extent, sizeof out->extent);
	usmb_dp.DPCTLSize_t_Array_Delete(extent);
}

int usmb_program_new(void *ctx, void *device, const void *text, size_t n, int il, const char *options, void **out)
{
	usmb_signals signals;
	void *program;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	/* A driver loads its compiler, which installs signal handlers, at the first build. */
	usmb_signals_save(&signals);
	if (il)
		program = usmb_dp.DPCTLKernelBundle_CreateFromSpirv(ctx, device, text, n, options);
	else
		program = usmb_dp.DPCTLKernelBundle_CreateFromOCLSource(ctx, device, text, options);
	usmb_signals_restore(&signals);
	*out = usmb_gave(USMB_LIVE_PROGRAM, program);
	return program != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}

void usmb_program_delete(void *program)
{
	if (program == NULL) return;
	usmb_dp.DPCTLKernelBundle_Delete(program);
	usmb_took(USMB_LIVE_PROGRAM);
}

int usmb_kernel_new(void *program, const char *name, void **out, size_t *nargs)
{
	*out = usmb_gave(USMB_LIVE_KERNEL, usmb_dp.DPCTLKernelBundle_GetKernel(program, name));
	if (*out == NULL) return USMB_SYCL_EFAILED;
	*nargs = usmb_dp.DPCTLKernel_GetNumArgs(*out);
	return USMB_SYCL_OK;
}

void usmb_kernel_delete(void *kernel)
{
	if (kernel == NULL) return;
	usmb_dp.DPCTLKernel_Delete(kernel);
	usmb_took(USMB_LIVE_KERNEL);
}

int usmb_kernel_raw_available(void)
{
	return usmb_ready() && usmb_dp.DPCTLRawKernelArg_Available != NULL &&
	       usmb_dp.DPCTLRawKernelArg_Create != NULL && usmb_dp.DPCTLRawKernelArg_Delete != NULL &&
	       usmb_dp.DPCTLRawKernelArg_Available();
}

void *usmb_kernel_raw_new(const void *bytes, size_t n)
{
	return usmb_kernel_raw_available() ? usmb_dp.DPCTLRawKernelArg_Create((void *)bytes, n) : NULL;
}

void usmb_kernel_raw_delete(void *raw)
{
	if (raw != NULL) usmb_dp.DPCTLRawKernelArg_Delete(raw);
}

/* The arguments of a launch in the library's form. */
struct arguments {
	void *at[USMB_KERNEL_MAX_ARGS];
	int types[USMB_KERNEL_MAX_ARGS];
	usmb_local_accessor locals[USMB_KERNEL_MAX_ARGS];
};

static int set(struct arguments *a, const usmb_launch *l, uint32_t i)
{
	static const int scalars[] = {DP_ARG_UINT8, DP_ARG_UINT16, DP_ARG_UINT32, DP_ARG_UINT64};
	const uint64_t *value = &l->values[i];

	switch (l->kinds[i]) {
	case USMB_KERNEL_ARG_SCALAR1:
	case USMB_KERNEL_ARG_SCALAR2:
	case USMB_KERNEL_ARG_SCALAR4:
	case USMB_KERNEL_ARG_SCALAR8: /* the low bytes are at the start: both machines are little-endian */
		a->types[i] = scalars[l->kinds[i]];
		a->at[i] = (void *)value;
		return 1;
	case USMB_KERNEL_ARG_POINTER:
		a->types[i] = DP_ARG_POINTER;
		a->at[i] = (void *)(uintptr_t)*value;
		return 1;
	case USMB_KERNEL_ARG_LOCAL:
		a->types[i] = DP_ARG_LOCAL;
		a->locals[i] = (usmb_local_accessor){1, DP_ARG_UINT8, {(size_t)*value, 1, 1}};
		a->at[i] = &a->locals[i];
		return 1;
	case USMB_KERNEL_ARG_RAW:
		a->types[i] = DP_ARG_RAW;
		a->at[i] = (void *)(uintptr_t)*value;
		return 1;
	}
	return 0;
}

/*
 * SYCL runtimes before 2025.1 (dpctl 0.17 and 0.18) do not order a kernel after events of other queues.
 * Determined by the version of the library's compiler, once.
 */
static int loses_order(void)
{
	static atomic_int known; /* 1: yes, 2: no */
	int answer = atomic_load_explicit(&known, memory_order_relaxed), year, minor;
	const char *version;

	if (answer == 0) {
		version = usmb_compiler_version();
		answer = version != NULL && sscanf(version, "%d.%d", &year, &minor) == 2 &&
		                         (year < 2025 || (year == 2025 && minor < 1))
		                 ? 1
		                 : 2;
		usmb_text_free(version);
		atomic_store_explicit(&known, answer, memory_order_relaxed);
	}
	return answer == 1;
}

int usmb_kernel_launch(void *queue, void *kernel, const usmb_launch *l, void **deps, size_t n, void **out_event)
{
	struct arguments a;
	void *event;

	if (!usmb_ready()) return USMB_SYCL_ENOLIB;
	if (l->nargs > USMB_KERNEL_MAX_ARGS || l->ndim < 1 || l->ndim > 3) return USMB_SYCL_EARG;
	for (uint32_t i = 0; i < l->nargs; i++)
		if (!set(&a, l, i)) return USMB_SYCL_EARG;
	if (n > 0 && loses_order())
		for (; n > 0; n--) usmb_dp.DPCTLEvent_WaitAndThrow(deps[n - 1]);
	if (l->grouped)
		event = usmb_dp.DPCTLQueue_SubmitNDRange(kernel, queue, a.at, a.types, l->nargs, l->global, l->local,
		                                         l->ndim, deps, n);
	else
		event = usmb_dp.DPCTLQueue_SubmitRange(kernel, queue, a.at, a.types, l->nargs, l->global, l->ndim, deps,
		                                       n);
	*out_event = usmb_gave(USMB_LIVE_EVENT, event);
	return event != NULL ? USMB_SYCL_OK : USMB_SYCL_EFAILED;
}
