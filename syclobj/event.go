package syclobj

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Event is the completion of submitted work. Events of the host backend are
// complete from the start; a nil *Event is complete too. An Event lets its SYCL
// event go once it is known to be complete, except on profiling queues, where
// Close does. How the work ended stays known: every Wait after a failure says so.
type Event struct {
	h         handle
	profiling bool
	complete  bool // from the start: never had a SYCL event

	settling sync.Mutex  // the runtime reports a failure once: one asks for all
	ended    atomic.Bool // known to be complete
	failure  Code        // set before ended

	wait *awaited // guarded by awaiting.mu
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

// EventFromRef copies a sycl::event*, such as Arrow's device interface carries. The caller closes the
// copy and keeps the original; [TakeEvent] takes one over instead. Errors: ErrNoSYCL, ErrNil,
// ErrFailed.
func (rt *Runtime) EventFromRef(ref unsafe.Pointer) (*Event, error) {
	const op = "Runtime.EventFromRef"
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if ref == nil {
		return nil, &OpError{Op: op, Kind: ErrNil}
	}
	own := copyRef(sortEvent, ref)
	if own == nil {
		return nil, &OpError{Op: op, Kind: ErrFailed}
	}
	return newEvent(own, false), nil
}

// Wait blocks until the work is complete or ctx ends. When ctx ends first it
// returns ctx's error; the work goes on. ErrAsync means that the work failed,
// ErrClosed that the event was closed before it was known to be complete.
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
	return awaiting.wait(ctx, e, ref)
}

// settle waits for the work and keeps how it ended.
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

// known reports whether the work is known to be complete, without asking.
func (e *Event) known() bool { return e == nil || e.complete || e.ended.Load() }

// result is how the work ended, ErrClosed when nobody will ever know.
func (e *Event) result() error {
	const op = "Event.Wait"
	if !e.ended.Load() {
		return opErr(op, ErrClosed, "closed before it was known to be complete")
	}
	return opErr(op, e.failure, "")
}

// Done reports, without blocking, whether the work is complete, well or not. It
// is true after Close, when there is nothing left to ask.
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

// Ref is the sycl::event*, borrowed; nil when the event is known to be complete
// and after Close.
func (e *Event) Ref() unsafe.Pointer {
	if e == nil || e.complete {
		return nil
	}
	return e.h.get()
}

// Copy is a second, independent event of the same work, to be closed by its
// owner. When the runtime cannot make one, Copy waits for the work and returns
// an event that is complete.
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

// remains is an event without a SYCL event that knows what e knows.
func (e *Event) remains() *Event {
	c := &Event{}
	if e.ended.Load() {
		c.failure = e.failure
		c.ended.Store(true)
	}
	return c
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
		return Times{}, &OpError{Op: op, Kind: ErrClosed}
	}
	defer e.h.done()
	t, code := eventProfile(ref)
	if code != codeOK {
		return Times{}, opErr(op, code, "")
	}
	return Times{time.Duration(t[0]), time.Duration(t[1]), time.Duration(t[2])}, nil
}
