package cute

import (
	"errors"
	"fmt"
)

// The kinds of error this package returns. Test for them with errors.Is; the
// text of an *Error says what was wanted, what was found and, where the text is
// not fixed by CuTe DSL itself, what to do about it.
var (
	// ErrAlignment: the address is not a multiple of the alignment asked for,
	// or that alignment is not a power of two.
	ErrAlignment = errors.New("cute: alignment")
	// ErrElementType: CuTe has no element type for the DLPack data type.
	ErrElementType = errors.New("cute: element type")
	// ErrLayout: shape and strides do not describe a tensor (rank, sign, overflow).
	ErrLayout = errors.New("cute: layout")
	// ErrOption: an option or a device outside the values this package knows.
	ErrOption = errors.New("cute: option")
	// ErrLeadingDim: the leading dimension is out of range, does not have
	// stride 1, or cannot be deduced.
	ErrLeadingDim = errors.New("cute: leading dimension")
	// ErrStrideOrder: the stride order is malformed, contradicts the layout or
	// an earlier one, or cannot be deduced.
	ErrStrideOrder = errors.New("cute: stride order")
	// ErrNotCompact: a compact layout is needed and the tensor's is not.
	ErrNotCompact = errors.New("cute: layout is not compact")
	// ErrMode: the mode is outside the tensor's rank.
	ErrMode = errors.New("cute: mode")
	// ErrDivisibility: the divisibility is not positive or does not divide the extent.
	ErrDivisibility = errors.New("cute: divisibility")
	// ErrStride32: 32-bit strides were asked for and the layout may overflow them.
	ErrStride32 = errors.New("cute: 32-bit strides")
	// ErrReleased: the tensor was released before this use.
	ErrReleased = errors.New("cute: use after release")
)

// Error is what every function of this package fails with: a kind to test for
// (one of the Err variables, reached by errors.Is) and a text to read. Where
// CuTe DSL has a text for the same failure, Text is that text.
type Error struct {
	Kind error  // one of the Err variables of this package
	Text string // what Error returns
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func fail(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
}
