package flight

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Kinds of failure, for errors.Is, with the gRPC status of each.
var (
	// ErrName: an invalid name of a tensor (InvalidArgument).
	ErrName = errors.New("invalid name")
	// ErrNotFound: no tensor of that name (NotFound).
	ErrNotFound = errors.New("no such tensor")
	// ErrStream: messages that do not form a tensor (InvalidArgument).
	ErrStream = errors.New("invalid stream of a tensor")
	// ErrLimit: a bound was reached (ResourceExhausted).
	ErrLimit = errors.New("limit reached")
	// ErrInsecure: a token would be sent without encryption.
	ErrInsecure = errors.New("token without TLS")
)

// Error is the type of this package's errors.
type Error struct {
	Op   string // such as "DoPut"
	Name string // of the tensor; "" if the error is not about one
	Err  error
}

// Error returns the operation, the tensor and the reason.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("flight: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("flight: %s of %q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus returns the status that a peer receives.
func (e *Error) GRPCStatus() *status.Status {
	return status.New(code(e.Err), e.Error())
}

// code returns the status code of an error.
func code(err error) codes.Code {
	var own *Error
	for errors.As(err, &own) {
		err = own.Err
	}
	if s, ok := status.FromError(err); ok {
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
