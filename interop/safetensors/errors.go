package safetensors

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
	ErrFormat = errors.New("not a valid safetensors file")
	// ErrName is returned if the file has no tensor of that name, or if a tensor cannot be written under it.
	ErrName = errors.New("no such tensor")
	// ErrNotRegular is returned for the path of a directory, FIFO, socket or device.
	ErrNotRegular = transfer.ErrNotRegular
)

// OpError is the type of the errors of this package. It is a value: it owns nothing and may be read by
// several goroutines.
type OpError struct {
	Op     string // the function or method
	File   string // the path; empty for readers and writers
	Tensor string // name of the tensor that caused the error, or empty
	Kind   error  // ErrFormat or ErrName; nil if Err, an error of another package, is sufficient
	Err    error  // the problem and the remedy
}

// Error formats "safetensors: Op: File: tensor "Tensor": Kind: Err".
func (e *OpError) Error() string {
	s := "safetensors: " + e.Op
	if e.File != "" {
		s += ": " + e.File
	}
	if e.Tensor != "" {
		s += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	return operr.Text(s, e.Kind, e.Err)
}

// Unwrap returns the kind and the problem.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

// opErr returns an error to which about adds the tensor, and named the operation.
func opErr(kind error, format string, args ...any) error {
	return &OpError{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// detailed returns err as an OpError that the caller completes.
func detailed(err error) OpError {
	if e := (*OpError)(nil); errors.As(err, &e) && e.Op == "" {
		return *e
	}
	return OpError{Err: err}
}

// about adds the name of a tensor to an error. It returns nil for nil.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	e := detailed(err)
	e.Tensor = name
	return &e
}

// named adds the operation and the file to an error. It returns nil for nil.
func named(op, file string, err error) error {
	if err == nil {
		return nil
	}
	e := detailed(err)
	e.Op, e.File = op, file
	return &e
}

// formatError returns an ErrFormat.
func formatError(format string, args ...any) error { return opErr(ErrFormat, format, args...) }

// short returns the error of a file that ends too early.
func short(format string, args ...any) error {
	return formatError("%w: %w", io.ErrUnexpectedEOF, fmt.Errorf(format, args...))
}
