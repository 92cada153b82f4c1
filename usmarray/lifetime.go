package usmarray

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Release gives the array's reference up, if it owns one; either way the array
// must not be used afterwards. Releasing again does nothing, so that it can be
// deferred, nor does it on a nil or zero Array. It may be called from any
// goroutine and does not wait for work on the memory; an operation that runs at
// the time keeps the memory to its end.
func (a *Array) Release() {
	if a != nil && a.state.CompareAndSwap(0, 1) && a.flags&flagOwner != 0 {
		a.unwatch()
		a.buf.Release()
	}
}

// Retain makes an array of the same elements that owns a reference of its own,
// to be ended by its own Release. It panics when the memory is gone.
func (a *Array) Retain() *Array {
	a.hold("Retain") // the new array's reference
	v := a.view(a.layout)
	v.flags |= flagOwner
	v.watch()
	return v
}

// Valid reports whether the array may be used: it was not released, and its
// memory has an owner.
func (a *Array) Valid() bool { return a != nil && a.state.Load() == 0 && a.buf.Valid() }

// UseError is the value of the panic on use of an array that is no more: it was
// released, its memory has lost its last owner, or it was never made. It matches
// memmgr.ErrReleased; where the memory is asleep (memmgr.Pool.Sleep), it matches
// memmgr.ErrAsleep instead.
type UseError struct {
	Op  string // the method that was called
	Err error  // what was found, and what to do
}

// Error says what was used too late.
func (e *UseError) Error() string { return "usmarray: Array." + e.Op + ": " + e.Err.Error() }

// Unwrap gives memmgr.ErrReleased, or memmgr.ErrAsleep, and what was found.
func (e *UseError) Unwrap() []error {
	if errors.Is(e.Err, memmgr.ErrAsleep) {
		return []error{e.Err}
	}
	return []error{memmgr.ErrReleased, e.Err}
}

var (
	errNil       = errors.New("the array is nil")
	errZero      = errors.New("the zero Array has no memory; make one with New, Zeros or FromSlice")
	errReleased  = errors.New("the array was released")
	errAsleep    = fmt.Errorf("%w; Pool.Wake brings it back", memmgr.ErrAsleep)
	errOwnerless = errors.New("the memory's last owner was released; Retain a view to keep its memory")
)

// notNil panics on a nil array, whose description nobody can give.
func (a *Array) notNil(op string) {
	if a == nil {
		panic(&UseError{op, errNil})
	}
}

// check panics unless the array may be used. It is enough for what does not
// touch the memory.
func (a *Array) check(op string) {
	if !a.Valid() {
		panic(a.useError(op))
	}
}

// hold is check for an operation that touches the memory or its state: it takes
// a reference, which the operation gives back with buf.Release, so that a Release
// at the same time does not take the memory away from under it.
func (a *Array) hold(op string) {
	if !a.tryHold() {
		panic(a.useError(op))
	}
}

func (a *Array) tryHold() bool {
	return a != nil && a.state.Load() == 0 && a.buf.TryRetain()
}

// useError says why the array cannot be used.
func (a *Array) useError(op string) *UseError {
	a.notNil(op)
	switch {
	case a.state.Load() != 0:
		return &UseError{op, errReleased}
	case a.dtype.Bits == 0:
		return &UseError{op, errZero}
	case a.buf.Asleep() || a.buf.Valid(): // or it slept until now
		return &UseError{op, errAsleep}
	}
	return &UseError{op, errOwnerless}
}
