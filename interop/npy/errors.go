package npy

import (
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
)

// The kinds of failure that are this package's own. Every error answers to one of them, or to
// one of the packages below, through errors.Is; see the package's page.
var (
	// ErrFormat: what is no .npy file, breaks the rules of the format, or is shorter than
	// its header says.
	ErrFormat = errors.New("not a valid .npy file")
	// ErrNotRegular: a path that names a directory, a FIFO, a socket or a device.
	ErrNotRegular = transfer.ErrNotRegular
)

// OpError is the type of the errors of this package.
type OpError struct {
	Op   string // the function or method
	File string // the path, "" for what was not opened by one
	Err  error  // what was asked, what was found, what to do
}

// Error formats "npy: Op: File: Err".
func (e *OpError) Error() string {
	s := "npy: " + e.Op + ": "
	if e.File != "" {
		s += e.File + ": "
	}
	return s + e.Err.Error()
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *OpError) Unwrap() error { return e.Err }

// named gives a failure its operation and file; nil stays nil.
func named(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, File: file, Err: err}
}

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

// short is about a file that ends too early.
func short(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", ErrFormat, io.ErrUnexpectedEOF, fmt.Errorf(format, args...))
}
