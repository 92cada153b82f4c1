package segment

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// The kinds of errors of this package. An error of the kernel is also wrapped, as a
// syscall.Errno.
var (
	// ErrSeals means that a descriptor is not of a memory file, or lacks the seals of its
	// audience, so that a peer could truncate the memory while it is in use.
	ErrSeals = errors.New("the memory is not sealed as required")
	// ErrSize means that the memory does not have the given size, or that the size is invalid.
	ErrSize = errors.New("wrong size")
	// ErrAudience means that the memory is for another audience, or that the audience does not
	// permit the operation.
	ErrAudience = errors.New("wrong audience")
	// ErrRefused means that memory of another program may not be mapped: it is a link, a
	// directory, a pipe or a file on a disk, it belongs to a user that is not admitted, or this
	// process lacks the permission.
	ErrRefused = errors.New("not memory that may be mapped")
	// ErrTruncated means that another process truncated memory that is mapped here, or that a
	// page was missing when it was accessed: memory was full, or the hardware reported the page
	// as broken. The missing page and all pages after it read as zeros once one was accessed.
	ErrTruncated = errors.New("the memory was truncated")
	// ErrLimit means that the limit on mappings or descriptors is reached.
	ErrLimit = errors.New("a limit is reached")
)

// OpError is the type of this package's errors. Invalid requests to a [Resource] and running out of
// memory are errors of package memmgr, as for every resource. They wrap an OpError if the cause is
// in this package.
type OpError struct {
	Op   string // the operation, such as "Map"
	Kind error  // an Err… value of this package or of memmgr, or errors.ErrUnsupported; nil if Err is sufficient
	Err  error  // the cause; may be nil
}

// Error returns the operation, the kind and the cause.
func (e *OpError) Error() string { return operr.Text("segment: "+e.Op, e.Kind, e.Err) }

// Unwrap returns the kind and the cause.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

func opError(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}
