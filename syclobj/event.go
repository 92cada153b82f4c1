package syclobj

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// Event is the completion of submitted work. Events of the host backend are
// complete from the start; a nil *Event is complete too. An Event lets its SYCL
// event go once it is known to be complete, except on profiling queues, where
// Close does.
type Event struct {
	h         handle
	profiling bool
	complete  bool // from the start: never had a SYCL event

	mu     sync.Mutex
	waiter *waiter
}

// waiter is the one goroutine that waits for an event on behalf of all who do.
type waiter struct {
	done chan struct{}
	err  error // set before done is closed
}

var completeEvent = &Event{complete: true}

func newEvent(ref ref, profiling bool) *Event {
	e := &Event{profiling: profiling}
	e.h.init(ref, sortEvent)
	return e
}

// Wait blocks until the work is complete or ctx ends. When ctx ends first it
// returns ctx's error; the work goes on. ErrAsync means that the work failed.
func (e *Event) Wait(ctx context.Context) error {
	if e == nil || e.complete {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ref, ok := e.h.use()
	if !ok {
		return nil // complete, or closed by one who no longer cares
	}
	if ctx.Done() == nil {
		code := eventWait(ref)
		e.h.done()
		e.known()
		return opErr("Event.Wait", code, "")
	}
	if eventDone(ref) {
		e.h.done()
		e.known()
		return nil
	}
	w := e.startWaiter(ref)
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startWaiter hands the use of ref to the waiting goroutine, or gives it back
// if there is one already.
func (e *Event) startWaiter(ref ref) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiter != nil {
		e.h.done()
		return e.waiter
	}
	w := &waiter{done: make(chan struct{})}
	e.waiter = w
	liveWaiters.Add(1)
	go func() {
		w.err = opErr("Event.Wait", eventWait(ref), "")
		e.h.done()
		e.known()
		liveWaiters.Add(-1)
		close(w.done)
	}()
	return w
}

// known lets the SYCL event of completed work go.
func (e *Event) known() {
	if !e.profiling {
		e.h.close()
	}
}

// Done reports, without blocking, whether the work is complete.
func (e *Event) Done() bool {
	if e == nil || e.complete {
		return true
	}
	ref, ok := e.h.use()
	if !ok {
		return true
	}
	done := eventDone(ref)
	e.h.done()
	if done {
		e.known()
	}
	return done
}

// Ref is the sycl::event*, borrowed; nil when the event is known to be complete
// and after Close.
func (e *Event) Ref() unsafe.Pointer {
	if e == nil || e.complete {
		return nil
	}
	return e.h.get()
}

// Copy is a second, independent event of the same work, to be closed by its
// owner. A complete event is its own copy.
func (e *Event) Copy() *Event {
	if e == nil || e.complete {
		return completeEvent
	}
	ref, ok := e.h.use()
	if !ok {
		return completeEvent
	}
	defer e.h.done()
	own := copyRef(sortEvent, ref)
	if own == nil {
		return completeEvent
	}
	return newEvent(own, e.profiling)
}

// Close lets the SYCL event go without waiting. It may be called again.
func (e *Event) Close() error {
	if e != nil && !e.complete {
		e.h.close()
	}
	return nil
}

// Times are the points of a command's life on the device's clock, which starts
// anywhere.
type Times struct {
	Submitted, Started, Ended time.Duration
}

// Times waits for the work and gives its times. Only events of queues with the
// Profiling property have them.
func (e *Event) Times() (Times, error) {
	const op = "Event.Times"
	if e == nil || e.complete || !e.profiling {
		return Times{}, opErr(op, ErrArgument, "the queue of the event does not have the Profiling property")
	}
	ref, ok := e.h.use()
	if !ok {
		return Times{}, &OpError{Op: op, Err: ErrClosed}
	}
	defer e.h.done()
	t, code := eventProfile(ref)
	if code != codeOK {
		return Times{}, opErr(op, code, "")
	}
	return Times{time.Duration(t[0]), time.Duration(t[1]), time.Duration(t[2])}, nil
}
