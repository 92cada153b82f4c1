package oip

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// Kind is why a request was refused, as far as it concerns its client.
type Kind uint8

// The kinds of refusal.
const (
	Internal    Kind = iota // the server's own fault
	Invalid                 // a request that makes no sense
	NotFound                // what it names is not there
	TooLarge                // it would never fit
	NotReady                // warming up, draining, or stuck
	Busy                    // memory, or the queue, is full: it may come again
	Deadline                // its time was over
	Cancelled               // the client went away
	Unsupported             // a part of the protocol that is not served
	InUse                   // what is to go is in use
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

// Kinds is how many there are, from 0 on.
const Kinds = len(kinds)

func (k Kind) known() Kind {
	if int(k) >= len(kinds) {
		return Internal
	}
	return k
}

// HTTP returns the status of a response; 499, which no standard has, means that nobody
// waits for it.
func (k Kind) HTTP() int { return kinds[k.known()].http }

// GRPC returns the code of a status.
func (k Kind) GRPC() codes.Code { return kinds[k.known()].grpc }

// String gives the kind in a word or two, for logs and metrics.
func (k Kind) String() string { return kinds[k.known()].name }

// Error is a refusal. Message is for the client, who learns nothing of the server's inside
// from it; Err is for our log.
type Error struct {
	Kind       Kind
	Message    string
	RetryAfter time.Duration // when to try again; 0 if that does not help
	Err        error
	Logged     bool // the log has it
}

// Error gives the message and the cause: it is for logs. A client is told Message.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error whose message, which the client gets, is formatted. Words of the
// client's own belong in Quote.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// As makes of any error what a client is told: an *Error as it is, the end of a context by
// its kind, and of all others nothing but that they happened. nil stays nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
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

// quoted is how many bytes of a client's words come back to it.
const quoted = 64

// Quote puts words of a client into an error for it: in quotes, without control characters,
// cut off where they are long.
func Quote(s string) string {
	if len(s) > quoted {
		return strconv.QuoteToASCII(s[:quoted]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
