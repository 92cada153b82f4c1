package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// Reasons why the server ends the context of a call.
var (
	errSlow     = errors.New("the peer was too slow")
	errDraining = errors.New("the server is draining")
)

// errExpired is the error of a call whose deadline has passed.
var errExpired = oip.Errorf(oip.Deadline, "the request's time is over")

type controlKey struct{}

// control lets a handler end the context of its call.
type control struct {
	cancel    context.CancelCauseFunc
	transport context.Context    // ends when gRPC closes the call's stream
	stop      context.CancelFunc // stops the timer of the deadline
}

// timed is called for each call before its handler. It sets the call's deadline (withLead). The
// context of a call that moves tensors can also be ended by its handler: waits inside gRPC's
// transport, for bytes or for room in a window, end with it. Other calls of one message have a time
// limit for all that they do, since gRPC waits for that message before it calls the handler. Streams
// are counted, and may be idle for any time.
func (s *Server) timed(transport context.Context, info *tap.Info) (context.Context, error) {
	ctx, stop := withLead(transport, s.lead)
	tensors := info.FullMethodName == inferMethod || info.FullMethodName == streamMethod
	if !tensors {
		context.AfterFunc(transport, stop)
		if s.rests[info.FullMethodName] {
			return ctx, nil
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = context.WithValue(ctx, controlKey{}, &control{cancel, transport, stop})
	if !tensors {
		c := clock{cancel: cancel}
		c.allow(s.o.Patience, 0)
		context.AfterFunc(ctx, c.end)
	}
	return ctx, nil
}

// maxLead is the longest lead of withLead. For a call with little time it is the time divided by
// leadShare.
const (
	maxLead   = 20 * time.Millisecond
	leadShare = 4
)

// withLead ends a call a little before the deadline that its client has set. At the deadline itself
// gRPC's transport resets the stream with the code CANCEL. Clients report that as CANCELLED if they
// receive it before their own clock reaches the deadline. The lead is the time to send the status
// DEADLINE_EXCEEDED first (expiry).
func withLead(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/leadShare, most)))
}

// expiry sends the status of a call at its deadline, because the handler may have to wait longer
// for a model that cannot be interrupted. It is nil for a call without a deadline.
type expiry struct {
	claimed atomic.Bool // by the side that answers: the handler or the deadline
	stop    func() bool
}

func newExpiry(ctx context.Context) *expiry {
	if _, ok := ctx.Deadline(); !ok {
		return nil
	}
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ WriteStatus(st *status.Status) error })
	if !ok {
		return nil
	}
	x := new(expiry)
	x.stop = context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && x.claim() {
			_ = stream.WriteStatus(status.New(codes.DeadlineExceeded, errExpired.Message))
		}
	})
	return x
}

// claim reports whether the caller may answer the call. After the handler's claim the deadline does
// not end the stream: a status would wait behind the answer until the peer has read that.
func (x *expiry) claim() bool { return x == nil || x.claimed.CompareAndSwap(false, true) }

// release ends the handler's claim after one answer of a stream.
func (x *expiry) release() {
	if x != nil {
		x.claimed.Store(false)
	}
}

// end stops the timer.
func (x *expiry) end() {
	if x != nil {
		x.stop()
	}
}

// resting returns the methods whose calls have any number of messages.
func resting(services map[string]grpc.ServiceInfo) map[string]bool {
	all := map[string]bool{}
	for name, service := range services {
		for _, m := range service.Methods {
			if m.IsClientStream || m.IsServerStream {
				all["/"+name+"/"+m.Name] = true
			}
		}
	}
	return all
}

// clock ends a call if its peer takes too long to send a request or to take an answer. One goroutine
// uses it.
type clock struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer // nil before the first step
	until  time.Time   // the end of the current step; zero between steps
	left   time.Duration
	paused bool
	late   *late
}

// late is what the timer refers to. The runtime may keep a timer that was stopped, and with it the
// function of the timer, so the end of the call clears the reference to the call.
type late struct {
	cancel atomic.Pointer[context.CancelCauseFunc]
}

func (l *late) onTimer() {
	if cancel := l.cancel.Load(); cancel != nil {
		(*cancel)(errSlow)
	}
}

func controlOf(ctx context.Context) *control {
	if c, ok := ctx.Value(controlKey{}).(*control); ok {
		return c
	}
	// The call did not come through gRPC's server.
	return &control{cancel: func(error) {}, transport: ctx, stop: func() {}}
}

// rate is the number of bytes per second that a peer must send or take, in addition to the time that
// each message has.
const rate = 1 << 20

// allow begins a step that moves n bytes.
func (c *clock) allow(base time.Duration, n int) {
	d := base + time.Duration(n)*(time.Second/rate)
	c.until, c.paused = time.Now().Add(d), false
	if c.timer == nil {
		c.late = new(late)
		cancel := c.cancel
		c.late.cancel.Store(&cancel)
		c.timer = time.AfterFunc(d, c.late.onTimer)
		return
	}
	c.timer.Reset(d)
}

// rest ends the step.
func (c *clock) rest() {
	if c.timer != nil {
		c.timer.Stop()
		c.until = time.Time{}
	}
}

// pause stops the step until resume, while the server makes the peer wait. c may be nil.
func (c *clock) pause() {
	if c != nil && !c.until.IsZero() && !c.paused {
		c.timer.Stop()
		c.left, c.paused = time.Until(c.until), true
	}
}

// resume ends a pause, if there is one. c may be nil.
func (c *clock) resume() {
	if c != nil && c.paused && !c.until.IsZero() {
		c.until, c.paused = time.Now().Add(c.left), false
		c.timer.Reset(max(c.left, 0))
	}
}

// end ends the step at the end of the call.
func (c *clock) end() {
	c.rest()
	if c.late != nil {
		c.late.cancel.Store(nil)
	}
}
