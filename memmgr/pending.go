package memmgr

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// pending is the part of a pool that holds the freed blocks whose device work has not finished. Memory
// that is in no pool has such parts too ([unpooled]).
//
// The event of a block stays in its cell, and the links between blocks are fields of the cell too
// (pending_queue.go): a pending block needs no memory of its own.
//
// Exported blocks are added through returned: their consumers may have submitted work without
// reporting it. The block is pending as soon as each queue that it was used on has taken a barrier.
// A block whose barrier a queue refused is in refused until the next tick. If the place was shown to
// libraries of CUDA, a block is in onCUDA before, until the work of CUDA is over that was submitted before
// cuda was recorded. Nothing here waits for that work with mu held.
//
// mu is the lock of the pool, or of unpooled, and guards all fields, except for unstalled, which is read without
// it. Methods that release it for moments say so. sweeping precedes mu.
type pending struct {
	mu           sync.Locker
	sync         Synchronizer
	complete     func(*owner.Cell) // makes a block reusable; it has left this part
	serveWaiters func()
	report       func(stalled uint64) // reports blocks that have stalled; called without mu

	pendingQueues
	stallClock
	ever     uint64 // blocks that have stalled
	reported uint64 // number of stalled blocks at the last report

	unstalled atomic.Int32 // blocks here, without those that stalled and those in refused
	n         int          // pending blocks, including stalled ones
	bytes     uint64       // and their bytes

	returned      []*owner.Cell
	onCUDA        []*owner.Cell
	refused       []*owner.Cell
	returnedBytes uint64 // of the three
	cuda          order.CUDAWork
	cudaStamp     uint64 // of cuda

	batch    eventBatch
	spent    []uintptr   // events of completed blocks, to be released without mu
	sweeping block.Mutex // held by completeAll: each queue has one position for it
}

func (s *pending) init(mu sync.Locker, events Synchronizer, report func(stalled uint64)) {
	s.mu, s.sync, s.report = mu, events, report
	s.pendingQueues = newPendingQueues()
}

// waiting returns the number of blocks whose release waits for device work, and their bytes.
func (s *pending) waiting() (blocks, bytes uint64) {
	return uint64(s.n + len(s.returned) + len(s.onCUDA) + len(s.refused)), s.bytes + s.returnedBytes
}

// eventBatch has the arguments of one call of eventsDone. It is a field of the part because C
// must not be given addresses in the stack of a goroutine, which can move.
type eventBatch struct {
	cells  [mostBatch]*owner.Cell
	events [mostBatch]uintptr
	done   [mostBatch]bool
}

// working reports whether the recorded work of a cell has not finished.
func (s *pending) working(c *owner.Cell) bool {
	event := c.Pending()
	return event != 0 && !s.sync.EventDone(event)
}

// add adds a block.
func (s *pending) add(c *owner.Cell) {
	block.SetState(c, block.Pending)
	c.SetFlags(owner.Queued)
	s.push(c, s.next(), s.sync.SameOrder)
	s.n++
	s.bytes += c.Size
	s.unstalled.Add(1)
}

// remove removes a block.
func (s *pending) remove(c *owner.Cell) {
	block.SetState(c, block.InHand)
	if !hasStalled(c) {
		s.unstalled.Add(-1)
	}
	s.unlink(c)
	s.n--
	s.bytes -= c.Size
}

// finish removes a block whose work has finished and makes it reusable.
func (s *pending) finish(c *owner.Cell) {
	s.remove(c)
	s.spent = append(s.spent, c.SwapPending(0))
	s.complete(c)
}

// update finishes a block if its work has finished. Otherwise the block has stalled. An error of
// the work is not reported here, but to callers that wait for the work.
func (s *pending) update(c *owner.Cell, over bool) {
	switch {
	case over:
		s.finish(c)
	case !hasStalled(c):
		block.SetState(c, block.Stalled)
		s.setStalled(c)
		s.ever++
		s.unstalled.Add(-1)
	}
}

