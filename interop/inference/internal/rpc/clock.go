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

// Why a call's context was ended from this side.
var (
	errSlow     = errors.New("the peer was too slow")
	errDraining = errors.New("the server is draining")
)

// errExpired is the error of a call whose deadline has passed.
var errExpired = oip.Errorf(oip.Deadline, "the request's time is over")

type controlKey struct{}

// control is how a handler ends the context of its call.
type control struct {
	cancel    context.CancelCauseFunc
	transport context.Context    // ends when gRPC closes the call's stream
	stop      context.CancelFunc // stops the timer of the deadline
}

// timed is called for each call before its handler. It sets the call's deadline (withLead). The
// context of a call that moves tensors can also be ended by its handler: waits inside gRPC's
// transport, for bytes or for room in a window, end with it. Other calls of one message have a
// time limit for all that they do, since gRPC waits for that message before it calls the handler.
// Streams are counted, and may be idle for any time.
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

// resting are the methods whose calls have any number of messages.
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

// clock ends a call when its current step takes too long. One goroutine uses it.
type clock struct {
	cancel context.CancelCauseFunc
	late   *late // what the timer has; nil before the first step
}

// late is emptied at the end of a call: the scheduler may keep a timer that was stopped until its
// time, and with it all that its function refers to, which would be the call's connection and
// the tensors that wait there.
type late struct {
	cancel atomic.Pointer[context.CancelCauseFunc]
	timer  atomic.Pointer[time.Timer]
	until  atomic.Int64 // when the step is too late, by elapsed; 0 between steps
	waits  atomic.Int64 // since when it is not the peer that is waited for; 0: it is
}

var start = time.Now()

// elapsed is the time of clocks, above 0.
func elapsed() int64 { return int64(time.Since(start)) + 1 }

// again is how soon a timer comes back that came while this side was waited for.
const again = 100 * time.Millisecond

// come is what the timer does. A step that was lengthened meanwhile, or is another one by now, has
// the timer come again: setting it wakes the scheduler, and most calls end long before.
func (l *late) come() {
	paused := l.waits.Load() != 0 // first: resume lengthens the step before it clears that
	cancel, until := l.cancel.Load(), l.until.Load()
	if cancel == nil || until == 0 {
		return
	}
	left := time.Duration(until - elapsed())
	switch {
	case paused:
		left = again
	case left <= 0:
		(*cancel)(errSlow)
		return
	}
	if t := l.timer.Load(); t != nil {
		t.Reset(left)
	} else {
		time.AfterFunc(left, l.come) // the first one is being made
	}
}

func controlOf(ctx context.Context) *control {
	if c, ok := ctx.Value(controlKey{}).(*control); ok {
		return c
	}
	// The call did not come through gRPC's server.
	return &control{cancel: func(error) {}, transport: ctx, stop: func() {}}
}

// rate is how many bytes a second a peer must take or give, besides the time that each
// message has anyway.
const rate = 1 << 20

// allow begins a step that moves n bytes.
func (c *clock) allow(base time.Duration, n int) {
	d := base + time.Duration(n)*(time.Second/rate)
	l := c.late
	if l == nil {
		l = new(late)
		l.cancel.Store(new(c.cancel))
		c.late = l
	}
	l.until.Store(elapsed() + int64(d))
	if t := l.timer.Load(); t != nil {
		t.Reset(d)
	} else {
		l.timer.Store(time.AfterFunc(d, l.come))
	}
}

// rest ends the step; what follows is not the peer's to hasten.
func (c *clock) rest() {
	if c.late != nil {
		c.late.until.Store(0)
		c.late.timer.Load().Stop()
	}
}

// pause lengthens a step by the time until resume, in which it is this side that the peer waits for.
// A nil clock is no one's.
func (c *clock) pause() {
	if c != nil && c.late != nil {
		c.late.waits.Store(elapsed())
	}
}

// resume ends a pause, if there is one.
func (c *clock) resume() {
	if c == nil || c.late == nil {
		return
	}
	l := c.late
	if since := l.waits.Load(); since != 0 {
		if until := l.until.Load(); until != 0 { // else the step is over
			l.until.Store(until + elapsed() - since)
		}
		l.waits.Store(0)
	}
}

// end is rest at the end of the call.
func (c *clock) end() {
	c.rest()
	if c.late != nil {
		c.late.cancel.Store(nil)
	}
}
