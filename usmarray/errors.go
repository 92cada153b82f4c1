package usmarray

import (
	"errors"
	"fmt"
)

// The kinds of failure. An error that this package finds answers to one of them
// through errors.Is (ErrIndex to ErrLayout too); Python's exceptions follow from
// them (named in parentheses). What a lower layer finds (memmgr.ErrOutOfMemory,
// syclobj.ErrNoSYCL, a failed call) keeps that layer's kind alone.
var (
	// ErrLayout: a shape, stride, offset, index or axis that cannot be, or a
	// view that would need a copy (ValueError; IndexError is ErrIndex).
	ErrLayout = errors.New("layout")
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
	ErrNotUSM = errors.New("not USM")
	// ErrExchange: memory that DLPack cannot describe, or a tensor that cannot
	// be taken (BufferError).
	ErrExchange = errors.New("exchange")
	// ErrReadOnly: a write to read-only memory (ValueError).
	ErrReadOnly = errors.New("read-only")
	// ErrNotHostReadable: host access to device memory (BufferError).
	ErrNotHostReadable = errors.New("not host readable")
)

// OpError is the type of every error of this package. Op names the operation
// as the caller wrote it, Key the argument or dictionary key at fault (may be
// empty), Kind is one of the Err… sentinels or nil when the cause comes from a
// lower layer, Err says what was wanted, what was found and what to do.
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
