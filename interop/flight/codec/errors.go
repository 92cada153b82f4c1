package codec

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kinds of errors, for errors.Is.
var (
	// ErrLimit is matched by every [LimitError].
	ErrLimit = errors.New("limit reached")
	// ErrMalformed is matched by every [WireError].
	ErrMalformed = errors.New("malformed message")
)

// LimitError reports that a peer exceeded a limit. Its gRPC code is ResourceExhausted.
type LimitError struct {
	What  string // the limited quantity, such as "bytes of a message"
	Asked int64
	Limit int64
}

// Error describes the requested and the allowed amount.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d requested, at most %d allowed; send less at a time or raise the limit", e.What, e.Asked, e.Limit)
}

// Unwrap returns ErrLimit.
func (e *LimitError) Unwrap() error { return ErrLimit }

// GRPCStatus returns the status that gRPC sends to the peer.
func (e *LimitError) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// WireError reports a message with an invalid encoding. Its gRPC code is InvalidArgument.
type WireError struct {
	Offset int64 // in bytes, from the start of the message
	Reason string
}

// Error describes the position and the problem.
func (e *WireError) Error() string {
	return fmt.Sprintf("malformed message at byte %d: %s", e.Offset, e.Reason)
}

// Unwrap returns ErrMalformed.
func (e *WireError) Unwrap() error { return ErrMalformed }

// GRPCStatus returns the status that gRPC sends to the peer.
func (e *WireError) GRPCStatus() *status.Status {
	return status.New(codes.InvalidArgument, e.Error())
}
