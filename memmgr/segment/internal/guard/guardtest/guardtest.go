//go:build cgo && linux

// Package guardtest helps to test the guard. It reads memory in C, on threads of Go and of C, and
// installs SIGBUS handlers as drivers do.
package guardtest

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#include "usmb_guardtest.h"
*/
import "C"

import (
	"syscall"
	"unsafe"
)

// Sum returns the sum of n bytes, computed in one cgo call.
func Sum(p unsafe.Pointer, n int) uint64 {
	return uint64(C.usmb_test_sum((*C.uchar)(p), C.size_t(n)))
}

// SumOnThread returns the sum of n bytes, computed on a thread that C makes and Go does not know.
// ownStack gives the thread a signal stack.
func SumOnThread(p unsafe.Pointer, n int, ownStack bool) (uint64, error) {
	var sum C.uint64_t
	own := C.int(0)
	if ownStack {
		own = 1
	}
	if rc := C.usmb_test_sum_on_thread((*C.uchar)(p), C.size_t(n), own, &sum); rc != 0 {
		return 0, syscall.Errno(rc)
	}
	return uint64(sum), nil
}

// Handler is a driver's handler of SIGBUS.
type Handler int

// Chaining calls the handler that it replaced. Leaving reinstalls that handler and returns, as the
// handler of LLVM does.
const (
	Chaining Handler = iota
	Leaving
)

// Install replaces the current handler by h. Call it once.
func (h Handler) Install() error {
	if rc := C.usmb_test_install(C.int(h)); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

// Calls returns how often h was called.
func (h Handler) Calls() int { return int(C.usmb_test_calls(C.int(h))) }
