package usmarray

import (
	"errors"
	"fmt"
	"slices"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// The kinds of failure. Every error of this package answers to those that fit it
// through errors.Is, whichever package refused: one that packages memmgr, dlpack
// or syclobj know under the same name answers to theirs and to this one. Python's
// exceptions follow from the kinds (named in parentheses).
var (
	// ErrLayout: a shape, stride, offset, index or axis that cannot be, or a
	// view that would need a copy (ValueError; IndexError is ErrIndex).
	ErrLayout error = &sentinel{"layout", []error{dlpack.ErrLayout}}
	// ErrIndex: an index outside its axis (IndexError). It answers to
	// ErrLayout too.
	ErrIndex = fmt.Errorf("%w: index out of range", ErrLayout)
	// ErrType: an element type or a value of the wrong type (TypeError).
	ErrType = errors.New("type")
	// ErrInterface: a __sycl_usm_array_interface__ that breaks its own rules
	// (ValueError).
	ErrInterface = errors.New("__sycl_usm_array_interface__")
	// ErrNotUSM: memory that is not USM of the context it is said to belong to
	// (ValueError).
	ErrNotUSM error = &sentinel{"not USM", []error{syclobj.ErrNotUSM}}
	// ErrExchange: memory that DLPack cannot describe, or a tensor that cannot
	// be taken (BufferError).
	ErrExchange = errors.New("exchange")
	// ErrReadOnly: a write to read-only memory (ValueError).
	ErrReadOnly error = &sentinel{"read-only", []error{memmgr.ErrReadOnly, dlpack.ErrReadOnly}}
	// ErrNotHostReadable: host access to device memory (BufferError).
	ErrNotHostReadable error = &sentinel{"not host readable", []error{memmgr.ErrNotHostReadable}}
	// ErrOutOfMemory: memory, or a limit, is used up (MemoryError).
	ErrOutOfMemory error = &sentinel{"out of memory", []error{memmgr.ErrOutOfMemory, dlpack.ErrOutOfMemory, syclobj.ErrAllocation, syclobj.ErrNoHostMemory}}
)

// sentinel is a kind of failure that packages below have a name for too.
type sentinel struct {
	text string
	same []error
}

// Error is the kind's name.
func (s *sentinel) Error() string { return s.text }

// Unwrap gives the sentinels of the same meaning, so that what this package
// refuses answers to them.
func (s *sentinel) Unwrap() []error { return s.same }

func (s *sentinel) causes(err error) bool {
	return slices.ContainsFunc(s.same, func(same error) bool { return errors.Is(err, same) })
}

// OpError is the type of every error of this package. Op names the operation as
// the caller wrote it, Key the argument or dictionary key at fault (may be empty),
// Kind is one of the Err… sentinels or nil when the cause, that of a lower layer,
// says it, and Err is the cause: what was wanted, what was found, what to do.
type OpError struct {
	Op   string
	Key  string
	Kind error
	Err  error
}

// Error formats "usmarray: Op: Key: Err".
func (e *OpError) Error() string {
	s := "usmarray: " + e.Op + ": "
	if e.Key != "" {
		s += e.Key + ": "
	}
	return s + e.Err.Error()
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (e *OpError) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// Is makes the failure of a lower layer match the sentinels that mean the same,
// of this package and of the others.
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

// keyErr is an ErrInterface about one key of the dictionary.
func keyErr(op, key string, format string, args ...any) error {
	return &OpError{Op: op, Key: key, Kind: ErrInterface, Err: fmt.Errorf(format, args...)}
}

// wrapErr puts the operation's name before an error of a lower layer.
func wrapErr(op string, kind, err error) error {
	return &OpError{Op: op, Kind: kind, Err: err}
}
