package memmgr

import (
	"errors"
	"time"
)

var errStalled = errors.New("its work has not ended")

// stallClock decides which entries of a collection have stalled. Each entry has a stamp, which
// increases from entry to entry, so that the time of each entry does not have to be stored.
type stallClock struct {
	stamp uint64             // of the last entry
	late  uint64             // entries up to this stamp have stalled if they are still pending
	marks [stallTicks]uint64 // the stamp at each of the last ticks
	ticks uint32
}

// next returns the stamp of a new entry.
func (s *stallClock) next() uint64 {
	s.stamp++
	return s.stamp
}

func (s *stallClock) isLate(stamp uint64) bool { return stamp <= s.late }

func (s *stallClock) tick() {
	s.ticks++
	mark := &s.marks[s.ticks%stallTicks]
	s.late, *mark = max(s.late, *mark), s.stamp
}

// pendingWork is a collection of memory that waits for device work.
type pendingWork interface {
	// lastStamp returns the stamp of the last entry.
	lastStamp() uint64
	// stallUntil declares that pending entries up to a stamp have stalled, and releases the
	// entries whose work is done.
	stallUntil(stamp uint64)
	// awaitNext waits for an entry that has not stalled, or for a stalled one that was not
	// probed.
	awaitNext(stalled bool, most time.Duration) awaited
}

// awaited is the result of awaitNext.
type awaited int

const (
	nothingPending awaited = iota
	workPending            // the work did not finish in time
	workEnded
)

// awaitWork waits for all work that was pending at its beginning or is added meanwhile, oldest
// first, but not for stalled work beyond the probes.
func awaitWork(w pendingWork) {
	for awaitUnstalled(w) {
	}
	for lost := 0; lost < maxProbes; {
		switch w.awaitNext(true, probeTime) {
		case nothingPending:
			return
		case workPending:
			lost++
		}
	}
}

// awaitUnstalled waits until no entry is pending that has not stalled, for up to stallTime. It
// reports whether that time has passed: then all entries that existed at its beginning have stalled.
func awaitUnstalled(w pendingWork) bool {
	last, end := w.lastStamp(), time.Now().Add(stallTime)
	for {
		left := time.Until(end)
		if left <= 0 {
			w.stallUntil(last)
			return true
		}
		if w.awaitNext(false, left) == nothingPending {
			return false
		}
	}
}

// awaitEvent waits for an event, which it takes, and reports whether it finished in time. If the
// runtime lost the event, a goroutine keeps waiting for it. 0 stands for an event of which no copy
// could be made: its end is unknown.
func awaitEvent(s Synchronizer, event uintptr, most time.Duration) bool {
	if event == 0 {
		return false
	}
	if s.EventDone(event) {
		s.ReleaseEvent(event)
		return true
	}
	over := make(chan struct{})
	go func() {
		_ = s.WaitEvent(event)
		s.ReleaseEvent(event)
		close(over)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
		return false
	}
}
