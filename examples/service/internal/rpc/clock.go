package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/tap"
)

// Why a call's context was ended from this side.
var (
	errSlow     = errors.New("the peer was too slow")
	errDraining = errors.New("the server is draining")
)

type cancelKey struct{}

// timed gives the calls that move tensors a context that their handler can end: waits
// inside gRPC's transport, for bytes or for room in a window, end with it.
func timed(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName != inferMethod && info.FullMethodName != streamMethod {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel), nil
}

// clock ends a call when its current step takes too long. One goroutine uses it.
type clock struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
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
	d := base + time.Duration(n)*(time.Second/rate)
	if c.timer == nil {
		cancel := c.cancel
		c.timer = time.AfterFunc(d, func() { cancel(errSlow) })
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
