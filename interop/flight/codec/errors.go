package codec

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The kinds of failure, for errors.Is.
var (
	// ErrLimit: a bound was reached ([LimitError]).
	ErrLimit = errors.New("limit reached")
	// ErrMalformed: the bytes are no message ([WireError]).
	ErrMalformed = errors.New("malformed message")
)

// LimitError is a bound that a peer reached. gRPC sees ResourceExhausted.
type LimitError struct {
	What  string // what is bounded, such as "bytes of a message"
	Asked int64
	Limit int64
}

// Error says what was asked and what is allowed.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d asked for, at most %d allowed; send less at a time or raise the limit", e.What, e.Asked, e.Limit)
}

// Unwrap gives ErrLimit.
func (e *LimitError) Unwrap() error { return ErrLimit }

// GRPCStatus is what a peer is told.
func (e *LimitError) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// WireError is a message that breaks the rules of its encoding. gRPC sees
// InvalidArgument.
type WireError struct {
	Offset int64 // in bytes, from the start of the message
	Reason string
}

// Error says where and why.
func (e *WireError) Error() string {
	return fmt.Sprintf("malformed message at byte %d: %s", e.Offset, e.Reason)
}

// Unwrap gives ErrMalformed.
func (e *WireError) Unwrap() error { return ErrMalformed }

// GRPCStatus is what a peer is told.
func (e *WireError) GRPCStatus() *status.Status {
	return status.New(codes.InvalidArgument, e.Error())
}
