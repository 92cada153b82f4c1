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

// The kinds of failure, for errors.Is. To gRPC each is the status that is named here.
var (
	// ErrName: no name that a tensor can have (InvalidArgument).
	ErrName = errors.New("not a name of a tensor")
	// ErrNotFound: no tensor of that name (NotFound).
	ErrNotFound = errors.New("no such tensor")
	// ErrStream: messages that are no tensor (InvalidArgument).
	ErrStream = errors.New("not a stream of a tensor")
	// ErrLimit: a bound of the store (ResourceExhausted).
	ErrLimit = errors.New("limit reached")
	// ErrInsecure: a token that would travel in the clear.
	ErrInsecure = errors.New("token without TLS")
)

// Error is the type of this package's errors: what was tried, and of which tensor.
type Error struct {
	Op   string // such as "DoPut"
	Name string // of the tensor, "" where none is meant
	Err  error
}

// Error names operation, tensor and reason.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("flight: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("flight: %s of %q: %v", e.Op, e.Name, e.Err)
}

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus is what a peer is told.
func (e *Error) GRPCStatus() *status.Status {
	return status.New(code(e.Err), e.Error())
}

// code is the status code of a reason.
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
		// Before the context's: a wait for memory that ended is a want of memory.
		{memmgr.ErrOutOfMemory, codes.ResourceExhausted}, {memmgr.ErrClosed, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded}, {context.Canceled, codes.Canceled},
	} {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	return codes.Internal
}
