//go:build linux && cgo

package sycltest

/*
#cgo CFLAGS: -I${SRCDIR}/..
#include <stdlib.h>
#include "symbols.h"
#include "usmb_sycl.h"

static int go_check_loop(void *ctx, uintptr_t lo, uintptr_t hi, long n) {
	int err = 0;

	for (long i = 0; i < n && err == 0; i++) {
		usmb_place *p = NULL;

		err = usmb_sycl_place_for(ctx, NULL, (void *)lo, (void *)hi, &p);
		usmb_place_release(p);
	}
	return err;
}
static int go_import_loop(int32_t id, uintptr_t lo, uintptr_t hi, long n) {
	int err = 0;

	for (long i = 0; i < n && err == 0; i++) {
		usmb_place *p = NULL;

		err = usmb_sycl_dlpack_import(id, (void *)lo, (void *)hi, &p);
		usmb_place_release(p);
	}
	return err;
}
static int go_alloc(void *queue, int32_t kind, size_t size, void **out) {
	return usmb_sycl_alloc(queue, usmb_sycl_queue_kinds(queue), kind, size, 0, out);
}
static void go_nothing(void) {}
static uint64_t go_context_hash(void *ctx) { return usmb_dp.DPCTLContext_Hash(ctx); }

static void *go_program(void *queue, const char *source) {
	void *ctx = usmb_dp.DPCTLQueue_GetContext(queue), *device = usmb_dp.DPCTLQueue_GetDevice(queue);
	void *program = usmb_dp.DPCTLKernelBundle_CreateFromOCLSource(ctx, device, source, "");

	usmb_dp.DPCTLContext_Delete(ctx);
	usmb_dp.DPCTLDevice_Delete(device);
	return program;
}
static void *go_kernel(void *program, const char *name) { return usmb_dp.DPCTLKernelBundle_GetKernel(program, name); }
static void go_end(void *program, void *kernel) {
	if (kernel != NULL) usmb_dp.DPCTLKernel_Delete(kernel);
	if (program != NULL) usmb_dp.DPCTLKernelBundle_Delete(program);
}
static int go_launch_loop(void *kernel, void *queue, uintptr_t x, uintptr_t y, float f, size_t items, long n, long every) {
	void *args[] = {(void *)x, (void *)y, &f};
	int types[] = {DP_ARG_POINTER, DP_ARG_POINTER, 8}; // float32

	for (long i = 1; i <= n; i++) {
		void *event = usmb_dp.DPCTLQueue_SubmitRange(kernel, queue, args, types, 3, &items, 1, NULL, 0);

		if (event == NULL) return 1;
		if (i % every == 0 || i == n) usmb_dp.DPCTLEvent_WaitAndThrow(event);
		usmb_dp.DPCTLEvent_Delete(event);
	}
	return 0;
}
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// CheckInC makes n complete pointer checks with a context from C, for benchmarks that compare them with
// those from Go.
func CheckInC(ctx *syclobj.Context, lo, hi unsafe.Pointer, n int) syclobj.Code {
	return syclobj.Code(C.go_check_loop(ctx.Ref(), C.uintptr_t(uintptr(lo)), C.uintptr_t(uintptr(hi)), C.long(n)))
}

// ImportInC makes n kDLOneAPI imports from C, for the same purpose.
func ImportInC(id int32, lo, hi unsafe.Pointer, n int) syclobj.Code {
	return syclobj.Code(C.go_import_loop(C.int32_t(id), C.uintptr_t(uintptr(lo)), C.uintptr_t(uintptr(hi)), C.long(n)))
}

// ForeignAlloc allocates USM on the queue without the Go API, like another library in the process: no
// Place is retained, and Free does not know the memory. free frees it.
func ForeignAlloc(q *syclobj.Queue, kind syclobj.USMKind, size uintptr) (p unsafe.Pointer, free func(), err error) {
	ctx := C.usmb_sycl_queue_context(q.Ref())
	code := syclobj.Code(C.go_alloc(q.Ref(), C.int32_t(kind), C.size_t(size), &p))
	if code != 0 {
		C.usmb_sycl_context_delete(ctx)
		return nil, nil, code
	}
	return p, func() {
		C.usmb_sycl_free(ctx, p)
		C.usmb_sycl_context_delete(ctx)
	}, nil
}

// OrderInC makes later work of a queue start after all work on another one.
func OrderInC(q, other *syclobj.Queue) syclobj.Code {
	ref := other.Ref() // C memory
	return syclobj.Code(C.usmb_sycl_order(q.Ref(), nil, &ref, 1))
}

// ContextHash returns the runtime's hash of a context.
func ContextHash(c *syclobj.Context) uint64 { return uint64(C.go_context_hash(c.Ref())) }

// CodeText returns C's text of a result.
func CodeText(code syclobj.Code) string { return C.GoString(C.usmb_sycl_strerror(C.int(code))) }

// EmptyCall is a cgo call that does nothing, the reference of such comparisons.
func EmptyCall() { C.go_nothing() }

// LaunchInC builds a kernel of two pointers and a float from OpenCL C with the functions of the library
// alone. It returns a loop in C that launches it n times over that many work-items and waits after each
// every-th launch, for comparison with launches from Go.
func LaunchInC(q *syclobj.Queue, source, name string) (loop func(x, y unsafe.Pointer, f float32, items, n, every int) error, end func(), err error) {
	s, k := C.CString(source), C.CString(name)
	defer C.free(unsafe.Pointer(s))
	defer C.free(unsafe.Pointer(k))
	program := C.go_program(q.Ref(), s)
	if program == nil {
		return nil, nil, syclobj.ErrFailed
	}
	kernel := C.go_kernel(program, k)
	if kernel == nil {
		C.go_end(program, nil)
		return nil, nil, syclobj.ErrFailed
	}
	loop = func(x, y unsafe.Pointer, f float32, items, n, every int) error {
		if C.go_launch_loop(kernel, q.Ref(), C.uintptr_t(uintptr(x)), C.uintptr_t(uintptr(y)), C.float(f), C.size_t(items), C.long(n), C.long(every)) != 0 {
			return syclobj.ErrFailed
		}
		return nil
	}
	return loop, func() { C.go_end(program, kernel) }, nil
}
