package usmarrow

import "errors"

// Kinds of errors, for errors.Is.
var (
	// ErrType reports an element type or a column type that the other library does not support.
	ErrType = errors.New("unsupported type")
	// ErrLayout reports elements whose layout would require a copy.
	ErrLayout = errors.New("layout needs a copy")
	// ErrNulls reports a column with nulls, which arrays do not support.
	ErrNulls = errors.New("column has nulls")
	// ErrMalformed reports a column with inconsistent lengths, offsets, children or buffers.
	ErrMalformed = errors.New("malformed column")
)
