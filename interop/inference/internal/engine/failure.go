package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
)

// retryAfter is the time after which a client may try again.
const retryAfter = time.Second

// busy returns the error for a client that may try again later.
func busy(message string, err error) *oip.Error {
	return &oip.Error{Kind: oip.Busy, Message: message, RetryAfter: retryAfter, Err: err}
}

// notReady returns the error of a server or model that serves no requests at present.
func notReady(message string, err error) *oip.Error {
	return &oip.Error{Kind: oip.NotReady, Message: message, RetryAfter: retryAfter, Err: err}
}

// invalidInput is the class of the exceptions whose message is for the client.
const invalidInput = "usmbridge.serving.InvalidInput"

// clientError returns the error for the client. Of the exceptions of a model, only the message of an
// InvalidInput is for clients. Other messages and tracebacks are in Err, for the log.
func (r *Request) clientError(err error) *oip.Error {
	if e, ok := errors.AsType[*oip.Error](err); ok {
		return e
	}
	name := r.model.def.Meta.Name
	switch {
	case r.parent.Err() != nil && errors.Is(context.Cause(r.parent), context.Canceled):
		return &oip.Error{Kind: oip.Cancelled, Message: "the request was cancelled", Err: err}
	case r.ctx.Err() != nil && r.model.engine.interrupted.Err() != nil:
		return notReady(oip.ErrDraining.Message, err)
	case errors.Is(err, python.MemoryError), errors.Is(err, memmgr.ErrOutOfMemory):
		return busy(fmt.Sprintf("model %s: out of memory", name), err)
	case errors.Is(err, workers.ErrTooLong):
		return &oip.Error{Kind: oip.TooLarge, Message: fmt.Sprintf("the outputs of model %s are larger than those of a request may be", name), Err: err}
	case r.ctx.Err() != nil:
		return &oip.Error{Kind: oip.Deadline, Message: fmt.Sprintf("the request's time was over before model %s was done", name), Err: err}
	case errors.Is(err, executor.ErrFull):
		return busy("too many requests are being served", err)
	case errors.Is(err, executor.ErrClosed):
		return notReady(oip.ErrDraining.Message, err)
	case errors.Is(err, workers.ErrRestarts):
		return notReady("the server is not ready", err)
	}
	if p, ok := errors.AsType[*python.Error](err); ok {
		if slices.Contains(p.Classes, invalidInput) {
			return &oip.Error{Kind: oip.Invalid, Message: fmt.Sprintf("model %s: %s", name, clip(p.Message)), Err: err}
		}
		return &oip.Error{Kind: oip.Internal, Message: fmt.Sprintf("model %s failed: %s", name, clip(p.Type)), Err: fmt.Errorf("%w\n%s", err, p.Traceback)}
	}
	return &oip.Error{Kind: oip.Internal, Message: fmt.Sprintf("model %s failed", name), Err: err}
}
