// Package calling has variables by which the packages python, pymodule and calls call functions of each
// other that are not in their public API. The package that defines a function sets its variable during
// initialization.
package calling

import (
	"context"
	"unsafe"
)

// Context returns the context of the innermost call on this thread: of a CallContext of package python or
// of a call of package calls. Outside of a call it returns context.Background, also on threads that the
// called code started. Package python sets it.
var Context func() context.Context

// Numbered returns the context of the call of package calls with this number. Package calls sets it.
var Numbered func(number uint64) context.Context

// Result converts the result of a call (a *usmb_pyret) as CallContext does. It returns a *python.Object
// that the caller owns, or an error without its exception object. ctx is the ended context for which the
// call was interrupted. The GIL must be held. Package python sets it.
var Result func(ctx context.Context, result unsafe.Pointer) (object any, err error)

// DropException releases the exception object of the first *python.Error in err. No other goroutine may
// have access to err. Package python sets it.
var DropException func(err error)

// Array describes a Python Array as C needs it.
type Array struct {
	Cell           uintptr // a usmb_cell, with a reference that the receiver owns
	First          uintptr // address of the first element
	DataType       uint32  // a usmb_dl_dtype
	Flags          uint32  // USMB_ARR_*
	Shape, Strides []int   // borrowed from the *usmarray.Array: read only
}

// Describe returns the description of the Array that ToPython makes of a *usmarray.Array. Package
// pymodule sets it.
var Describe func(a any) (Array, error)

// Register registers the module usmbridge. Package python calls it before Python starts. It is nil in
// programs without package pymodule, which sets it.
var Register func() error
