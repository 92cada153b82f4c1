package share

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// The kinds of errors. Every error of this package is an [*OpError]. It wraps one of these, the error of
// a context, or the error of another package, which errors.Is and errors.As find.
var (
	// ErrStale is returned if the lease of a handle has ended: the handle was opened before, was
	// revoked or expired, or its maker or the only process that may open it has ended. A handle that
	// its maker never made gets the same error, so that a guess reveals nothing.
	ErrStale = errors.New("stale handle")
	// ErrHandle is returned for bytes that are not a valid handle: truncated, too long, of another
	// version, or with an invalid description of an array.
	ErrHandle = errors.New("not a handle")
	// ErrNotShared is returned for memory outside of segments, which other processes cannot map, and
	// for a segment that this process cannot map. Copy the array into a resource of package segment.
	ErrNotShared = errors.New("memory is not shared")
	// ErrLimit is returned if a limit of [Options] or of the protocol is reached.
	ErrLimit = errors.New("limit reached")
	// ErrRefused is returned if one process does not admit the other.
	ErrRefused = errors.New("not admitted")
	// ErrName is returned if no array is published under a name, or if the name is in use.
	ErrName = errors.New("no such name")
	// ErrAddress is returned by Listen if the address is invalid or in use, and by Dial if no process
	// listens at the address.
	ErrAddress = errors.New("address")
	// ErrClosed is returned if either process closed the server or the connection.
	ErrClosed = errors.New("closed")
	// ErrDied is returned if the other process has ended. Its arrays that are open in this process stay
	// valid. ErrDied wraps ErrClosed.
	ErrDied = fmt.Errorf("%w: the other process has ended", ErrClosed)
	// ErrProtocol is returned if the other process sent an invalid message and was disconnected.
	// ErrProtocol wraps ErrClosed.
	ErrProtocol = fmt.Errorf("%w: protocol violation", ErrClosed)
)

// OpError is the type of the errors of this package. Op is the operation. Kind is one of the Err…
// variables, or nil if Err alone identifies the error. Err is the cause.
type OpError struct {
	Op   string
	Kind error
	Err  error
}

// Error formats "share: Op: Kind: Err".
func (e *OpError) Error() string { return operr.Text("share: "+e.Op, e.Kind, e.Err) }

// Unwrap returns the kind and the cause, without nil.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

func opError(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// withOp wraps an error in an OpError with the operation that the user called. An OpError keeps its kind
// and cause, and its operation is replaced.
func withOp(op string, err error) error {
	var e *OpError
	if errors.As(err, &e) {
		return &OpError{Op: op, Kind: e.Kind, Err: e.Err}
	}
	return &OpError{Op: op, Err: err}
}

// kindNumbers holds the error kinds by the number that stands for them in a refusal message. The error
// that the other process makes from the message has the same kind.
var kindNumbers = []error{nil, ErrStale, ErrHandle, ErrNotShared, ErrLimit, ErrRefused, ErrName, ErrClosed, ErrProtocol}

func kindNumber(err error) byte {
	for i := len(kindNumbers) - 1; i > 0; i-- { // from the end: ErrProtocol wraps ErrClosed, which is before it
		if errors.Is(err, kindNumbers[i]) {
			return byte(i)
		}
	}
	return 0
}

func kindOf(number byte) error {
	if int(number) < len(kindNumbers) {
		return kindNumbers[number]
	}
	return nil
}
