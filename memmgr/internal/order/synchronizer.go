package order

import (
	"time"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Synchronizer has the methods of memmgr.Synchronizer, which says what they do.
type Synchronizer interface {
	EventDone(event uintptr) bool
	WaitEvent(event uintptr) error
	CopyEvent(event uintptr) uintptr
	ReleaseEvent(event uintptr)
	Barrier(queue uintptr) (uintptr, error)
	Join(queue, a, b uintptr) (uintptr, error)
	SameOrder(a, b uintptr) bool
	QueueRef(q *syclobj.Queue) uintptr
}

// batcher is an optional interface of a Synchronizer: the same operations on many events.
type batcher interface {
	// EventsDone is EventDone for each event.
	EventsDone(events []uintptr, done []bool)
	// ReleaseEvents is ReleaseEvent for each event.
	ReleaseEvents(events []uintptr)
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

// Poll times: work is looked at after ShortPoll, and then after twice the time, up to LongPoll, because short
// work ends soon. Measure with membench: pending, sycl.
const (
	ShortPoll = 100 * time.Microsecond
	LongPoll  = 10 * time.Millisecond
)
