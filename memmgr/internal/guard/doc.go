// Package guard keeps touching memory of a file that another process cut off from ending this
// process. Linux, with cgo.
//
// A mapping of a file that has no pages any more where it is touched raises SIGBUS: in Go code,
// in C, on a driver's thread that Go does not know. The handler looks the address up in a table
// of ranges, without a lock; in one of them it puts pages of zeros there and behind, notes that,
// and returns, so that the touch is repeated and sees zeros. Every other fault is handed on to
// the handler that was there before, so that Go panics as ever and drivers crash as they like.
//
// The handler stays until the process ends. A driver that brings its own, on top, is found by
// [Keep], which whoever relies on the guard calls from time to time: ours goes on top again,
// and theirs is called for faults that are not ours. (Package syclobj puts handlers back that
// were there before a driver came: one that is installed on another thread at that moment is
// lost, until Keep.)
//
// SIGBUS has other causes too: a page of a sparse file on a file system that is full, and one
// that the hardware found broken. They look the same to the handler, which does the same.
//
// A system call to which such memory is given fails with EFAULT instead, and knows of no guard.
// Nor does a thread that has SIGBUS blocked: the kernel then ends the process, and asks no
// handler.
package guard

import "errors"

// ErrFull tells that there are as many ranges as the table holds, 4,096.
var ErrFull = errors.New("too many guarded ranges")

// Range is a guarded range of addresses, made by [Add]. Its methods may be called from any
// goroutine, until Remove.
type Range struct{ number int32 }
