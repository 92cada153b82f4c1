package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// progress detects that calls do not end: a model that holds Python's GIL in C stops all of them.
type progress struct {
	missed  atomic.Int64 // when the first call gave up since another one finished, in nanoseconds; 0 for none
	stalled atomic.Bool  // as logged
}

// note records the end of a call: whether the model finished, or the call's context ended first.
func (p *progress) note(ctx context.Context, err error) {
	switch missed := p.missed.Load(); {
	case err != nil && ctx.Err() != nil:
		if missed == 0 {
			p.missed.CompareAndSwap(0, time.Now().UnixNano())
		}
	case missed != 0:
		p.missed.Store(0)
	}
}

// errStalled is the reason of a server that makes no progress.
var errStalled = errors.New("the oldest call runs past its deadline, and no call has finished since")

// checkProgress returns errStalled if a call has given up, the oldest call ran then and still runs
// after Options.Grace, and no call has finished meanwhile. It logs changes.
func (e *Engine) checkProgress() error {
	var err error
	if missed := e.progress.missed.Load(); missed != 0 {
		if since := time.Since(time.Unix(0, missed)); since > e.o.Grace && e.Runner().Stats().Oldest > since {
			err = errStalled
		}
	}
	if e.progress.stalled.Swap(err != nil) != (err != nil) {
		if err != nil {
			e.log().Error("calls do not end: the server is not ready", "reason", err, "oldest", e.Runner().Stats().Oldest.Round(time.Millisecond))
		} else {
			e.log().Info("calls end again")
		}
	}
	return err
}
