package share

import (
	"errors"
	"fmt"
)

// The kinds of failure. Every error of this package is an [*OpError] and answers to one
// of them, to the error of a context, or to that of the package that refused, through
// errors.Is.
var (
	// ErrStale: the lease of a handle is over: it was opened, revoked, waited too long
	// for its opening, or its maker's process or the one that it was made for is gone.
	// What was never a lease answers the same, so that guessing teaches nothing.
	ErrStale = errors.New("stale handle")
	// ErrHandle: bytes that are no handle: truncated, too long, of another version, or
	// describing what cannot be.
	ErrHandle = errors.New("not a handle")
	// ErrNotShared: memory that lies in no segment, so that no other process can map it;
	// or that this process cannot map. Copy it into a resource of package segment.
	ErrNotShared = errors.New("memory is not shared")
	// ErrLimit: a limit of [Options], or of the protocol, is reached.
	ErrLimit = errors.New("limit reached")
	// ErrRefused: the process on the other side is not admitted.
	ErrRefused = errors.New("not admitted")
	// ErrName: no array is published under the name, or one is already.
	ErrName = errors.New("no such name")
	// ErrAddress: an address that cannot be, or that somebody listens at.
	ErrAddress = errors.New("address")
	// ErrClosed: the server or the connection was closed here or there.
	ErrClosed = errors.New("closed")
	// ErrDied: the process on the other side ended. Its memory stays valid for those who
	// opened it. It answers to ErrClosed too.
	ErrDied = fmt.Errorf("%w: the process on the other side is gone", ErrClosed)
	// ErrProtocol: the other side sent what the protocol does not allow, and was cut off.
	// It answers to ErrClosed too.
	ErrProtocol = fmt.Errorf("%w: protocol violation", ErrClosed)
)

// OpError is the type of the errors of this package: Op names the operation, Kind is one
// of the Err… sentinels or nil when the cause says it, and Err is the cause: what was
// asked, what was found, what to do.
type OpError struct {
	Op   string
	Kind error
	Err  error
}

// Error formats "share: Op: Kind: Err".
func (e *OpError) Error() string {
	s := "share: " + e.Op
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

// named gives a failure of a lower floor the name of the operation that met it; one of
// this package keeps its kind and gets the operation that the caller knows.
func named(op string, err error) error {
	var e *OpError
	if errors.As(err, &e) {
		return &OpError{Op: op, Kind: e.Kind, Err: e.Err}
	}
	return &OpError{Op: op, Err: err}
}

// The kinds as they travel: a refusal names its kind by a number, and the other side's
// error answers to the same sentinel.
var kindNumbers = []error{nil, ErrStale, ErrHandle, ErrNotShared, ErrLimit, ErrRefused, ErrName, ErrClosed, ErrProtocol}

func kindNumber(err error) byte {
	for i := len(kindNumbers) - 1; i > 0; i-- { // the last ones answer to one before them too
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
