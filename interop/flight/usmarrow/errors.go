package usmarrow

import "errors"

// The kinds of failure, for errors.Is.
var (
	// ErrType: an element type or a column that the other side has no word for.
	ErrType = errors.New("no such type on the other side")
	// ErrLayout: elements that lie so that they would have to be copied.
	ErrLayout = errors.New("layout needs a copy")
	// ErrNulls: a column with nulls, which arrays do not have.
	ErrNulls = errors.New("nulls")
	// ErrMalformed: a column whose lengths, offsets, children and buffers don't fit each
	// other.
	ErrMalformed = errors.New("malformed column")
)
