package safetensors

import (
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
)

// Errors of this package, for errors.Is. The package documentation lists those of other packages.
var (
	// ErrFormat is returned for files that are invalid or shorter than the header requires.
	ErrFormat = errors.New("not a valid safetensors file")
	// ErrName is returned if the file has no tensor of that name, or if a tensor cannot be written under it.
	ErrName = errors.New("no such tensor")
	// ErrNotRegular is returned for the path of a directory, FIFO, socket or device.
	ErrNotRegular = transfer.ErrNotRegular
)

// OpError is the type of the errors of this package.
type OpError struct {
	Op     string // the function or method
	File   string // the path; empty for readers and writers
	Tensor string // name of the tensor that caused the error, or empty
	Err    error  // the problem and the remedy
}

// Error formats "safetensors: Op: File: tensor "Tensor": Err".
func (e *OpError) Error() string {
	s := "safetensors: " + e.Op + ": "
	if e.File != "" {
		s += e.File + ": "
	}
	if e.Tensor != "" {
		s += fmt.Sprintf("tensor %q: ", e.Tensor)
	}
	return s + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// ofTensor is an error of one tensor. Function named converts it.
type ofTensor struct {
	name string
	err  error
}

func (e *ofTensor) Error() string { return e.err.Error() }

// about adds the name of a tensor to an error. Only function named may wrap the result.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return &ofTensor{name, err}
}

// named wraps an error in an OpError. It returns nil for nil.
func named(op, file string, err error) error {
	if err == nil {
		return nil
	}
	e := &OpError{Op: op, File: file, Err: err}
	if t := (*ofTensor)(nil); errors.As(err, &t) {
		e.Tensor, e.Err = t.name, t.err
	}
	return e
}

// formatError returns an error that wraps ErrFormat.
func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

// short returns an error for a file that ends too early.
func short(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", ErrFormat, io.ErrUnexpectedEOF, fmt.Errorf(format, args...))
}
