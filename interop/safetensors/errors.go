package safetensors

import (
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
)

// The kinds of failure that are this package's own. Every error answers to one of them, or to
// one of the packages below, through errors.Is; see the package's page.
var (
	// ErrFormat: what is no safetensors file, breaks the rules of the format, or is shorter
	// than its header says.
	ErrFormat = errors.New("not a valid safetensors file")
	// ErrName: no tensor of the file has the name; or, in writing, one cannot have it.
	ErrName = errors.New("no such tensor")
	// ErrNotRegular: a path that names a directory, a FIFO, a socket or a device.
	ErrNotRegular = transfer.ErrNotRegular
)

// OpError is the type of the errors of this package.
type OpError struct {
	Op     string // the function or method
	File   string // the path, "" for what was not opened by one
	Tensor string // its name, where one is at fault
	Err    error  // what was asked, what was found, what to do
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

// Unwrap gives the cause to errors.Is and errors.As.
func (e *OpError) Unwrap() error { return e.Err }

// ofTensor is a failure on its way up that is one tensor's.
type ofTensor struct {
	name string
	err  error
}

func (e *ofTensor) Error() string { return e.err.Error() }

// about says which tensor a failure is of; nothing is put around it afterwards.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return &ofTensor{name, err}
}

// named gives a failure its operation and file; nil stays nil.
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

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

// short is about a file that ends too early.
func short(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", ErrFormat, io.ErrUnexpectedEOF, fmt.Errorf(format, args...))
}
