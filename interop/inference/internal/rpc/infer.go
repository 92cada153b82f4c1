package rpc

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// pushback is the trailer by which gRPC's clients learn when to try again.
func pushback(d time.Duration) metadata.MD {
	return metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(d.Milliseconds(), 10))
}

// exchange is one call that moves tensors.
type exchange struct {
	grpc.ServerStream
	s      *Server
	ctx    context.Context
	clock  *clock
	from   *codec.Receiver
	leases *codec.Leases // gRPC may keep them after the call
	q      *request      // the last one that was read
	err    error         // the reason why q is refused
}

// end ends the call.
func (e *exchange) end() {
	e.clock.timer.Stop()
	e.q.end()
}

// read reads one message. If the request is refused, the reason is in err, and only the message is
// lost. An error that read returns ends the call.
func (e *exchange) read(in *codec.Incoming) error {
	e.clock.timer.Reset(e.s.engine.Options.Timeout) // the message may wait for memory
	e.q = &request{engine: e.s.engine, ctx: e.ctx}
	e.err = e.q.read(in)
	if _, refused := errors.AsType[*oip.Error](e.err); e.err != nil && !refused {
		return e.err
	}
	return nil
}

// answer runs the request that was read and sends its outputs.
func (e *exchange) answer(stream bool) error {
	e.clock.timer.Stop()
	results, err := e.q.r.Run()
	if err != nil {
		return err
	}
	m := newResponse(e.q, results, stream, e.leases)
	e.clock.timer.Reset(e.s.limits.patience + time.Duration(m.raw)*perByte)
	if err := e.SendMsg(m); err != nil {
		e.leases.Abandon()
		return sent{err}
	}
	if err := e.leases.Wait(e.ctx); err != nil {
		if errors.Is(context.Cause(e.ctx), errSlow) {
			// gRPC would keep the response until the peer reads it. The other calls of the connection end too.
			linkOf(e.ctx).Close()
		}
		return sent{err}
	}
	e.clock.timer.Stop()
	return nil
}

// sent is an error of sending, after which nothing more can be sent.
type sent struct{ error }

func (s sent) Unwrap() error { return s.error }

// infer is ModelInfer: one message, one response.
func (e *exchange) infer() error {
	// A message may be refused before it has arrived completely. The rest need not arrive.
	err := e.from.Next(func(in *codec.Incoming) error {
		if err := e.read(in); err != nil {
			return err
		}
		return e.err
	})
	if errors.Is(err, io.EOF) {
		err = oip.Errorf(oip.Invalid, "the call has no request")
	}
	if err == nil {
		err = e.answer(false)
	}
	return e.s.end(e.ctx, err, true)
}

// streamInfer is ModelStreamInfer: requests in sequence, each with a response.
func (e *exchange) streamInfer() error {
	for {
		came, err := e.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		counts := came || e.ctx.Err() == nil // the end of a waiting stream is not a refused request
		if err == nil {
			if err = e.err; err == nil {
				err = e.answer(true)
			}
			_, refused := errors.AsType[*oip.Error](err)
			if _, gone := errors.AsType[sent](err); refused && !gone && e.ctx.Err() == nil {
				own, _ := e.s.clientError(e.ctx, err)
				e.s.engine.Refused(own.Kind)
				counts, err = false, e.SendMsg(&pb.ModelStreamInferResponse{ErrorMessage: own.Message, InferResponse: &pb.ModelInferResponse{Id: e.q.id}})
			}
		}
		e.q.end()
		if err != nil {
			return e.s.end(e.ctx, err, counts)
		}
	}
}

// next waits for a request and reads it. came reports whether a request began to arrive. A waiting
// stream ends when the server drains.
func (e *exchange) next() (came bool, err error) {
	e.clock.timer.Stop()
	resting := context.AfterFunc(e.s.drained, func() { e.clock.cancel(oip.ErrDraining) })
	defer resting()
	err = e.from.Next(func(in *codec.Incoming) error {
		came = true
		resting()
		return e.read(in)
	})
	return came, err
}
