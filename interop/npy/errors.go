package npy

import (
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/transfer"
)

// Errors of this package, for errors.Is. The package documentation lists those of other packages.
var (
	// ErrFormat is returned for files that are invalid or shorter than the header requires.
	ErrFormat = errors.New("not a valid .npy file")
	// ErrNotRegular is returned for the path of a directory, FIFO, socket or device.
	ErrNotRegular = transfer.ErrNotRegular
)

// OpError is the type of the errors of this package. It is a value: it owns nothing and may be read by
// several goroutines.
type OpError struct {
	Op   string // the function or method
	File string // the path; empty for readers and writers
	Kind error  // ErrFormat; nil if Err, an error of another package, is sufficient
	Err  error  // the problem and the remedy
}

// Error formats "npy: Op: File: Kind: Err".
func (e *OpError) Error() string {
	s := "npy: " + e.Op
	if e.File != "" {
		s += ": " + e.File
	}
	return operr.Text(s, e.Kind, e.Err)
}

// Unwrap returns the kind and the problem.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

// named adds the operation and the file to an error. It returns nil for nil.
func named(op, file string, err error) error {
	if err == nil {
		return nil
	}
	e := OpError{Err: err}
	if inner := (*OpError)(nil); errors.As(err, &inner) && inner.Op == "" {
		e = *inner
	}
	e.Op, e.File = op, file
	return &e
}

// formatError returns an ErrFormat, to which named adds the operation.
func formatError(format string, args ...any) error {
	return &OpError{Kind: ErrFormat, Err: fmt.Errorf(format, args...)}
}

// short returns the error of a file that ends too early.
func short(format string, args ...any) error {
	return formatError("%w: %w", io.ErrUnexpectedEOF, fmt.Errorf(format, args...))
}
