/*
 * The functions of libDPCTLSyclInterface.so that this package uses, with the prototype and ownership of
 * each in the terms of its headers (dpctl/include/syclinterface, 0.17 to 0.22). "give": the caller owns
 * the result; "take": the call consumes the argument; everything else is borrowed for the call.
 *
 * Failure is NULL (or zero) plus a line on stderr with DPCTL_VERBOSITY=error. Functions marked NOTHROW!
 * have no try/catch around C++ code that may throw, so a failure inside them ends the process: callers
 * check the arguments first, if there is something to check.
 *
 * Private to this package.
 */
#ifndef USMB_SYCL_SYMBOLS_H
#define USMB_SYCL_SYMBOLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Calls of a few dozen nanoseconds take up to 13 % longer after unrelated changes, depending on the
 * addresses of functions. Aligning functions avoids that; see interop/python/usmb_pyapi.h.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("align-functions=32")
#endif

typedef void usmb_async_handler(int code);

/* Bits of device identifiers and properties, from dpctl_sycl_enum_types.h. */
enum {
	DP_ALL_DEVICES = (1 << 6) - 1,
	DP_ALL_BACKENDS = ((1 << 5) - 1) << 16,
	DP_ENABLE_PROFILING = 1 << 0,
	DP_IN_ORDER = 1 << 1,
	DP_EVENT_UNKNOWN = 0,
	DP_EVENT_COMPLETE = 3,
	DP_ASPECT_FP64 = 6,
	DP_ASPECT_USM_DEVICE = 12,
	DP_ASPECT_USM_HOST = 13,
	DP_ASPECT_USM_SHARED = 14,
	DP_ASPECT_IPC_MEMORY = 22 /* of libraries that have the optional functions below */
};

/* Types of kernel arguments, DPCTLKernelArgType. The numbers up to the local accessor's
 * are those of 0.17; the raw argument and its functions exist since 0.20. */
enum {
	DP_ARG_UINT8 = 1,
	DP_ARG_UINT16 = 3,
	DP_ARG_UINT32 = 5,
	DP_ARG_UINT64 = 7,
	DP_ARG_POINTER = 10,
	DP_ARG_LOCAL = 11,
	DP_ARG_RAW = 13
};

/* MDLocalAccessor of dpctl_sycl_queue_interface.h. */
typedef struct usmb_local_accessor {
	size_t ndim;
	int type; /* of an element */
	size_t dims[3];
} usmb_local_accessor;

