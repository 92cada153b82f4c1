// Package poll lets calls that wait for another process call a function from time to time, on the goroutine
// of the call. Package pymodule handles Python's signals so: only the thread that Python has called can do
// that. The function ends a wait by cancelling the context.
package poll

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// Interval is the time between two calls of the function of a context.
const Interval = 100 * time.Millisecond

type key struct{}

// With returns a context with a function. Only the calling goroutine may use the context.
func With(ctx context.Context, f func()) context.Context { return context.WithValue(ctx, key{}, f) }

// Of returns the function of a context, or nil.
func Of(ctx context.Context) func() {
	f, _ := ctx.Value(key{}).(func())
	return f
}

// Do calls wait. If the context has a function, wait runs on another goroutine, with a context without the
// function, and Do calls the function until wait returns.
func Do(ctx context.Context, wait func(context.Context) error) error {
	f := Of(ctx)
	if f == nil {
		return wait(ctx)
	}
	done := make(chan func() error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				text := fmt.Sprintf("%v\n%s", p, debug.Stack())
				done <- func() error { panic(text) }
			}
		}()
		err := wait(With(ctx, nil))
		done <- func() error { return err }
	}()
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case result := <-done:
			return result()
		case <-tick.C:
			f()
		}
	}
}

// Resume is Do for a function that can be called again after it returned the error of its context. The
// first call runs on the goroutine of Resume, because changing goroutines takes longer than a quick answer.
func Resume(ctx context.Context, wait func(context.Context) error) error {
	if Of(ctx) == nil {
		return wait(ctx)
	}
	quick, cancel := context.WithTimeout(ctx, Interval)
	err := wait(With(quick, nil))
	expired := quick.Err() != nil
	cancel()
	if err == nil || !expired {
		return err
	}
	return Do(ctx, wait)
}

// Closed waits until a channel is closed, or returns the error of the context.
func Closed(ctx context.Context, c <-chan struct{}) error {
	return Resume(ctx, func(ctx context.Context) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return operr.Ended(ctx)
		}
	})
}