// takeFor removes a block whose pending work is on an in-order queue: new work of this queue runs
// after it. The event stays in the cell, so that the host can wait for it. A block of no class must
// fit the size and the alignment, both in bytes.
func (s *pending) takeFor(queue uintptr, class int, size uint64, align uintptr) *owner.Cell {
	at := s.newest[pendingKey{queue, class}]
	for tries := sameQueueTries; at != 0 && tries > 0; tries-- {
		c := owner.At(at)
		at = classLinks(c).behind()
		if class >= block.NoClass && (c.Size < size || c.Size-size > size/8 || c.Address%align != 0) {
			continue
		}
		s.remove(c)
		return c
	}
	return nil
}

// dropWork releases the event and the queues of a cell.
func (s *pending) dropWork(c *owner.Cell) {
	if event := c.SwapPending(0); event != 0 {
		s.sync.ReleaseEvent(event)
	}
	order.DropQueues(c)
}

// addReturned adds a block that was exported.
func (s *pending) addReturned(c *owner.Cell) {
	block.SetState(c, block.Returned)
	c.SetFlags(owner.Queued)
	s.returned = append(s.returned, c)
	s.returnedBytes += c.Size
	s.unstalled.Add(1)
	if len(s.returned) >= returnedBlocks || s.returnedBytes >= returnedBytes {
		s.fence()
	}
}

// fence makes the returned blocks pending. Those of a place that was shown to libraries of CUDA first wait
// for the work of CUDA, one batch at a time.
func (s *pending) fence() {
	if !s.cuda.Over() {
		return
	}
	s.putAllBehind(&s.onCUDA, false)
	if len(s.returned) == 0 {
		return
	}
	var err error
	if s.cuda, err = order.RecordCUDA(s.returned[0].Place); err == nil && !s.cuda.Over() {
		s.onCUDA, s.returned = s.returned, s.onCUDA
		s.cudaStamp = s.next()
		return
	}
	s.putAllBehind(&s.returned, err != nil)
}

// putAllBehind submits one barrier to each queue that a block of the list was used on, and makes the
// blocks wait for it beside their own events. It empties the list. If a queue refuses the barrier, or the
// driver the record of the work of CUDA, the end of the consumers' work cannot be observed: the block waits
// for the next tick, which tries again.
func (s *pending) putAllBehind(list *[]*owner.Cell, refused bool) {
	if len(*list) == 0 {
		return
	}
	barriers := order.Barriers{}
	for _, c := range *list {
		if refused || !barriers.PutBehind(s.sync, c) {
			s.refused = append(s.refused, c)
			continue
		}
		s.returnedBytes -= c.Size
		if c.Pending() == 0 {
			s.complete(c)
			continue
		}
		s.add(c)
	}
	barriers.Release(s.sync)
	// Last: a request that reads 0 does not wait for mu, and finds none of these blocks.
	s.unstalled.Add(-int32(len(*list)))
	clear(*list)
	*list = (*list)[:0]
}

// fenceAgain is fence, with the blocks whose barriers were refused.
func (s *pending) fenceAgain() {
	s.unstalled.Add(int32(len(s.refused)))
	s.returned = append(s.returned, s.refused...)
	clear(s.refused)
	s.refused = s.refused[:0]
	s.fence()
}

// collect finishes blocks whose events are done. limit bounds the blocks queried.
func (s *pending) collect(limit int) (queried, done int) {
	s.fence()
	for visits := len(s.ring); visits > 0 && queried < limit && len(s.ring) > 0; visits-- {
		s.turn %= len(s.ring)
		q := s.ring[s.turn]
		a, d := s.queryQueue(q, limit-queried)
		queried, done = queried+a, done+d
		if d == 0 {
			s.turn++
		}
	}
	return queried, done
}

// queryQueue queries the oldest blocks of a queue. If none of them is done, it continues behind
// them where the last such query ended, so that one block that does not end hides no other block.
func (s *pending) queryQueue(q *pendingQueue, limit int) (queried, done int) {
	queried, done, next := s.query(q, q.first, min(limit, q.batch))
	if done == queried {
		q.batch = min(2*q.batch, mostBatch)
		return queried, done
	}
	q.batch = firstBatch
	if done > 0 || queried == limit || q.n == 0 {
		return queried, done
	}
	if q.cursor == 0 {
		q.cursor = next
	}
	a, d, next := s.query(q, q.cursor, min(limit-queried, 4*firstBatch))
	q.cursor = next
	return queried + a, done + d
}

