package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/python"
)

// health is the state behind Ready and Live. It detects that calls do not end: a model that holds
// Python's GIL in C stops all of them.
type health struct {
	loaded  atomic.Bool  // after Loaded
	retired atomic.Bool  // after Retire or Drain
	warm    atomic.Bool  // the runner has been ready
	badFrom atomic.Int64 // since when it is not, in nanoseconds; 0 while it is
	missed  atomic.Int64 // when the first call gave up since another one finished, in nanoseconds; 0 for none
	stalled atomic.Bool  // as logged
}

// Ready returns nil if requests can be expected to be served. Errors: NotReady while the runner
// warms up, is stuck or makes no progress, before Loaded, and after Retire or Drain.
func (e *Engine) Ready() error {
	if err := e.serves(); err != nil || e.health.loaded.Load() {
		return err
	}
	return notReady("the server is warming up: models are being loaded", nil)
}

// serves returns nil if requests to ready models can be expected to be served.
func (e *Engine) serves() error {
	if e.Retired() {
		return oip.ErrDraining
	}
	return e.healthy()
}

// healthy returns nil if the runner is warm and makes progress.
func (e *Engine) healthy() error {
	err := e.Options.Runner.Health()
	if err == nil {
		err = e.checkProgress()
	}
	switch {
	case errors.Is(err, executor.ErrWarming):
		return notReady("the server is warming up", err)
	case err != nil:
		e.health.badFrom.CompareAndSwap(0, time.Now().UnixNano())
		return notReady("the server is not ready", err)
	case slices.ContainsFunc(e.Models(), func(m *Model) bool { return m.broken() == nil }):
	case e.health.loaded.Load():
		return notReady("no model is ready", nil)
	default:
		return notReady("the server is warming up: models are being loaded", nil)
	}
	e.health.warm.Store(true)
	e.health.badFrom.Store(0)
	return nil
}

// Live returns nil until the runner has been stuck, or without progress, for Options.Patience, as
// seen by Ready or Live. It is nil during a drain. Errors: NotReady.
func (e *Engine) Live() error {
	err := e.healthy()
	if from := e.health.badFrom.Load(); err != nil && from != 0 && time.Since(time.Unix(0, from)) > e.Options.Patience {
		return err
	}
	return nil
}

// Retire makes Ready return an error. Requests are still served, so that load balancers can notice
// before Drain.
func (e *Engine) Retire() { e.health.retired.Store(true) }

// Retired reports whether Retire or Drain was called.
func (e *Engine) Retired() bool { return e.health.retired.Load() }

// note records the end of a call: whether the model finished, or the call's context ended first. A call that
// waited in the queue until then says nothing about the running ones.
func (h *health) note(ctx context.Context, err error) {
	switch missed := h.missed.Load(); {
	case errors.Is(err, python.ErrNotBegun):
	case err != nil && ctx.Err() != nil:
		if missed == 0 {
			h.missed.CompareAndSwap(0, time.Now().UnixNano())
		}
	case missed != 0:
		h.missed.Store(0)
	}
}

// stallGrace is the time that a call may run past its deadline until the server is not ready.
const stallGrace = 2 * time.Second

// errStalled is the reason of a server that makes no progress.
var errStalled = errors.New("the oldest call runs past its deadline, and no call has finished since")

// checkProgress returns errStalled if a call has given up, the oldest call ran then and still runs
// after stallGrace, and no call has finished meanwhile. It logs changes.
func (e *Engine) checkProgress() error {
	var err error
	if missed := e.health.missed.Load(); missed != 0 {
		if since := time.Since(time.Unix(0, missed)); since > stallGrace && e.Options.Runner.Stats().Oldest > since {
			err = errStalled
		}
	}
	if e.health.stalled.Swap(err != nil) != (err != nil) {
		if err != nil {
			e.Options.Log.Error("calls do not end: the server is not ready", "reason", err, "oldest", e.Options.Runner.Stats().Oldest.Round(time.Millisecond))
		} else {
			e.Options.Log.Info("calls end again")
		}
	}
	return err
}
