package pending

import (
	"context"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// AwaitAll waits for all work that was pending at its beginning or is added meanwhile, oldest
// first, but not for stalled work beyond the probes, and for blocks that Settle takes. It reports stalled work. mu is not held.
func (s *Set) AwaitAll() {
	defer s.reportStalled()
	defer order.ReleaseLock()()
	s.settleWithin(stallTime)
	var last uint64   // the newest block at the beginning of the current period of stallTime
	var end time.Time // of this period
	for probes := 0; probes < maxProbes; {
		left := time.Until(end)
		s.mu.Lock()
		if left <= 0 {
			s.late = max(s.late, last)
			last, end = s.stamp, time.Now().Add(stallTime)
			s.mu.Unlock()
			s.CompleteAll()
			continue
		}
		s.fence()
		if c := s.oldest(); c != nil {
			s.await(c, left)
			s.CompleteSome(mostBatch)
		} else if c := s.nextProbe(); c == nil {
			s.mu.Unlock()
			return
		} else if !s.await(c, probeTime) {
			probes++
		}
	}
}

// settleWithin is Settle for some time. Blocks that it leaves count as stalled. mu is not held.
func (s *Set) settleWithin(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if order.Within(ctx, s.Settle) == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ever += uint64(s.unsettled.Load() + s.settling.Load())
}

// await waits for the work of a block for some time, and reports whether it finished. It releases mu.
func (s *Set) await(c *owner.Cell, most time.Duration) (over bool) {
	ref, stamp, event := c.Ref(), pendingStamp(c), s.sync.CopyEvent(c.Pending())
	s.mu.Unlock()
	if event == 0 { // no memory for a copy: poll
		time.Sleep(min(most, order.LongPoll))
		return false
	}
	if !awaitEvent(s.sync, event, most) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Ref() == ref && c.Flags()&owner.Queued != 0 && pendingStamp(c) == stamp { // the same block still
		s.finish(c)
		s.ReleaseSpent()
		s.Serve()
	}
	return true
}

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
