package syclobj

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Event is the completion of submitted work. The function that returns an Event documents its owner, who
// closes it; an event that was waited for needs no Close. Methods may be called from several goroutines.
//
// Events of the host backend, and a nil *Event, are complete. An Event deletes its SYCL event when it is
// known to be complete, except on profiling queues, where Close does. The result is kept: every Wait after
// a failure returns it.
type Event struct {
	h         handle
	profiling bool
	complete  bool // from the start: never had a SYCL event

	settling sync.Mutex  // the runtime reports a failure only once, so one goroutine reads it
	ended    atomic.Bool // known to be complete
	failure  Code        // set before ended

	unknown sync.Once     // starts the goroutine that waits for work whose state the runtime does not report
	settled chan struct{} // closed when that goroutine has the result
}

var completeEvent = &Event{complete: true}

func newEvent(ref ref, profiling bool) *Event {
	e := &Event{profiling: profiling}
	e.h.init(ref, sortEvent)
	return e
}

// TakeEvent takes over a sycl::event* that the caller owns, such as [Kernel.Submit] returns. q is the
// queue of the work, or nil if it is unknown; [Event.Times] needs it. The caller closes the Event and
// does not use the reference any more. A nil reference is a complete event.
func TakeEvent(q *Queue, ref unsafe.Pointer) *Event {
	if ref == nil {
		return completeEvent
	}
	return newEvent(ref, q != nil && q.properties&Profiling != 0)
}

// EventFromRef copies a sycl::event*, such as Arrow's device interface contains. The caller closes the
// copy and keeps the original; [TakeEvent] takes one over instead. Errors: ErrNoSYCL, ErrNil, ErrFailed.
func (rt *Runtime) EventFromRef(ref unsafe.Pointer) (*Event, error) {
	const op = "Runtime.EventFromRef"
	own, err := rt.copyForeign(op, sortEvent, ref)
	if err != nil {
		return nil, err
	}
	return newEvent(own, false), nil
}

// Wait blocks until the work is complete or ctx ends. If ctx ends first it returns ctx's error; the work
// continues. Errors: ErrAsync if the work failed, ErrClosed if the event was closed before it was known to
// be complete.
func (e *Event) Wait(ctx context.Context) error {
	if e == nil || e.complete {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ref, ok := e.h.use()
	if !ok {
		return e.result()
	}
	if ctx.Done() == nil || eventDone(ref) {
		e.settle(ref)
		e.h.done()
		return e.result()
	}
	return e.poll(ctx, ref)
}

// The polling interval is an eighth of the duration of the wait, within these bounds. It is the maximum
// delay until a completion is noticed. With more than maxPoll/pollTime waits it is longer, so that all waits
// together poll at most once in pollTime.
const (
	minPoll  = 20 * time.Microsecond
	maxPoll  = 5 * time.Millisecond
	pollTime = 5 * time.Microsecond
)

// pollAfter returns the time until the next poll of a wait that has lasted that long.
func pollAfter(waited time.Duration) time.Duration {
	return max(min(max(waited/8, minPoll), maxPoll), time.Duration(liveWaiters.Load())*pollTime)
}

// poll waits until the work is complete or ctx ends, and takes over a use of the event. It polls, because the
// runtime's own wait cannot be cancelled and occupies a thread.
func (e *Event) poll(ctx context.Context, ref ref) error {
	liveWaiters.Add(1)
	defer liveWaiters.Add(-1)
	start := time.Now()
	timer := time.NewTimer(pollAfter(0))
	defer timer.Stop()
	state := eventStateOf(ref)
	for ; state == eventPending; state = eventStateOf(ref) {
		select {
		case <-ctx.Done():
			e.h.done()
			return ctx.Err()
		case <-timer.C:
			timer.Reset(pollAfter(time.Since(start)))
		}
	}
	if state == eventComplete {
		e.settle(ref)
		e.h.done()
		return e.result()
	}
	// If the runtime does not report the state, the work has failed, and the runtime's own wait returns the
	// failure. It should do so immediately; in case it blocks, one goroutine calls it for all waits.
	starts := false
	e.unknown.Do(func() {
		starts, e.settled = true, make(chan struct{})
		go func() {
			e.settle(ref)
			e.h.done()
			close(e.settled)
		}()
	})
	if !starts {
		e.h.done()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.settled:
		return e.result()
	}
}

// settle waits for the work and stores its result.
func (e *Event) settle(ref ref) {
	e.settling.Lock()
	defer e.settling.Unlock()
	if e.ended.Load() {
		return
	}
	e.failure = eventWait(ref)
	e.ended.Store(true)
	if !e.profiling {
		e.h.close()
	}
}

// known reports whether the work is known to be complete, without a call of the runtime.
func (e *Event) known() bool { return e == nil || e.complete || e.ended.Load() }

// result returns the result of the work, or ErrClosed if it is unknown.
func (e *Event) result() error {
	const op = "Event.Wait"
	if !e.ended.Load() {
		return opErr(op, ErrClosed, "closed before it was known to be complete")
	}
	return opErr(op, e.failure, "")
}

// Done reports, without blocking, whether the work is complete, successfully or not. It returns true after
// Close, when the state is no longer available.
func (e *Event) Done() bool {
	if e.known() {
		return true
	}
	ref, ok := e.h.use()
	if !ok {
		return true
	}
	defer e.h.done()
	if !eventDone(ref) {
		return false
	}
	e.settle(ref)
	return true
}

// Ref returns the sycl::event*, borrowed; nil if the event is known to be complete and after Close.
func (e *Event) Ref() unsafe.Pointer {
	if e == nil || e.complete {
		return nil
	}
	return e.h.get()
}

// Copy returns a second, independent event of the same work; the caller closes it. If the runtime cannot
// create one, Copy waits for the work and returns a complete event.
func (e *Event) Copy() *Event {
	if e == nil || e.complete {
		return completeEvent
	}
	ref, ok := e.h.use()
	if !ok {
		return e.remains()
	}
	defer e.h.done()
	own := copyRef(sortEvent, ref)
	if own == nil {
		e.settle(ref)
		return e.remains()
	}
	c := newEvent(own, e.profiling)
	if e.ended.Load() {
		c.failure = e.failure
		c.ended.Store(true)
	}
	return c
}

// remains returns an event without a SYCL event and with e's result.
func (e *Event) remains() *Event {
	c := &Event{}
	if e.ended.Load() {
		c.failure = e.failure
		c.ended.Store(true)
	}
	return c
}

// Close releases the SYCL event without waiting. It may be called repeatedly.
func (e *Event) Close() error {
	if e != nil && !e.complete {
		e.h.close()
	}
	return nil
}

// Times are the timestamps of a command on the device's clock, whose origin is arbitrary. It is a plain
// value.
type Times struct {
	Submitted, Started, Ended time.Duration
}

// Times waits for the work and returns its timestamps. Only events of queues with the Profiling property
// have them.
func (e *Event) Times() (Times, error) {
	const op = "Event.Times"
	if e == nil || e.complete || !e.profiling {
		return Times{}, opErr(op, ErrArgument, "the queue of the event does not have the Profiling property")
	}
	ref, ok := e.h.use()
	if !ok {
		return Times{}, &OpError{Op: op, Kind: ErrClosed}
	}
	defer e.h.done()
	t, code := eventProfile(ref)
	if code != codeOK {
		return Times{}, opErr(op, code, "")
	}
	return Times{time.Duration(t[0]), time.Duration(t[1]), time.Duration(t[2])}, nil
}

// eventState is USMB_SYCL_EVENT_*.
type eventState uint8

const (
	eventPending eventState = iota
	eventComplete
)