// query queries up to most blocks of a queue, beginning with the cell number from. It finishes the
// blocks that are done and marks those that have stalled. next is the cell number of the block
// behind them.
func (s *pending) query(q *pendingQueue, from uint32, most int) (queried, done int, next uint32) {
	b := &s.batch
	for next = from; next != 0 && queried < most; queried++ {
		c := owner.At(next)
		b.cells[queried], b.events[queried] = c, c.Pending()
		next = queueLinks(c).behind()
	}
	order.EventsDone(s.sync, b.events[:queried], b.done[:queried])
	for i, c := range b.cells[:queried] {
		over := b.done[i]
		if over {
			done++
		}
		if over || s.isLate(pendingStamp(c)) {
			s.update(c, over)
		}
	}
	return queried, done, next
}

// breathe releases mu for a moment between two portions of work, after serving waiters if the
// portion made memory free. mu is held.
func (s *pending) breathe(done int) {
	if done > 0 {
		s.serveWaiters()
	}
	spent := s.spent
	s.spent = nil
	s.mu.Unlock()
	order.ReleaseEvents(s.sync, spent)
	s.mu.Lock()
}

// releaseSpent releases the events of finished blocks. It holds mu and is for few of them; breathe
// does it without.
func (s *pending) releaseSpent() {
	order.ReleaseEvents(s.sync, s.spent)
	s.spent = s.spent[:0]
}

// completeSome finishes blocks whose work is done. budget bounds the blocks that it queries
// although they are not done. mu is not held.
func (s *pending) completeSome(budget int) (completed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence()
	for budget = min(budget, s.n); budget > 0; {
		queried, done := s.collect(min(budget, mostBatch))
		completed += done
		if queried == 0 {
			break
		}
		budget -= queried - done
		s.breathe(done)
	}
	return completed
}

// completeAll queries each block once, including stalled ones. mu is not held.
func (s *pending) completeAll() (completed int) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenceAgain()
	last := s.stamp
	for _, ref := range s.refs() {
		if q := s.queues[ref]; q != nil {
			completed += s.sweep(q, last)
		}
	}
	return completed + s.sweep(&s.stalled, last)
}

// sweep queries once each block of a queue up to a stamp. It releases mu between portions.
func (s *pending) sweep(q *pendingQueue, last uint64) (completed int) {
	for q.sweep = q.first; q.sweep != 0 && pendingStamp(owner.At(q.sweep)) <= last; {
		_, done, next := s.query(q, q.sweep, mostBatch)
		completed += done
		q.sweep = next
		s.breathe(done)
	}
	q.sweep = 0
	return completed
}

// tickStalled finishes stalled blocks that are done after all: a portion, or several while all of
// a portion is done. The next tick continues behind them. It releases mu between portions.
func (s *pending) tickStalled() {
	q := &s.stalled
	for {
		if q.cursor == 0 {
			q.cursor = q.first
		}
		_, done, next := s.query(q, q.cursor, mostBatch)
		q.cursor = next
		if done == 0 {
			return
		}
		s.breathe(done)
	}
}

// tick completes and reports stalled work. The keeper calls it four times a second. mu is not held.
func (s *pending) tick() {
	s.mu.Lock()
	s.stallClock.tick()
	s.fenceAgain()
	any := s.n != 0
	if any {
		s.tickStalled()
	}
	s.mu.Unlock()
	if any {
		s.completeSome(tickLooks)
		s.reportStalled()
	}
}

// reportStalled reports the blocks that have stalled since the last report. mu is not held.
func (s *pending) reportStalled() {
	s.mu.Lock()
	news := s.ever - s.reported
	s.reported = s.ever
	s.mu.Unlock()
	if news > 0 {
		s.report(news)
	}
}

// awaitNext waits for a block that has not stalled, or for a stalled one that was not probed.
func (s *pending) awaitNext(stalled bool, most time.Duration) awaited {
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
		s.releaseSpent()
		if over {
			s.serveWaiters()
		}
	}
	s.mu.Unlock()
	if !stalled {
		s.completeSome(mostBatch)
	}
	if over {
		return workEnded
	}
	return workPending
}

