package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// CallEach implements Runner: it calls a function in this process, on a thread of its own, after the warm-up. When ctx
// ends, the call is interrupted as those of Call are. If it still runs Config.Grace later, CallEach returns ErrStuck, and
// so do further calls with this key until it has ended; Stats.Lost counts such threads. Close does not wait for them.
// CallEach must not be called by the functions that it calls.
func (e *Executor) CallEach(ctx context.Context, key, function, text string) (string, error) {
	if e.closed.Load() {
		return "", &Error{Op: function, Kind: ErrClosed}
	}
	if err := e.Ready(ctx); err != nil {
		return "", err
	}
	turn := e.each.Take(ctx, key)
	if turn == nil {
		if ctx.Err() != nil {
			return "", &Error{Op: function, Kind: python.ErrNotBegun, Err: operr.Ended(ctx)}
		}
		return "", &Error{Op: function, Kind: ErrStuck, Err: errors.New("an earlier call still runs")}
	}
	type outcome struct {
		text string
		err  error
	}
	over := make(chan outcome, 1)
	go func() {
		text, err := calls.Text(ctx, e.py, function, text)
		turn.Leave()
		over <- outcome{text, err}
	}()
	take := func(o outcome) (string, error) {
		if o.err != nil {
			return "", &Error{Op: function, Err: o.err}
		}
		return o.text, nil
	}
	select {
	case o := <-over:
		return take(o)
	case <-ctx.Done():
	}
	timer := time.NewTimer(e.config.Grace)
	defer timer.Stop()
	select {
	case o := <-over:
		return take(o)
	case <-timer.C:
	}
	if !turn.Strand() {
		return take(<-over)
	}
	return "", &Error{Op: function, Kind: ErrStuck, Err: fmt.Errorf("%w, but the call did not stop within %v", operr.Ended(ctx), e.config.Grace)}
}
