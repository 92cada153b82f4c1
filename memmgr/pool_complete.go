package memmgr

import (
	"errors"
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

const (
	// firstBatch is how many blocks of a queue are asked for first; while all of them
	// are done, twice as many are, up to mostBatch, which is also how many are looked
	// at under one hold of the lock.
	firstBatch = 4
	mostBatch  = 64
	// tickLooks is how many blocks a tick looks at in vain.
	tickLooks = 1024
	// Work that has not ended after so many ticks has stalled.
	stallTicks = 40
	stallTime  = stallTicks * tickTime
)

// What has stalled is waited for once, for a moment, when somebody waits for
// everything: only the wait tells the end of work that failed, where the runtime
// never calls its event done. So many that do not end are enough.
const (
	probeTime = 100 * time.Millisecond
	maxProbes = 16
)

// errStalled: the runtime has not called an event done for stallTime.
var errStalled = errors.New("its work has not ended")

// completeSome makes blocks reusable whose work is done. It looks at budget blocks in
// vain at most, of each queue at the oldest first and then at some behind them, so
// that one that never ends hides nothing. It lets go of the lock between portions.
// p.mu is not held.
func (p *Pool) completeSome(budget int) (completed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fence()
	for budget = min(budget, p.pending.n); budget > 0; {
		asked, done := p.collect(min(budget, mostBatch))
		completed += done
		if asked == 0 {
			break
		}
		budget -= asked - done
		p.breathe(done)
	}
	return completed
}

// breathe lets others have the lock between two portions, after telling those who
// wait for room. p.mu is held.
func (p *Pool) breathe(done int) {
	if done > 0 {
		p.roomMade()
	}
	spent := p.spent
	p.spent = nil
	p.mu.Unlock()
	releaseEvents(p.sync, spent)
	p.mu.Lock()
}

// releaseSpent lets go of the events of what was completed. p.mu is held, so they
// should be few: breathe does it without.
func (p *Pool) releaseSpent() {
	releaseEvents(p.sync, p.spent)
	p.spent = p.spent[:0]
}

// collectNow is collect for who needs memory at once. p.mu is held.
func (p *Pool) collectNow(limit int) {
	p.collect(limit)
	p.releaseSpent()
}

// completeAll looks once at each block that waits, those that stalled included.
// p.mu is not held.
func (p *Pool) completeAll() (completed int) {
	p.sweeping.Lock() // one sweep at a time: each queue keeps one place
	defer p.sweeping.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refence()
	last := p.pending.stamp
	for _, ref := range p.pending.refs() {
		if q := p.pending.queues[ref]; q != nil {
			completed += p.sweep(q, last)
		}
	}
	return completed + p.sweep(&p.pending.stalled, last)
}

// sweep looks once at each block of a queue that came until a stamp. p.mu is held,
// but for moments.
func (p *Pool) sweep(q *pendingQueue, last uint64) (completed int) {
	for q.sweep = q.first; q.sweep != 0 && pendingStamp(owner.At(q.sweep)) <= last; {
		_, done, next := p.look(q, q.sweep, mostBatch)
		completed += done
		q.sweep = next
		p.breathe(done)
	}
	q.sweep = 0
	return completed
}

// collect completes blocks whose events are done, asking for limit of them at most.
// p.mu is held.
func (p *Pool) collect(limit int) (asked, done int) {
	p.fence()
	s := &p.pending
	for visits := len(s.ring); visits > 0 && asked < limit && len(s.ring) > 0; visits-- {
		s.turn %= len(s.ring)
		q := s.ring[s.turn]
		a, d := p.lookAtQueue(q, limit-asked)
		asked, done = asked+a, done+d
		if d == 0 {
			s.turn++
		}
	}
	return asked, done
}

// lookAtQueue asks for the oldest blocks of a queue; when none of them is done, for
// some behind, going on where the last look ended.
func (p *Pool) lookAtQueue(q *pendingQueue, limit int) (asked, done int) {
	asked, done, next := p.look(q, q.first, min(limit, q.batch))
	if done == asked {
		q.batch = min(2*q.batch, mostBatch)
		return asked, done
	}
	q.batch = firstBatch
	if done > 0 || asked == limit || q.n == 0 {
		return asked, done
	}
	if q.cursor == 0 {
		q.cursor = next
	}
	a, d, next := p.look(q, q.cursor, min(limit-asked, 4*firstBatch))
	q.cursor = next
	return asked + a, done + d
}

// look asks for so many blocks of a queue from one on, and completes those that are
// done; the others are put aside if they have stalled. next is the number of the
// block behind them.
func (p *Pool) look(q *pendingQueue, from uint32, most int) (asked, done int, next uint32) {
	b := &p.batch
	for next = from; next != 0 && asked < most; asked++ {
		c := owner.At(next)
		b.cells[asked], b.events[asked] = c, c.Pending()
		next = queueLinks(c).behind()
	}
	eventsDone(p.sync, b.events[:asked], b.done[:asked])
	for i, c := range b.cells[:asked] {
		over := b.done[i]
		if over {
			done++
		}
		if over || pendingStamp(c) <= p.pending.late {
			p.settlePending(c, over)
		}
	}
	return asked, done, next
}

// finishPending takes a block out of the set whose work is over. p.mu is held.
func (p *Pool) finishPending(c *owner.Cell) {
	if !hasStalled(c) {
		p.waiting.Add(-1)
	}
	p.pending.remove(c)
	p.spent = append(p.spent, c.SwapPending(0))
	p.complete(c)
}

// tickPending is the part of a tick that completes what waits for the device.
func (p *Pool) tickPending() {
	p.mu.Lock()
	p.heap.clock++
	p.heap.Tick = p.heap.clock / p.heapTick()
	p.pending.tick(p.heap.clock)
	p.refence()
	waits := p.pending.n != 0
	if waits {
		p.lookAtStalled()
	}
	p.mu.Unlock()
	if waits {
		p.completeSome(tickLooks)
		p.tellStalled()
	}
}

// lookAtStalled completes blocks that stalled and are done after all: as many as
// follow each other, else it goes on behind them at the next tick. p.mu is held.
func (p *Pool) lookAtStalled() {
	q := &p.pending.stalled
	for {
		if q.cursor == 0 {
			q.cursor = q.first
		}
		_, done, next := p.look(q, q.cursor, mostBatch)
		q.cursor = next
		if done == 0 {
			return
		}
		p.breathe(done)
	}
}

// tellStalled reports the blocks that have stalled since the last report. p.mu is not
// held.
func (p *Pool) tellStalled() {
	p.mu.Lock()
	news := p.pending.ever - p.pending.told
	p.pending.told = p.pending.ever
	p.mu.Unlock()
	if news > 0 {
		backgroundFailed("Pool.Release", &OpError{
			Op: "Pool.Release", Place: p.Place(),
			Err: fmt.Errorf("%d blocks of pool %q wait for work on the device: %w within %v", news, p.options.name, errStalled, stallTime),
		})
	}
}

// awaitAll waits for what is pending, oldest first, without the lock; the blocks stay
// where searches find them. What stalls is not waited for: it goes back when its work
// ends, if it does. p.mu is not held.
func (p *Pool) awaitAll() {
	p.completeAll()
	for p.awaitFor(stallTime) {
	}
	for lost := 0; lost < maxProbes; {
		switch p.awaitNext((*pendingSet).probe, probeTime) {
		case nothingPending:
			lost = maxProbes
		case workPending:
			lost++
		}
	}
	p.tellStalled()
}

// awaitFor waits for so long at most, after which all that waited at its beginning
// has stalled; it reports whether it came to that.
func (p *Pool) awaitFor(most time.Duration) bool {
	p.mu.Lock()
	last := p.pending.stamp
	p.mu.Unlock()
	for end := time.Now().Add(most); ; {
		left := time.Until(end)
		if left <= 0 {
			p.mu.Lock()
			p.pending.late = max(p.pending.late, last)
			p.mu.Unlock()
			p.completeAll()
			return true
		}
		if p.awaitNext((*pendingSet).oldest, left) == nothingPending {
			return false
		}
		p.completeSome(mostBatch)
	}
}

// What awaitNext found.
const (
	nothingPending = iota
	workPending    // and it did not end
	workEnded
)

// awaitNext waits for so long for the block that next chooses. One that does not end
// has stalled.
func (p *Pool) awaitNext(next func(*pendingSet) *owner.Cell, most time.Duration) int {
	p.mu.Lock()
	p.fence()
	c := next(&p.pending)
	if c == nil {
		p.mu.Unlock()
		return nothingPending
	}
	stamp, event := pendingStamp(c), p.sync.CopyEvent(c.Pending())
	p.mu.Unlock()
	over := awaitEvent(p.sync, event, most)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !over {
		p.pending.late = max(p.pending.late, stamp)
	}
	if p.stillPending(c, stamp) {
		p.settlePending(c, over)
		p.releaseSpent()
		if over {
			p.roomMade()
		}
	}
	if over {
		return workEnded
	}
	return workPending
}

// settlePending completes a block whose work is over, as who waited for it knows; a
// failure of the work is told to those who wait for it. Else it has stalled. p.mu is
// held.
func (p *Pool) settlePending(c *owner.Cell, over bool) {
	switch {
	case over:
		p.finishPending(c)
	case !hasStalled(c):
		p.pending.stall(c)
		p.waiting.Add(-1)
	}
}

// stillPending tells whether a cell waits as it did when it had this stamp. p.mu is
// held.
func (p *Pool) stillPending(c *owner.Cell, stamp uint64) bool {
	return c.Resource == p.origin.index && c.Flags()&owner.Queued != 0 && pendingStamp(c) == stamp
}

// awaitEvent waits for an event, which it takes, and reports whether it ended within
// the time. Where the runtime lost it, a goroutine stays with it. 0 is one of which no
// reference was to be had: nothing is known of its end.
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
