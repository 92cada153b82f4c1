package pending

import (
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// AwaitAll waits for all work that was pending at its beginning or is added meanwhile, oldest
// first, but not for stalled work beyond the probes. It reports stalled work. mu is not held.
func (s *Set) AwaitAll() {
	s.CompleteAll()
	defer s.reportStalled()
	for s.awaitUnstalled() {
	}
	for lost := 0; lost < maxProbes; {
		switch s.awaitNext(true, probeTime) {
		case nothingPending:
			return
		case workPending:
			lost++
		}
	}
}

// awaitUnstalled waits until no block is pending that has not stalled, for up to stallTime. It
// reports whether that time has passed: then all blocks that existed at its beginning have stalled.
func (s *Set) awaitUnstalled() bool {
	s.mu.Lock()
	last, end := s.stamp, time.Now().Add(stallTime)
	s.mu.Unlock()
	for {
		most := time.Until(end)
		if most <= 0 {
			s.mu.Lock()
			s.late = max(s.late, last)
			s.mu.Unlock()
			s.CompleteAll()
			return true
		}
		if s.awaitNext(false, most) == nothingPending {
			return false
		}
	}
}

// awaitNext waits for a block that has not stalled, or for a stalled one that was not probed.
func (s *Set) awaitNext(stalled bool, most time.Duration) awaited {
	s.mu.Lock()
	s.fence()
	next := s.oldest
	if stalled {
		next = s.nextProbe
	}
	c := next()
	if c == nil {
		waits := !stalled && len(s.onCUDA) > 0 && !s.isLate(s.cudaStamp)
		s.mu.Unlock()
		if !waits {
			return nothingPending
		}
		time.Sleep(min(most, order.ShortPoll))
		return workPending
	}
	ref, stamp, event := c.Ref(), pendingStamp(c), s.sync.CopyEvent(c.Pending())
	s.mu.Unlock()
	over := false
	if event == 0 { // no memory for a copy: poll
		time.Sleep(min(most, order.LongPoll))
	} else {
		over = awaitEvent(s.sync, event, most)
	}
	s.mu.Lock()
	if !over && event != 0 {
		s.late = max(s.late, stamp)
	}
	if event != 0 && c.Ref() == ref && c.Flags()&owner.Queued != 0 && pendingStamp(c) == stamp { // the same block still
		s.update(c, over)
		s.ReleaseSpent()
		if over {
			s.Serve()
		}
	}
	s.mu.Unlock()
	if !stalled {
		s.CompleteSome(mostBatch)
	}
	if over {
		return workEnded
	}
	return workPending
}

// awaited is the result of awaitNext.
type awaited int

const (
	nothingPending awaited = iota
	workPending            // the work did not finish in time
	workEnded
)

// awaitEvent waits for an event, which it takes, and reports whether it finished in time. If the
// runtime lost the event, a goroutine keeps waiting for it.
func awaitEvent(s order.Synchronizer, event uintptr, most time.Duration) bool {
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
