package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Kinds of errors, for errors.Is, with their gRPC status codes.
var (
	// ErrName reports an invalid tensor name (InvalidArgument).
	ErrName = errors.New("invalid name")
	// ErrNotFound reports that there is no tensor with the name (NotFound).
	ErrNotFound = errors.New("no such tensor")
	// ErrStream reports messages that do not form a tensor (InvalidArgument).
	ErrStream = errors.New("invalid stream of a tensor")
	// ErrLimit reports an exceeded limit (ResourceExhausted).
	ErrLimit = errors.New("limit reached")
	// ErrInsecure reports that a token would be sent without encryption.
	ErrInsecure = errors.New("token without TLS")
)

// Error is the error type of this package. It is immutable and safe for concurrent use.
type Error struct {
	Op   string // such as "DoPut"
	Name string // name of the tensor; "" if the error does not concern one
	Kind error  // one of the Err… variables; nil if Err, an error of another package, is sufficient
	Err  error  // the problem and a hint
}

// Error returns "flight: Op of Name: Kind: Err".
func (e *Error) Error() string {
	s := "flight: " + e.Op
	if e.Name != "" {
		s += fmt.Sprintf(" of %q", e.Name)
	}
	for _, reason := range e.Unwrap() {
		s += ": " + reason.Error()
	}
	return s
}

// Unwrap returns the kind and the problem.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// kindErr returns an error to which named adds the operation and the tensor.
func kindErr(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// named returns err as the error of an operation on a tensor. An error of this package keeps its kind.
func named(op, name string, err error) error {
	e := Error{Op: op, Name: name, Err: err}
	if inner, ok := err.(*Error); ok { //nolint:errorlint // wrapped errors keep their text
		e.Name, e.Kind, e.Err = cmp.Or(name, inner.Name), inner.Kind, inner.Err
	}
	return &e
}

// GRPCStatus returns the status that a peer receives.
func (e *Error) GRPCStatus() *status.Status {
	return status.New(code(e), e.Error())
}

// code returns the status code of an error.
func code(err error) codes.Code {
	cause := err
	for own := (*Error)(nil); errors.As(cause, &own); { // GRPCStatus of an Error calls this function
		cause = own.Err
	}
	if s, ok := status.FromError(cause); ok {
		return s.Code()
	}
	for _, c := range []struct {
		kind error
		code codes.Code
	}{
		{ErrName, codes.InvalidArgument}, {ErrStream, codes.InvalidArgument},
		{usmarrow.ErrType, codes.InvalidArgument}, {usmarrow.ErrNulls, codes.InvalidArgument}, {usmarrow.ErrLayout, codes.InvalidArgument},
		{usmarrow.ErrMalformed, codes.InvalidArgument},
		{ErrNotFound, codes.NotFound}, {ErrLimit, codes.ResourceExhausted},
		// Before the errors of contexts: a wait for memory that timed out is a lack of memory.
		{memmgr.ErrOutOfMemory, codes.ResourceExhausted}, {memmgr.ErrClosed, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded}, {context.Canceled, codes.Canceled},
	} {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	return codes.Internal
}
