package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// eventBatcher is a Synchronizer that does in one call what it does for many events.
type eventBatcher interface {
	// EventsDone is EventDone for each of them.
	EventsDone(events []uintptr, done []bool)
	// ReleaseEvents is ReleaseEvent for each of them.
	ReleaseEvents(events []uintptr)
}

func eventsDone(s Synchronizer, events []uintptr, done []bool) {
	if b, ok := s.(eventBatcher); ok {
		b.EventsDone(events, done)
		return
	}
	for i, event := range events {
		done[i] = s.EventDone(event)
	}
}

func releaseEvents(s Synchronizer, events []uintptr) {
	if b, ok := s.(eventBatcher); ok {
		b.ReleaseEvents(events)
		return
	}
	for _, event := range events {
		s.ReleaseEvent(event)
	}
}

// eventBatch is what one look asks for; a pool keeps it because C must not be given
// addresses in a goroutine's stack that moves.
type eventBatch struct {
	cells  [mostBatch]*owner.Cell
	events [mostBatch]uintptr
	done   [mostBatch]bool
}
