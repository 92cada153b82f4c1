//go:build cgo && linux

package guard

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#include "usmb_guard.h"
*/
import "C"

import (
	"errors"
	"os"
	"syscall"
)

// Supported reports whether this build has a guard.
const Supported = true

// Add guards size bytes at base: whole pages of a mapping that is readable, and writable if writable
// is set. It fails with ErrFull, or if the handler cannot be installed.
func Add(base, size uintptr, writable bool) (Range, error) {
	w := C.int(0)
	if writable {
		w = 1
	}
	n, err := C.usmb_guard_add(C.uintptr_t(base), C.size_t(size), w)
	switch {
	case n >= 0:
		return Range{int32(n)}, nil
	case errors.Is(err, syscall.ENOSPC):
		return Range{}, ErrFull
	}
	return Range{}, os.NewSyscallError("sigaction", err)
}

// Lost reports whether a page of the range was replaced by zeros.
func (r Range) Lost() bool { return C.usmb_guard_lost(C.int(r.number)) != 0 }

// Remove removes the guard. Call it once, after the last access to the range. When it returns, no
// handler uses the range.
func (r Range) Remove() { C.usmb_guard_remove(C.int(r.number)) }

// Keep installs the handler again if another one replaced it.
func Keep() error {
	if errno := C.usmb_guard_keep(); errno != 0 {
		return os.NewSyscallError("sigaction", syscall.Errno(errno))
	}
	return nil
}
