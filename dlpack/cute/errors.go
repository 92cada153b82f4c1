package cute

import (
	"errors"
	"fmt"
)

// The kinds of error. Every error and panic of this package is an *[Error] that matches one of them with
// errors.Is.
var (
	// ErrAlignment reports an address that is not a multiple of the requested alignment, or an alignment
	// that is not a power of two.
	ErrAlignment = errors.New("cute: alignment")
	// ErrElementType reports a DLPack data type for which CuTe has no element type.
	ErrElementType = errors.New("cute: element type")
	// ErrLayout reports an invalid shape or invalid strides (rank, sign, overflow).
	ErrLayout = errors.New("cute: layout")
	// ErrOption reports an invalid option or an unsupported device.
	ErrOption = errors.New("cute: option")
	// ErrLeadingDim reports a leading dimension that is out of range, does not have stride 1, or cannot
	// be deduced.
	ErrLeadingDim = errors.New("cute: leading dimension")
	// ErrStrideOrder reports a stride order that is malformed, contradicts the layout or an earlier
	// order, or cannot be deduced.
	ErrStrideOrder = errors.New("cute: stride order")
	// ErrNotCompact reports a layout that is not compact where a compact one is required.
	ErrNotCompact = errors.New("cute: layout is not compact")
	// ErrMode reports a mode outside the tensor's rank.
	ErrMode = errors.New("cute: mode")
	// ErrDivisibility reports a divisibility that is not positive or does not divide the extent.
	ErrDivisibility = errors.New("cute: divisibility")
	// ErrStride32 reports a layout that may overflow the requested 32-bit strides.
	ErrStride32 = errors.New("cute: 32-bit strides")
)

// Error is the type of every error of this package. Where CuTe DSL has a text for the same failure, the
// text is exactly that one; it names no operation. Error is a value: it owns nothing and may be read by
// several goroutines.
type Error struct {
	Kind error // one of the Err… variables
	Err  error // the problem and, except in CuTe DSL's texts, a hint
}

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the kind and the problem.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

func fail(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}
