package usmarray

import (
	"errors"
	"fmt"
	"slices"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// The kinds of error. Every error of this package matches the kinds that apply to it with errors.Is. A
// kind that packages memmgr, dlpack or syclobj have too matches theirs as well. The parentheses name the
// Python exception of each kind.
var (
	// ErrLayout reports an invalid shape, stride, offset or axis, or a view that would need a copy
	// (ValueError).
	ErrLayout error = &sentinel{"layout", []error{dlpack.ErrLayout}}
	// ErrIndex reports an index outside its axis (IndexError). It matches ErrLayout too.
	ErrIndex = fmt.Errorf("%w: index out of range", ErrLayout)
	// ErrType reports an unsupported element type or a value of the wrong type (TypeError).
	ErrType = errors.New("type")
	// ErrInterface reports an invalid __sycl_usm_array_interface__ (ValueError).
	ErrInterface = errors.New("__sycl_usm_array_interface__")
	// ErrNotUSM reports memory that is not USM of the named context (ValueError).
	ErrNotUSM error = &sentinel{"not USM", []error{syclobj.ErrNotUSM}}
	// ErrExchange reports memory that DLPack cannot describe, or a tensor that cannot be imported
	// (BufferError).
	ErrExchange = errors.New("exchange")
	// ErrReadOnly reports a write to read-only memory (ValueError).
	ErrReadOnly error = &sentinel{"read-only", []error{memmgr.ErrReadOnly, dlpack.ErrReadOnly}}
	// ErrNotHostReadable reports host access to device memory (BufferError).
	ErrNotHostReadable error = &sentinel{"not host readable", []error{memmgr.ErrNotHostReadable}}
	// ErrOutOfMemory reports that memory or a limit is exhausted (MemoryError).
	ErrOutOfMemory error = &sentinel{"out of memory", []error{memmgr.ErrOutOfMemory, dlpack.ErrOutOfMemory, syclobj.ErrAllocation, syclobj.ErrNoHostMemory}}
)

// sentinel is a kind of error that matches the corresponding errors of other packages.
type sentinel struct {
	text string
	same []error
}

// Error returns the kind's name.
func (s *sentinel) Error() string { return s.text }

// Unwrap returns the corresponding errors of other packages.
func (s *sentinel) Unwrap() []error { return s.same }

func (s *sentinel) causes(err error) bool {
	return slices.ContainsFunc(s.same, func(same error) bool { return errors.Is(err, same) })
}

// OpError is the type of every error of this package. It is a value: it owns nothing and may be read by
// several goroutines.
type OpError struct {
	Op   string // the function or method, such as "CopyFrom"
	Key  string // the invalid dictionary key, or ""
	Kind error  // one of the Err… variables; nil if Err, an error of another package, is sufficient
	Err  error  // the problem and a hint
}

// Error returns "usmarray: Op: Key: Err".
func (e *OpError) Error() string {
	s := "usmarray: " + e.Op + ": "
	if e.Key != "" {
		s += e.Key + ": "
	}
	return s + e.Err.Error()
}

// Unwrap returns the kind and the problem.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

// Is makes an error of another package match the variables of the same meaning in all packages.
func (e *OpError) Is(target error) bool {
	for _, kind := range [...]error{ErrLayout, ErrNotUSM, ErrReadOnly, ErrNotHostReadable, ErrOutOfMemory} {
		if errors.Is(kind, target) && kind.(*sentinel).causes(e.Err) {
			return true
		}
	}
	return false
}

func opErr(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// keyErr returns an ErrInterface about one key of the dictionary.
func keyErr(op, key string, format string, args ...any) error {
	return &OpError{Op: op, Key: key, Kind: ErrInterface, Err: fmt.Errorf(format, args...)}
}

// wrapErr adds the operation to an error of another package.
func wrapErr(op string, kind, err error) error {
	return &OpError{Op: op, Kind: kind, Err: err}
}
