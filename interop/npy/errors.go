package npy

import (
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
)

// Errors of this package, for errors.Is. The package documentation lists those of other packages.
var (
	// ErrFormat is returned for files that are invalid or shorter than the header requires.
	ErrFormat = errors.New("not a valid .npy file")
	// ErrNotRegular is returned for the path of a directory, FIFO, socket or device.
	ErrNotRegular = transfer.ErrNotRegular
)

// OpError is the type of the errors of this package.
type OpError struct {
	Op   string // the function or method
	File string // the path; empty for readers and writers
	Err  error  // the problem and the remedy
}

// Error formats "npy: Op: File: Err".
func (e *OpError) Error() string {
	s := "npy: " + e.Op + ": "
	if e.File != "" {
		s += e.File + ": "
	}
	return s + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// named wraps an error in an OpError. It returns nil for nil.
func named(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, File: file, Err: err}
}

// formatError returns an error that wraps ErrFormat.
func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

// short returns an error for a file that ends too early.
func short(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", ErrFormat, io.ErrUnexpectedEOF, fmt.Errorf(format, args...))
}
