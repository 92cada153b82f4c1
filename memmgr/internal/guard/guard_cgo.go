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

// Supported reports whether there is a guard in this build.
const Supported = true

// Add guards whole pages at base, of a mapping that may be read, and written where writable.
// Errors: ErrFull, and what the kernel says of the handler.
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

// Remove ends the guarding, once. Nobody may touch the range any more; no handler does when
// it returns.
func (r Range) Remove() { C.usmb_guard_remove(C.int(r.number)) }

// Keep puts the handler back on top where another was installed since, or it was taken away.
func Keep() error {
	if errno := C.usmb_guard_keep(); errno != 0 {
		return os.NewSyscallError("sigaction", syscall.Errno(errno))
	}
	return nil
}