#define USMB_DPCTL_FUNCTIONS(X) \
	/* service: version text of the DPC++ compiler; give, deleted with CString */ \
	X(const char *, DPCTLService_GetDPCPPVersion, (void)) \
	X(void, DPCTLCString_Delete, (const char *take)) \
	/* list of root devices in the runtime's order, without those that the default \
	 * selector rejects, which have no number in any DLPack peer either; give. This \
	 * function and the next read the type of each device, which may throw. Callers \
	 * cannot check anything first, because the list does not exist yet. */ \
	X(void *, DPCTLDeviceMgr_GetDevices, (int identifier)) /* NOTHROW! */ \
	/* position of a root device among those of identifier, -1 when absent */ \
	X(int, DPCTLDeviceMgr_GetPositionInDevices, (void *device, int identifier)) /* NOTHROW! */ \
	/* default context of a root device; give, NULL for other devices */ \
	X(void *, DPCTLDeviceMgr_GetCachedContext, (void *device)) \
	X(size_t, DPCTLDeviceVector_Size, (void *vector)) \
	/* a copy of the element; give */ \
	X(void *, DPCTLDeviceVector_GetAt, (void *vector, size_t index)) \
	/* deletes the elements too; take */ \
	X(void, DPCTLDeviceVector_Delete, (void *take)) \
	/* copies the devices; give */ \
	X(void *, DPCTLDeviceVector_CreateFromArray, (size_t n, void **devices)) \
	/* the choice of the default selector; give */ \
	X(void *, DPCTLDevice_Create, (void)) \
	/* give; NULL when nothing matches */ \
	X(void *, DPCTLDevice_CreateFromSelector, (void *selector)) \
	X(void *, DPCTLDevice_Copy, (void *device)) /* give */ \
	X(void, DPCTLDevice_Delete, (void *take)) \
	X(int, DPCTLDevice_GetBackend, (void *device)) \
	X(int, DPCTLDevice_GetDeviceType, (void *device)) \
	X(const char *, DPCTLDevice_GetName, (void *device))          /* give */ \
	X(const char *, DPCTLDevice_GetVendor, (void *device))        /* give */ \
	X(const char *, DPCTLDevice_GetDriverVersion, (void *device)) /* give */ \
	X(size_t, DPCTLDevice_GetGlobalMemSize, (void *device)) \
	X(size_t, DPCTLDevice_GetMaxMemAllocSize, (void *device)) /* NOTHROW! */ \
	X(uint32_t, DPCTLDevice_GetMaxComputeUnits, (void *device)) \
	X(uint32_t, DPCTLDevice_GetPartitionMaxSubDevices, (void *device)) \
	X(void *, DPCTLDevice_GetPlatform, (void *device)) /* give */ \
	/* give; NULL for a root device */ \
	X(void *, DPCTLDevice_GetParentDevice, (void *device)) \
	X(bool, DPCTLDevice_AreEq, (void *a, void *b)) \
	X(size_t, DPCTLDevice_Hash, (void *device)) \
	X(bool, DPCTLDevice_HasAspect, (void *device, int aspect)) \
	/* vectors of sub-devices; give, NULL if the device does not support the split */ \
	X(void *, DPCTLDevice_CreateSubDevicesEqually, (void *device, size_t units)) \
	X(void *, DPCTLDevice_CreateSubDevicesByCounts, (void *device, size_t *counts, size_t n)) \
	X(void *, DPCTLDevice_CreateSubDevicesByAffinity, (void *device, int domain)) \
	X(const char *, DPCTLPlatform_GetName, (void *platform))    /* give */ \
	X(const char *, DPCTLPlatform_GetVendor, (void *platform))  /* give */ \
	X(const char *, DPCTLPlatform_GetVersion, (void *platform)) /* give */ \
	X(int, DPCTLPlatform_GetBackend, (void *platform)) \
	X(void, DPCTLPlatform_Delete, (void *take)) \
	X(bool, DPCTLPlatform_AreEq, (void *a, void *b)) \
	/* give */ \
	X(void *, DPCTLPlatform_GetDefaultContext, (void *platform)) \
	/* give; NULL for text that is no filter */ \
	X(void *, DPCTLFilterSelector_Create, (const char *filter)) \
	X(void, DPCTLDeviceSelector_Delete, (void *take)) \
	X(void *, DPCTLContext_Create, (void *device, usmb_async_handler *, int properties))            /* give */ \
	X(void *, DPCTLContext_CreateFromDevices, (void *vector, usmb_async_handler *, int properties)) /* give */ \
	X(bool, DPCTLContext_AreEq, (void *a, void *b)) \
	X(void *, DPCTLContext_Copy, (void *ctx))       /* give */ \
	X(void *, DPCTLContext_GetDevices, (void *ctx)) /* give: a vector */ \
	X(void, DPCTLContext_Delete, (void *take)) \
	X(size_t, DPCTLContext_Hash, (void *ctx)) \
	X(void *, DPCTLQueue_Create, (void *ctx, void *device, usmb_async_handler *, int properties)) /* give */ \
	X(void, DPCTLQueue_Delete, (void *take)) \
	X(void *, DPCTLQueue_Copy, (void *queue)) /* give */ \
	X(bool, DPCTLQueue_AreEq, (void *a, void *b)) \
	X(void *, DPCTLQueue_GetContext, (void *queue)) /* give */ \
	X(void *, DPCTLQueue_GetDevice, (void *queue))  /* give */ \
	X(bool, DPCTLQueue_IsInOrder, (void *queue)) \
	X(bool, DPCTLQueue_HasEnableProfiling, (void *queue)) \
	X(size_t, DPCTLQueue_Hash, (void *queue)) \
	/* submissions give an event, NULL on failure */ \
	X(void *, DPCTLQueue_Memcpy, (void *queue, void *dst, const void *src, size_t size)) \
	X(void *, DPCTLQueue_MemcpyWithEvents, \
	  (void *queue, void *dst, const void *src, size_t size, void **events, size_t n)) \
	X(void *, DPCTLQueue_Prefetch, (void *queue, const void *ptr, size_t size)) \
	X(void *, DPCTLQueue_SubmitBarrierForEvents, (void *queue, void **events, size_t n)) \
	X(void *, DPCTLQueue_Memset, (void *queue, void *ptr, uint8_t value, size_t count)) \
	X(void *, DPCTLQueue_Fill8, (void *queue, void *ptr, uint8_t value, size_t count)) \
	X(void *, DPCTLQueue_Fill16, (void *queue, void *ptr, uint16_t value, size_t count)) \
	X(void *, DPCTLQueue_Fill32, (void *queue, void *ptr, uint32_t value, size_t count)) \
	X(void *, DPCTLQueue_Fill64, (void *queue, void *ptr, uint64_t value, size_t count)) \
	X(void *, DPCTLQueue_Fill128, (void *queue, void *ptr, uint64_t *value, size_t count)) \
	X(void, DPCTLEvent_WaitAndThrow, (void *event)) \
	X(void, DPCTLEvent_Delete, (void *take)) \
	X(void *, DPCTLEvent_Copy, (void *event)) /* give */ \
	/* the events that a command depends on: give a vector */ \
	X(void *, DPCTLEvent_GetWaitList, (void *event)) \
	X(size_t, DPCTLEventVector_Size, (void *vector)) \
	X(void *, DPCTLEventVector_GetAt, (void *vector, size_t i)) /* give */ \
	X(void, DPCTLEventVector_Delete, (void *take)) \
	X(int, DPCTLEvent_GetCommandExecutionStatus, (void *event)) \
	/* nanoseconds of the device's clock; wait for the event */ \
	X(uint64_t, DPCTLEvent_GetProfilingInfoSubmit, (void *event)) \
	X(uint64_t, DPCTLEvent_GetProfilingInfoStart, (void *event)) \
	X(uint64_t, DPCTLEvent_GetProfilingInfoEnd, (void *event)) \
	/* USM; give a pointer, NULL when out of memory */ \
	X(void *, DPCTLaligned_alloc_device, (size_t align, size_t size, void *queue)) \
	X(void *, DPCTLaligned_alloc_shared, (size_t align, size_t size, void *queue)) \
	X(void *, DPCTLaligned_alloc_host, (size_t align, size_t size, void *queue)) /* NOTHROW! */ \
	X(void, DPCTLfree_with_context, (void *take, void *ctx))                     /* NOTHROW! */ \
	X(int, DPCTLUSM_GetPointerType, (void *ptr, void *ctx))                      /* NOTHROW! */ \
	/* give */ \
	X(void *, DPCTLUSM_GetPointerDevice, (void *ptr, void *ctx)) /* NOTHROW! */ \
	/* programs (executable kernel bundles); give, NULL if the compiler refused; its log is \
	 * not available */ \
	X(void *, DPCTLKernelBundle_CreateFromOCLSource, \
	  (void *ctx, void *device, const char *source, const char *options)) \
	X(void *, DPCTLKernelBundle_CreateFromSpirv, \
	  (void *ctx, void *device, const void *il, size_t size, const char *options)) \
	/* give; NULL if the program has no kernel of that name. Each call creates a kernel object \
	 * of the driver. */ \
	X(void *, DPCTLKernelBundle_GetKernel, (void *bundle, const char *name)) \
	X(void, DPCTLKernelBundle_Delete, (void *take)) \
	X(size_t, DPCTLKernel_GetNumArgs, (void *kernel)) /* NOTHROW! */ \
	X(void, DPCTLKernel_Delete, (void *take)) \
	/* launches; give an event, NULL on failure. args holds addresses of scalars, pointers \
	 * themselves, and addresses of local accessors. The library sets the arguments and submits \
	 * with the lock of the kernel held, so that several threads can launch one kernel. */ \
	X(void *, DPCTLQueue_SubmitRange, \
	  (void *kernel, void *queue, void **args, const int *types, size_t nargs, const size_t *global, size_t ndim, \
	   void **events, size_t nevents)) \
	X(void *, DPCTLQueue_SubmitNDRange, \
	  (void *kernel, void *queue, void **args, const int *types, size_t nargs, const size_t *global, \
	   const size_t *local, size_t ndim, void **events, size_t nevents)) \
	X(uint64_t, DPCTLDevice_GetLocalMemSize, (void *device)) \
	X(size_t, DPCTLDevice_GetMaxWorkGroupSize, (void *device)) \
	/* three numbers, deleted with Size_t_Array; NULL on failure */ \
	X(size_t *, DPCTLDevice_GetMaxWorkItemSizes3d, (void *device)) \
	X(void, DPCTLSize_t_Array_Delete, (size_t *take))

