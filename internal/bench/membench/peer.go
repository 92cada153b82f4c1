//go:build cgo && linux

package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra -I${SRCDIR}/../../../syclobj
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include <malloc.h>
#include <stdint.h>
#include "loops.h"
#include "usmb_sycl.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// umf is libumf.so, the Unified Memory Framework. It is part of the Python package umf and of oneAPI's runtimes.
var umf *C.usmb_umf

// openUMF loads libumf.so from the active virtual environment (VIRTUAL_ENV) or the loader's search path.
func openUMF() error {
	var reason [512]C.char
	for _, path := range []string{filepath.Join(os.Getenv("VIRTUAL_ENV"), "lib", "libumf.so.1"), "libumf.so.1"} {
		name := C.CString(path)
		umf = C.usmb_umf_open(name, &reason[0], C.size_t(len(reason)))
		C.free(unsafe.Pointer(name))
		if umf != nil {
			return nil
		}
	}
	return fmt.Errorf("no usable libumf.so; install one with pip install umf: %s", C.GoString(&reason[0]))
}

// disjointParams are the parameters of UMF's disjoint pool.
type disjointParams = C.usmb_umf_params

// deviceParams returns the parameters that oneAPI's Unified Runtime uses for device memory.
func deviceParams() disjointParams {
	return disjointParams{slab_min_size: 64 << 10, max_poolable_size: 4 << 20, capacity: 4, min_bucket_size: 64}
}

// peer runs the C loops on a disjoint pool of UMF, or on malloc if the pool is nil.
type peer struct{ pool *C.usmb_umf_pool }

// disjoint calls f with a disjoint pool.
func disjoint(params disjointParams, f func(peer)) {
	var rc C.int
	pool := C.usmb_umf_pool_new(umf, params, &rc)
	if pool != nil {
		f(peer{pool})
		rc = C.usmb_umf_pool_delete(pool)
	}
	if rc != 0 {
		fmt.Fprintf(os.Stderr, "membench: a disjoint pool with %+v: UMF returned %d\n", params, rc)
	}
}

// peak returns the largest number of bytes that an address-only pool had from its provider.
func (p peer) peak() int64 { return int64(p.pool.peak) }

func (p peer) oneSize(size uintptr, rounds int) int64 {
	return int64(C.usmb_bench_one_size(p.pool, C.size_t(size), C.size_t(rounds)))
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
	return int64(C.usmb_bench_replace(p.pool, s.at, u32(where), u32(sizes), C.size_t(len(where))))
}

func (p peer) replaceThreads(s slots, each int, where, sizes []uint32, threads int) int64 {
	return int64(C.usmb_bench_replace_threads(p.pool, s.at, C.size_t(each), u32(where), u32(sizes), C.size_t(len(where)), C.int(threads)))
}

// mallocTrim makes malloc return unused memory to the system.
func mallocTrim() { C.malloc_trim(0) }

func (p peer) clear(s slots) { C.usmb_bench_clear(p.pool, s.at, C.size_t(s.n)) }

func (p peer) batch(size uintptr, count, rounds int) int64 {
	return int64(C.usmb_bench_batch(p.pool, C.size_t(size), C.size_t(count), C.size_t(rounds)))
}

func (p peer) script(s slots, which []uint32, sizes []uint64) int64 {
	return int64(C.usmb_bench_script(p.pool, s.at, u32(which),
		(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(sizes))), C.size_t(len(which))))
}

func (p peer) handover(size uintptr, batches int) int64 {
	return int64(C.usmb_bench_handover(p.pool, C.size_t(size), C.size_t(batches)))
}

// rawSYCL allocates and frees through the C library alone.
func rawSYCL(place *syclobj.Place, size uintptr, rounds int) int64 {
	c := (*C.usmb_place)(place.Ref())
	return int64(C.usmb_bench_sycl(c.queue, c.context, C.uint32_t(c.kinds), C.int(c.kind), C.size_t(size), C.size_t(rounds)))
}
