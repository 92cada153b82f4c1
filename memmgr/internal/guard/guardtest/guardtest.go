//go:build cgo && linux

// Package guardtest helps to test the guard: it reads memory in C, on threads of Go's and on
// others, and installs handlers of SIGBUS as drivers do.
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

// Sum adds up n bytes in one cgo call.
func Sum(p unsafe.Pointer, n int) uint64 {
	return uint64(C.usmb_test_sum((*C.uchar)(p), C.size_t(n)))
}

// SumOnThread does so on a thread that C makes and Go does not know, with a signal stack of
// its own or without any.
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

// Chaining calls the handler before it; Leaving puts that back and returns, as LLVM's does.
const (
	Chaining Handler = iota
	Leaving
)

// Install installs it over what is there, once.
func (h Handler) Install() error {
	if rc := C.usmb_test_install(C.int(h)); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

// Calls tells how often it was called.
func (h Handler) Calls() int { return int(C.usmb_test_calls(C.int(h))) }
