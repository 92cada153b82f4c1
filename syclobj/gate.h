/*
 * The gate for calls of the SYCL runtime and of CUDA's driver while there are devices of the CUDA backend. Each such
 * call passes it. The gate
 *   - restores the context of CUDA that was current in the thread, because SYCL's adapter leaves its own current,
 *     and the next calls of PyTorch or CuPy would use another device;
 *   - sets the capture mode of the thread to relaxed meanwhile, so that queries, allocations and frees do not
 *     invalidate the capture of a CUDA graph on another thread;
 *   - catches the exceptions of functions that have no handler themselves.
 * Private to this package.
 */
#ifndef USMB_SYCL_GATE_H
#define USMB_SYCL_GATE_H

#include "usmb_sycl.h"

typedef struct usmb_gate {
	void *before; /* the current context, if restores */
	int restores;
	int relaxed, mode; /* the former capture mode, if relaxed */
	int outermost;     /* the thread was in no gate; otherwise the rest is not set */
	int skipped;       /* of usmb_gate_enter_for_some */
} usmb_gate;

/* Between them, the thread may have another current context. They do nothing in processes without CUDA's driver, and
 * inside another gate of the thread. */
void usmb_gate_enter(usmb_gate *g);
void usmb_gate_leave(const usmb_gate *g);
/* The same around several calls that each pass the gate, so that the driver is called once for all. They do nothing
 * where the gate is not closed. */
void usmb_gate_enter_for_some(usmb_gate *g);
void usmb_gate_leave_after_some(const usmb_gate *g);

/* Sets whether calls pass the gate, as they do at first. Called when the list of devices is known. */
void usmb_gate_set(int gated);
int usmb_gated(void);

/* Reports whether the last allocation, free, copy or fill of this thread failed because work on the device had failed
 * before. */
int usmb_gate_lost(void);

/* What DPCTLUSM_GetPointerType returns through the gate if the runtime threw an exception. */
enum { USMB_USM_FAILED = -1 };
/* The result for a kind that is not one of USM: ENOTUSM, or EASYNC if the runtime could not be asked. */
static inline int usmb_kind_error(int kind)
{
	return kind == USMB_USM_FAILED ? USMB_SYCL_EASYNC : USMB_SYCL_ENOTUSM;
}

/* Functions of CUDA's driver, with the signatures of cuda.h. Each returns 0 on success. */
struct usmb_cu {
	int (*cuPointerGetAttribute)(void *value, int attribute, unsigned long long address);
	int (*cuDeviceGet)(int *device, int ordinal);
	int (*cuDeviceGetCount)(int *count);
	int (*cuDevicePrimaryCtxGetState)(int device, unsigned *flags, int *active);
	int (*cuDevicePrimaryCtxRetain)(void **context, int device);
	int (*cuDevicePrimaryCtxRelease_v2)(int device);
	int (*cuCtxGetCurrent)(void **context);
	int (*cuCtxSetCurrent)(void *context);
	int (*cuCtxSynchronize)(void);
	int (*cuMemGetInfo_v2)(size_t *free, size_t *total);
	int (*cuStreamSynchronize)(void *stream);
	int (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
	int (*cuEventCreate)(void **event, unsigned flags);
	int (*cuEventDestroy_v2)(void *event);
	/* Newer ones, which may be NULL: */
	int (*cuCtxRecordEvent)(void *context, void *event); /* since CUDA 12.5 */
	int (*cuThreadExchangeStreamCaptureMode)(int *mode); /* since CUDA 10.1 */
};
/* Returns them, or NULL if the process has not loaded the driver. */
const struct usmb_cu *usmb_cu_driver(void);

/*
 * Calls work with an argument and the primary context of a device, which is current meanwhile. Returns OK, EASYNC
 * for an error of the driver, ECAPTURE if it is that of a capture.
 */
int usmb_gate_device(int32_t ordinal, int (*work)(void *context, void *argument), void *argument);
/* Calls f(arg), of which only the lowest byte counts. Returns -1 if it threw an exception of C++. */
int usmb_guarded(int (*f)(const void *), const void *arg);
/* Puts the gate in front of the functions in usmb_dp, and finds the functions of C++ that it uses. Called
 * before usmb_symbols_ready is set, so that no other thread reads usmb_dp meanwhile. */
void usmb_gate_bind(void *lib);
/* CUDA's number of a SYCL device of the CUDA backend, -1 if it is not known. */
int32_t usmb_gate_ordinal(void *device);

#endif
