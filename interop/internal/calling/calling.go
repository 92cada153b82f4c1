// Package calling is what the packages python, pymodule and calls have of each other beside
// their public names: of which call from Go the code that runs is part, and the ways of
// arguments and results.
package calling

import (
	"context"
	"unsafe"
)

// Context is package python's: the context of the innermost CallContext, or call of package
// calls, that runs on the calling thread, context.Background in none. Threads that the code of
// a call starts are in none.
var Context func() context.Context

// Numbered is package calls': the context of the call with that number.
var Numbered func(number uint64) context.Context

// Result is package python's: what CallContext makes of a result (a usmb_pyret): an owned
// *python.Object, or the error, for a context that the call was interrupted for. The error does
// not keep its exception object. GIL.
var Result func(ctx context.Context, result unsafe.Pointer) (object any, err error)

// DropException is package python's: it releases the exception object of the first *python.Error
// in err, which stays without it. No other goroutine may have that error yet.
var DropException func(err error)

// Array is what Python's Array is made of, in words of C.
type Array struct {
	Cell           uintptr // usmb_cell, with a reference for whoever gets it
	First          uintptr
	DataType       uint32 // a usmb_dl_dtype
	Flags          uint32 // USMB_ARR_*
	Shape, Strides []int  // the array's own: not to be changed
}

// Describe is package pymodule's: what ToPython makes its Array of, for a *usmarray.Array.
var Describe func(a any) (Array, error)

// Register is package pymodule's: it registers the module usmbridge. Package python calls it before
// Python starts; nil in a program without package pymodule.
var Register func() error
