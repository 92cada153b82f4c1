package segment

import (
	"errors"
	"fmt"
)

// The kinds of failure that are this package's own. What the kernel answered, where
// it was asked, is in the error as a syscall.Errno.
var (
	// ErrSeals: a descriptor is no sealable memory, or lacks seals that its audience
	// promises, so that a peer could cut the memory off under a reader.
	ErrSeals = errors.New("the memory is not sealed as it must be")
	// ErrSize: the memory has another size than was told.
	ErrSize = errors.New("the memory has another size")
	// ErrAudience: the memory is of another audience than was told, or what was asked
	// is not for that audience.
	ErrAudience = errors.New("not for this audience")
	// ErrRefused: memory of others that may not be mapped: of a user who is not admitted,
	// a link, a directory, a pipe, a file of a disk, or one that this process may not open so.
	ErrRefused = errors.New("not memory that may be mapped")
	// ErrTruncated: another process cut memory off that is mapped here, or a page of it could
	// not be had when it was touched: of a sparse file where the memory is full, or one that
	// the hardware found broken. Zeros lie there and behind since.
	ErrTruncated = errors.New("the memory was cut off")
	// ErrLimit: a bound on mappings or descriptors is reached.
	ErrLimit = errors.New("a limit is reached")
)

// OpError is the type of this package's errors. Requests that make no sense and
// memory that runs out are errors of package memmgr, as from every resource; those
// have an OpError as their reason where this package knows it.
type OpError struct {
	Op   string // what was tried, such as "Map"
	Kind error  // one of the Err… sentinels, one of memmgr's, or errors.ErrUnsupported; nil when the cause says all
	Err  error  // what was asked, what was found and what to do; may be nil
}

// Error names operation, kind and reason.
func (e *OpError) Error() string {
	s := "segment: " + e.Op
	for _, reason := range e.Unwrap() {
		s += ": " + reason.Error()
	}
	return s
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (e *OpError) Unwrap() (both []error) {
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			both = append(both, err)
		}
	}
	return both
}

func opError(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}
