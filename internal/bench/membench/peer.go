//go:build cgo && linux

package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra -I${SRCDIR}/../../../syclobj
#include <stdlib.h>
#include <malloc.h>
#include <stdint.h>
#include "loops.h"
#include "usmb_sycl.h"
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// peer runs the C loops on a UMF pool, or on malloc when the pool is nil.
type peer struct {
	pool *umfPool
}

func (p peer) handle() *C.usmb_umf_pool {
	if p.pool == nil {
		return nil
	}
	return p.pool.pool
}

func (p peer) oneSize(size uintptr, rounds int) int64 {
	return int64(C.usmb_bench_one_size(p.handle(), C.size_t(size), C.size_t(rounds)))
}

// slots is an array of pointers in C memory.
type slots struct {
	at *unsafe.Pointer
	n  int
}

func newSlots(n int) slots {
	return slots{(*unsafe.Pointer)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(uintptr(0))))), n}
}

func (s slots) free() { C.free(unsafe.Pointer(s.at)) }

func u32(s []uint32) *C.uint32_t { return (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(s))) }

func (p peer) replace(s slots, where, sizes []uint32) int64 {
	return int64(C.usmb_bench_replace(p.handle(), s.at, u32(where), u32(sizes), C.size_t(len(where))))
}

func (p peer) replaceThreads(s slots, each int, where, sizes []uint32, threads int) int64 {
	return int64(C.usmb_bench_replace_threads(p.handle(), s.at, C.size_t(each), u32(where), u32(sizes), C.size_t(len(where)), C.int(threads)))
}

// mallocTrim makes malloc return unused memory to the system.
func mallocTrim() { C.malloc_trim(0) }

func (p peer) clear(s slots) { C.usmb_bench_clear(p.handle(), s.at, C.size_t(s.n)) }

func (p peer) batch(size uintptr, count, rounds int) int64 {
	return int64(C.usmb_bench_batch(p.handle(), C.size_t(size), C.size_t(count), C.size_t(rounds)))
}

func (p peer) script(s slots, which []uint32, sizes []uint64) int64 {
	return int64(C.usmb_bench_script(p.handle(), s.at, u32(which),
		(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(sizes))), C.size_t(len(which))))
}

func (p peer) handover(size uintptr, batches int) int64 {
	return int64(C.usmb_bench_handover(p.handle(), C.size_t(size), C.size_t(batches)))
}

// rawSYCL allocates and frees through the C library alone.
func rawSYCL(place *syclobj.Place, size uintptr, rounds int) int64 {
	c := (*C.usmb_place)(place.Ref())
	return int64(C.usmb_bench_sycl(c.queue, c.context, C.uint32_t(c.kinds), C.int(c.kind), C.size_t(size), C.size_t(rounds)))
}
