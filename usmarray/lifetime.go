package usmarray

import (
	"errors"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Release drops the array's reference, if it owns one; in either case the array must not be used
// afterwards. It does nothing on a released, nil or zero Array, so that it can be deferred. It may be
// called from any goroutine and does not wait for work on the memory; an operation in progress keeps the
// memory until it ends.
func (a *Array) Release() {
	if a != nil && a.state.CompareAndSwap(0, 1) && a.flags&flagOwner != 0 {
		a.unwatch()
		a.buf.Release()
	}
}

// Retain returns an array of the same elements that owns its own reference, to be dropped by its own
// Release. It panics if the memory was freed.
func (a *Array) Retain() *Array {
	a.hold("Retain") // the new array's reference
	v := a.view(a.layout)
	v.flags |= flagOwner
	v.watch()
	return v
}

// Valid reports whether the array may be used: it was not released, and its memory has an owner.
func (a *Array) Valid() bool { return a != nil && a.state.Load() == 0 && a.buf.Valid() }

// UseError is the value of a panic on the use of an invalid array: it was released, its memory has lost
// its last owner, or it is nil or zero. It matches memmgr.ErrReleased.
type UseError struct {
	Op  string // the method that was called
	Err error  // the problem and a hint
}

// Error returns "usmarray: Array.Op: Err".
func (e *UseError) Error() string { return "usmarray: Array." + e.Op + ": " + e.Err.Error() }

// Unwrap returns memmgr.ErrReleased and Err.
func (e *UseError) Unwrap() []error { return []error{memmgr.ErrReleased, e.Err} }

var (
	errNil       = errors.New("the array is nil")
	errZero      = errors.New("the zero Array has no memory; make one with New, Zeros or FromSlice")
	errReleased  = errors.New("the array was released")
	errOwnerless = errors.New("the memory's last owner was released; use Retain to keep the memory of a view")
)

// notNil panics on a nil array.
func (a *Array) notNil(op string) {
	if a == nil {
		panic(&UseError{op, errNil})
	}
}

// check panics unless the array may be used. It suffices for operations that do not access the memory.
func (a *Array) check(op string) {
	if !a.Valid() {
		panic(a.useError(op))
	}
}

// hold is check for an operation that accesses the memory or its state: it takes a reference, which the
// operation drops with buf.Release, so that a concurrent Release does not free the memory.
func (a *Array) hold(op string) {
	if !a.tryHold() {
		panic(a.useError(op))
	}
}

func (a *Array) tryHold() bool {
	return a != nil && a.state.Load() == 0 && a.buf.TryRetain()
}

// useError returns the reason why the array cannot be used.
func (a *Array) useError(op string) *UseError {
	a.notNil(op)
	switch {
	case a.state.Load() != 0:
		return &UseError{op, errReleased}
	case a.dtype.Bits == 0:
		return &UseError{op, errZero}
	}
	return &UseError{op, errOwnerless}
}
