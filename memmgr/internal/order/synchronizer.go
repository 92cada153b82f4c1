package order

import (
	"cmp"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Synchronizer orders work on the memory of a resource. Events and queues are raw
// references (sycl::event*, sycl::queue*), not 0 unless stated.
type Synchronizer interface {
	// EventDone reports whether the work of the event is complete.
	EventDone(event uintptr) bool
	// WaitEvent waits until the work is complete and returns its failure.
	WaitEvent(event uintptr) error
	// CopyEvent returns an owned second reference of an event, 0 if memory ran out.
	CopyEvent(event uintptr) uintptr
	// ReleaseEvent releases an owned event.
	ReleaseEvent(event uintptr)
	// Barrier submits a barrier to the queue, or to the place's own queue for 0. It returns
	// an owned event, or 0 if nothing can be pending.
	Barrier(queue uintptr) (uintptr, error)
	// Join returns an owned event that completes when both events did. It is submitted to
	// the queue, or to the place's own queue for 0. Both events stay the caller's.
	Join(queue, a, b uintptr) (uintptr, error)
	// SameOrder reports whether a and b are one in-order queue, so that later submissions
	// to b run after the work on a.
	SameOrder(a, b uintptr) bool
	// QueueRef returns the reference of a queue that cells store, 0 if there is none.
	QueueRef(q *syclobj.Queue) uintptr
}

// batcher is an optional interface of a Synchronizer: the same operations on many events.
type batcher interface {
	// EventsDone is EventDone for each event.
	EventsDone(events []uintptr, done []bool)
	// ReleaseEvents is ReleaseEvent for each event.
	ReleaseEvents(events []uintptr)
}

// waiter is an optional interface of a Synchronizer.
type waiter interface {
	// BarriersPend reports whether a barrier may be pending when the call that submitted it returns.
	BarriersPend() bool
	// TryWaitQueues waits until all work submitted to the queues, of which none is 0, is complete. It returns the first
	// failure. It is busy if it would wait for a computation of another thread, which may wait for a lock of the caller:
	// the caller releases its locks, and repeats the call.
	TryWaitQueues(queues []uintptr) (busy bool, err error)
}

// emptier is an optional interface of a Synchronizer.
type emptier interface {
	// QueueEmpty reports whether all work submitted to the queue, or to the place's own queue for 0, is complete. It
	// submits nothing and does not wait for work; if it cannot find out, it reports false.
	QueueEmpty(queue uintptr) bool
}

// BarriersPend reports whether barriers of a Synchronizer, which may be nil, may be pending when the call that
// submitted them returns. Otherwise work of other libraries is waited for, by calls only whose caller waits.
func BarriersPend(s Synchronizer) bool {
	w, ok := s.(waiter)
	return !ok || w.BarriersPend()
}

// EventsDone sets done to EventDone of each event.
func EventsDone(s Synchronizer, events []uintptr, done []bool) {
	if b, ok := s.(batcher); ok {
		b.EventsDone(events, done)
		return
	}
	for i, event := range events {
		done[i] = s.EventDone(event)
	}
}

// ReleaseEvents releases events.
func ReleaseEvents(s Synchronizer, events []uintptr) {
	if b, ok := s.(batcher); ok {
		b.ReleaseEvents(events)
		return
	}
	for _, event := range events {
		s.ReleaseEvent(event)
	}
}

// Events orders work through the SYCL runtime. queue is the place's own, borrowed from the
// place that the resource retains; 0 if there is none.
type Events struct {
	queue uintptr
}

// System is for cells without a resource: an event contains its context.
var System Events

// EventsOf returns the order of a place, on its own queue.
func EventsOf(p *syclobj.Place) Events { return EventsAt(uintptr(p.Ref())) }

// EventsAt is EventsOf for a reference of a place (usmb_place), which may be 0.
func EventsAt(place uintptr) Events { return Events{ownQueue(place)} }

func (e Events) on(queue uintptr) unsafe.Pointer { return owner.Pointer(cmp.Or(queue, e.queue)) }

// Barrier implements Synchronizer.
func (e Events) Barrier(queue uintptr) (uintptr, error) {
	q := e.on(queue)
	if q == nil {
		return 0, nil
	}
	return barrier("barrier", q, nil)
}

// Join implements Synchronizer.
func (e Events) Join(queue, a, b uintptr) (uintptr, error) {
	return barrier("join events", e.on(queue), []unsafe.Pointer{owner.Pointer(a), owner.Pointer(b)})
}

// eventRef returns an owned reference of an event, 0 when it is complete.
func eventRef(ev *syclobj.Event) uintptr {
	// The copy keeps the event alive while C copies its reference.
	own := ev.Copy()
	defer func() { _ = own.Close() }()
	return System.CopyEvent(uintptr(own.Ref()))
}

// Poll times: work is looked at after ShortPoll, and then after twice the time, up to LongPoll, because short
// work ends soon. Measure with membench: pending, sycl.
const (
	ShortPoll = 100 * time.Microsecond
	LongPoll  = 10 * time.Millisecond
)