var errStalled = errors.New("its work has not ended")

// stallClock decides which blocks have stalled. Each block has a stamp, which
// increases from block to block, so that the time of each block does not have to be stored.
type stallClock struct {
	stamp uint64             // of the last block
	late  uint64             // blocks up to this stamp have stalled if they are still pending
	marks [stallTicks]uint64 // the stamp at each of the last ticks
	ticks uint32
}

// next returns the stamp of a new block.
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

// awaited is the result of awaitNext.
type awaited int

const (
	nothingPending awaited = iota
	workPending            // the work did not finish in time
	workEnded
)

// awaitAll waits for all work that was pending at its beginning or is added meanwhile, oldest
// first, but not for stalled work beyond the probes. It reports stalled work. mu is not held.
func (s *pending) awaitAll() {
	s.completeAll()
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
func (s *pending) awaitUnstalled() bool {
	s.mu.Lock()
	last, end := s.stamp, time.Now().Add(stallTime)
	s.mu.Unlock()
	for {
		most := time.Until(end)
		if most <= 0 {
			s.mu.Lock()
			s.late = max(s.late, last)
			s.mu.Unlock()
			s.completeAll()
			return true
		}
		if s.awaitNext(false, most) == nothingPending {
			return false
		}
	}
}

// awaitEvent waits for an event, which it takes, and reports whether it finished in time. If the
// runtime lost the event, a goroutine keeps waiting for it.
func awaitEvent(s Synchronizer, event uintptr, most time.Duration) bool {
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

// The methods of Pool below connect the part pending with the other parts.

// slowFree processes a dead cell that is not plain: it has pending work, a tag or a recorded
// stack, or other libraries were shown its memory.
func (p *Pool) slowFree(c *owner.Cell) {
	noteRelease(c)
	p.noteGiven(c)
	if p.trace != nil {
		p.trace.add(traceFreeRequested, c)
	}
	if c.Tag != 0 {
		p.tagsOf(c).add(c.Tag, -int64(c.Size), -1)
		c.Tag = 0
	}
	shown := c.Flags()&order.ShownFlags != 0 && p.origin.sync != nil
	c.ResetFlags(p.origin.flags)
	if !shown && !p.pending.working(c) {
		p.endUse(c)
		p.cache(c, block.Class(c))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.uncount(c, block.Class(c))
	if shown {
		p.pending.addReturned(c)
		return
	}
	p.pending.add(c)
	p.serveWaiters() // a request for the same queue may take it
}

// complete makes a block reusable whose free was counted before. p.mu is held.
func (p *Pool) complete(c *owner.Cell) {
	c.ResetFlags(p.origin.flags)
	p.endUse(c)
	p.heap.cache(c, block.Class(c))
}

// endUse ends the user's part in a block whose work is done.
func (p *Pool) endUse(c *owner.Cell) {
	p.uncharge(c)
	p.pending.dropWork(c)
	if p.trace != nil {
		p.trace.add(traceFreeCompleted, c)
	}
	p.poisonFree(c)
}

// sameQueue takes a block whose pending work is on the in-order queue of a request. p.mu is held.
func (p *Pool) sameQueue(w *want) *owner.Cell {
	if w.r.Queue == nil {
		return nil
	}
	queue := p.sync.QueueRef(w.r.Queue)
	if queue == 0 || !p.sync.SameOrder(queue, queue) {
		return nil
	}
	c := p.pending.takeFor(queue, w.class, uint64(w.units)*unit, uintptr(w.align)*unit)
	if c != nil {
		p.uncharge(c)
		c.ResetFlags(p.origin.flags)
	}
	return c
}

// reportStalled reports blocks that have stalled. p.mu is not held.
func (p *Pool) reportStalled(stalled uint64) {
	backgroundFailed("Pool.Release", &OpError{
		Op: "Pool.Release", Place: p.Place(),
		Err: fmt.Errorf("%d blocks of pool %q wait for work on the device: %w within %v", stalled, p.options.name, errStalled, stallTime),
	})
}