/*
 * Functions that older libraries lack: the table has NULL for them. Those for memory
 * between processes exist in libraries after 0.22; the declarations are from
 * dpctl_sycl_ipc_memory_interface.h and dpctl_sycl_extension_interface.h of dpctl's
 * development.
 */
#define USMB_DPCTL_OPTIONAL(X) \
	/* 0.20: an argument of a kernel, of any bytes, which it copies; give */ \
	X(bool, DPCTLRawKernelArg_Available, (void)) \
	X(void *, DPCTLRawKernelArg_Create, (void *bytes, size_t count)) \
	X(void, DPCTLRawKernelArg_Delete, (void *take)) \
	/* returns whether the library was built with an implementation of the next four */ \
	X(bool, DPCTLIPCMem_Available, (void)) \
	/* 0 on success. Gives a handle by which another process can open the allocation of \
	 * device USM that begins at ptr; it is valid while the memory is allocated */ \
	X(int, DPCTLIPCMem_GetHandle, (void *ptr, void *ctx, char **give_data, size_t *size)) \
	/* give, to be closed; NULL on failure */ \
	X(void *, DPCTLIPCMem_OpenHandle, (const char *data, size_t size, void *ctx, void *device)) \
	X(void, DPCTLIPCMem_CloseHandle, (void *take, void *ctx)) \
	X(void, DPCTLIPCMem_FreeHandleData, (char *take))

struct usmb_dpctl {
#define X(ret, name, args) ret(*name) args;
	USMB_DPCTL_FUNCTIONS(X)
	USMB_DPCTL_OPTIONAL(X)
#undef X
};

/* Written once, before usmb_symbols_ready is set, and never again. */
extern struct usmb_dpctl usmb_dp;
extern _Atomic int usmb_symbols_ready;

static inline int usmb_ready(void)
{
	return atomic_load_explicit(&usmb_symbols_ready, memory_order_acquire);
}

/* Finds the function behind usmb_sycl_queue_empty. lib is the handle of dlopen. Called before usmb_symbols_ready is set. */
void usmb_empty_bind(void *lib);

/* Counts of live references; index USMB_LIVE_*. */
extern _Atomic int64_t usmb_live_counts[];

static inline void *usmb_gave(int sort, void *ref)
{
	if (ref != NULL) atomic_fetch_add_explicit(&usmb_live_counts[sort], 1, memory_order_relaxed);
	return ref;
}
static inline void usmb_took(int sort)
{
	atomic_fetch_sub_explicit(&usmb_live_counts[sort], 1, memory_order_relaxed);
}

/* Handler for asynchronous errors of queues and contexts made here. */
void usmb_async_error(int code);

#endif
