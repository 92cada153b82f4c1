//go:build linux && cgo

package sycltest

/*
#cgo CFLAGS: -I${SRCDIR}/..
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
static uint64_t go_context_hash(void *ctx) { return usmb_dp.DPCTLContext_Hash(ctx); }
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// CheckInC makes n complete pointer checks with a context from C, which calls no Go code.
func CheckInC(ctx *syclobj.Context, lo, hi unsafe.Pointer, n int) syclobj.Code {
	return syclobj.Code(C.go_check_loop(ctx.Ref(), C.uintptr_t(uintptr(lo)), C.uintptr_t(uintptr(hi)), C.long(n)))
}

// ImportInC makes n kDLOneAPI imports from C.
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
