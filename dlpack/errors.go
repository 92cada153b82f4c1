package dlpack

import (
	"errors"
	"fmt"
)

// The kinds of error. Every error of this package, and every panic on misuse, is an *[OpError] that
// matches one of them with errors.Is.
var (
	// ErrVersion reports another major version. The tensor may only be deleted.
	ErrVersion = errors.New("another DLPack major version")
	// ErrShape reports an invalid number of dimensions or an invalid extent.
	ErrShape = errors.New("bad shape")
	// ErrStrides reports strides that lead outside the address space.
	ErrStrides = errors.New("bad strides")
	// ErrOverflow reports an element count or size in bits that does not fit 63 bits.
	ErrOverflow = errors.New("size overflow")
	// ErrDataType reports an element type that cannot be exchanged, or not the requested one.
	ErrDataType = errors.New("unsupported element type")
	// ErrAlignment reports a first element that is not at a multiple of the item size.
	ErrAlignment = errors.New("misaligned data")
	// ErrNull reports elements without memory, or a NULL tensor.
	ErrNull = errors.New("no data")
	// ErrReadOnly reports read-only memory in an operation that would make it writable.
	ErrReadOnly = errors.New("read-only memory")
	// ErrDevice reports an invalid device, or one whose memory Go may not access.
	ErrDevice = errors.New("unsupported device")
	// ErrLayout reports a layout that is not contiguous, packed, or otherwise unsuitable for a view.
	ErrLayout = errors.New("unsupported layout")
	// ErrLegacy reports a property that the legacy struct has no field for.
	ErrLegacy = errors.New("not expressible as a legacy tensor")
	// ErrFlags reports flags that DLPack 1.3 does not define.
	ErrFlags = errors.New("unknown flags")
	// ErrReleased reports a tensor that was released, detached or taken over, or the zero Tensor.
	ErrReleased = errors.New("released tensor")
	// ErrOutOfMemory reports that C memory could not be allocated.
	ErrOutOfMemory = errors.New("out of memory")
)

// OpError is the type of every error of this package. It is a value: it owns nothing and may be read by
// several goroutines.
type OpError struct {
	Op   string // the function or method, such as "Export", or the type "Tensor"
	Kind error  // one of the Err… variables, or errors.ErrUnsupported
	Err  error  // the problem and a hint; may be nil
}

// Error returns "dlpack: operation: kind: problem; hint".
func (e *OpError) Error() string {
	s := "dlpack: " + e.Op + ": " + e.Kind.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the kind and the problem.
func (e *OpError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

func opErr(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}
