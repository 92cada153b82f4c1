package oip

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// Kind is the reason why a request was refused or failed, as far as the client is concerned.
type Kind uint8

// The kinds of refusal.
const (
	Internal    Kind = iota // an error of the server
	Invalid                 // the request is invalid
	NotFound                // a named object does not exist
	TooLarge                // the request exceeds a bound and never succeeds
	NotReady                // loading, draining, or stuck
	Busy                    // memory or the queue is full: try again
	Deadline                // the time of the request has passed
	Cancelled               // the client is gone
	Unsupported             // a part of the protocol that is not supported
	InUse                   // the object to be removed is in use
)

// kinds are the status codes and the names, by Kind.
var kinds = [...]struct {
	name string
	http int
	grpc codes.Code
}{
	Internal:    {"internal", 500, codes.Internal},
	Invalid:     {"invalid", 400, codes.InvalidArgument},
	NotFound:    {"not found", 404, codes.NotFound},
	TooLarge:    {"too large", 413, codes.InvalidArgument},
	NotReady:    {"not ready", 503, codes.Unavailable},
	Busy:        {"busy", 503, codes.ResourceExhausted},
	Deadline:    {"deadline", 504, codes.DeadlineExceeded},
	Cancelled:   {"cancelled", 499, codes.Canceled},
	Unsupported: {"unsupported", 400, codes.Unimplemented},
	InUse:       {"in use", 409, codes.InvalidArgument},
}

// Kinds is the number of kinds.
const Kinds = len(kinds)

// HTTP returns the status of a response. 499 is not a standard status: the client is gone.
func (k Kind) HTTP() int { return kinds[k].http }

// GRPC returns the code of a status.
func (k Kind) GRPC() codes.Code { return kinds[k].grpc }

// String returns the name of the kind, for logs and metrics.
func (k Kind) String() string { return kinds[k].name }

// Error is a refused or failed request. Message is for the client and contains no details of the
// server. Err is for the log.
type Error struct {
	Kind       Kind
	Status     int // of HTTP; 0: that of Kind
	Message    string
	RetryAfter time.Duration // when to try again; 0 if that does not help
	Err        error
	Logged     bool // the log has it
}

// Error returns the message and the cause, for the log.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a formatted message for the client. Text of the client must be quoted
// with Quote.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// ErrDraining refuses what comes while the server shuts down.
var ErrDraining = &Error{Kind: NotReady, Message: "the server is shutting down", RetryAfter: time.Second}

// As converts any error to an *Error: an *Error is returned as it is, the end of a context gets its
// kind, and other errors are Internal, without details in the message.
func As(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: Deadline, Message: "the request's time is over", Err: err}
	case errors.Is(err, context.Canceled):
		return &Error{Kind: Cancelled, Message: "the request was cancelled", Err: err}
	}
	return &Error{Kind: Internal, Message: "the server failed", Err: err}
}

// quoted is the maximum number of bytes of the client's text in an error.
const quoted = 64

// Quote returns text of a client for an error message: in quotes, without control characters, and
// cut if it is long.
func Quote(s string) string {
	if len(s) > quoted {
		return strconv.QuoteToASCII(s[:quoted]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
