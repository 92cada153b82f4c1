package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

// Why a call's context was ended from this side.
var (
	errSlow     = errors.New("the peer was too slow")
	errDraining = errors.New("the server is draining")
)

type cancelKey struct{}

// timed gives the calls that move tensors a context that their handler can end: waits
// inside gRPC's transport, for bytes or for room in a window, end with it. Other calls of one
// message have a time for all that they do, since gRPC waits for that message before it calls
// anything of ours; streams are counted, and rest as long as they like.
func (s *Server) timed(ctx context.Context, info *tap.Info) (context.Context, error) {
	tensors := info.FullMethodName == inferMethod || info.FullMethodName == streamMethod
	if !tensors && s.rests[info.FullMethodName] {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = context.WithValue(ctx, cancelKey{}, cancel)
	if !tensors {
		c := clockOf(ctx)
		c.allow(s.o.Patience, 0)
		context.AfterFunc(ctx, c.end)
	}
	return ctx, nil
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
	timer  *time.Timer
	late   *late     // what the timer has
	until  time.Time // when the step is too late
}

// late is emptied at the end of a call: the scheduler may keep a timer that was stopped until its
// time, and with it all that its function refers to, which would be the call's connection and
// the tensors that wait there.
type late struct {
	cancel atomic.Pointer[context.CancelCauseFunc]
}

func (l *late) come() {
	if cancel := l.cancel.Load(); cancel != nil {
		(*cancel)(errSlow)
	}
}

func clockOf(ctx context.Context) clock {
	cancel, ok := ctx.Value(cancelKey{}).(context.CancelCauseFunc)
	if !ok {
		cancel = func(error) {} // a call that did not come through gRPC's server
	}
	return clock{cancel: cancel}
}

// rate is how many bytes a second a peer must take or give, besides the time that each
// message has anyway.
const rate = 1 << 20

// allow begins a step that moves n bytes.
func (c *clock) allow(base time.Duration, n int) {
	c.run(base + time.Duration(n)*(time.Second/rate))
}

// run has the step end so much later.
func (c *clock) run(d time.Duration) {
	c.until = time.Now().Add(d)
	if c.timer == nil {
		c.late = new(late)
		c.late.cancel.Store(new(c.cancel))
		c.timer = time.AfterFunc(d, c.late.come)
		return
	}
	c.timer.Reset(d)
}

// rest ends the step; what follows is not the peer's to hasten.
func (c *clock) rest() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// waits stops the clock in a step, while it is this side that the peer waits for; the function that
// it returns has it go on.
func (c *clock) waits() (on func()) {
	left := time.Until(c.until)
	c.rest()
	return func() { c.run(left) }
}

// end is rest at the end of the call.
func (c *clock) end() {
	c.rest()
	if c.late != nil {
		c.late.cancel.Store(nil)
	}
}
