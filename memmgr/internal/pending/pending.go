package pending

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// Set holds the freed blocks whose device work has not finished. The event of a block stays in its cell. No method
// waits for work of CUDA with mu held.
//
// mu is the lock of the owner, such as a pool, and guards all fields, except for Unstalled, which is read
// without it. It is held when a method is called, unless the method says otherwise. Methods that release it
// for moments say so. Sweeping precedes mu.
type Set struct {
	mu   sync.Locker
	sync order.Synchronizer
	Owner

	lists
	stallClock
	ever     uint64 // blocks that have stalled
	reported uint64 // number of stalled blocks at the last report

	Unstalled atomic.Int32 // blocks here, without those that stalled, those in refused, and those for Settle
	n         int          // pending blocks, including stalled ones
	bytes     uint64       // and their bytes

	returned      []*owner.Cell
	onCUDA        []*owner.Cell // returned blocks of places that libraries of CUDA were shown; always for Settle
	refused       []*owner.Cell
	toFence       int          // returned blocks that Unstalled counts
	settling      atomic.Int32 // blocks in calls of Settle
	unsettled     atomic.Int32 // onCUDA, and returned and refused blocks for Settle; it is read without mu
	returnedBytes uint64       // of the four
	cudaBytes     uint64       // of onCUDA

	oneSettles sync.Mutex  // held by Settle, before mu
	everCUDA   atomic.Bool // libraries of CUDA were shown a returned block

	batch    eventBatch
	spent    []uintptr   // events of completed blocks, to be released without mu
	Sweeping block.Mutex // held by CompleteAll: each queue has one position for it
}

// Owner is what a Set calls.
type Owner struct {
	Complete func(*owner.Cell) // makes a block reusable, which has left the Set; mu is held
	Serve    func()            // serves waiters, because blocks were made reusable; mu is held
	Report   func(n uint64)    // reports that n blocks have stalled; mu is not held
}

// Init sets the lock, the events and the owner of a new Set.
func (s *Set) Init(mu sync.Locker, events order.Synchronizer, o Owner) {
	s.mu, s.sync, s.Owner = mu, events, o
	s.lists = newLists()
}

// Waiting returns the number of blocks whose release waits for device work, and their bytes.
func (s *Set) Waiting() (blocks, bytes uint64) {
	return uint64(s.n + len(s.returned) + len(s.onCUDA) + len(s.refused) + int(s.settling.Load())), s.bytes + s.returnedBytes
}

// eventBatch has the arguments of one call of EventsDone. It is a field of the Set because C
// must not be given addresses in the stack of a goroutine, which can move.
type eventBatch struct {
	cells  [mostBatch]*owner.Cell
	events [mostBatch]uintptr
	done   [mostBatch]bool
}

// Working reports whether the recorded work of a cell has not finished.
func (s *Set) Working(c *owner.Cell) bool {
	event := c.Pending()
	return event != 0 && !s.sync.EventDone(event)
}

// Add adds a block.
func (s *Set) Add(c *owner.Cell) {
	block.SetState(c, block.Pending)
	c.SetFlags(owner.Queued)
	s.push(c, s.next(), s.sync.SameOrder)
	s.n++
	s.bytes += c.Size
	s.Unstalled.Add(1)
}

// remove removes a block.
func (s *Set) remove(c *owner.Cell) {
	block.SetState(c, block.InHand)
	if !hasStalled(c) {
		s.Unstalled.Add(-1)
	}
	s.unlink(c)
	s.n--
	s.bytes -= c.Size
}

// finish removes a block whose work has finished and makes it reusable. An error of
// the work is not reported here, but to callers that wait for the work.
func (s *Set) finish(c *owner.Cell) {
	s.remove(c)
	s.spent = append(s.spent, c.SwapPending(0))
	s.Complete(c)
}

// stall moves a block to the list of stalled blocks, before those that were probed.
func (s *Set) stall(c *owner.Cell) {
	block.SetState(c, block.Stalled)
	s.unlinkQueued(c)
	c.Private |= pendingStalled
	s.stalled.pushFront(c)
	s.ever++
	s.Unstalled.Add(-1)
}

// TakeFor removes a block whose pending work is on an in-order queue: new work of this queue runs
// after it. The event stays in the cell, so that the host can wait for it. A block of no class must
// fit the size and the alignment, both in bytes.
func (s *Set) TakeFor(queue uintptr, class int, size uint64, align uintptr) *owner.Cell {
	at := s.newest[classKey{queue, class}]
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

// DropWork releases the event and the queues of a cell.
func (s *Set) DropWork(c *owner.Cell) {
	if event := c.SwapPending(0); event != 0 {
		s.sync.ReleaseEvent(event)
	}
	order.DropQueues(c)
}

// AddReturned adds a block that was exported. If libraries of CUDA were shown the place, only Settle ends it: an event
// of their work would destroy each capture of a CUDA graph that is in progress on the device, so none is recorded in
// the background or where memory is released.
func (s *Set) AddReturned(c *owner.Cell) {
	block.SetState(c, block.Returned)
	c.SetFlags(owner.Queued)
	s.returnedBytes += c.Size
	if order.ShownToCUDA(c.Place) {
		s.everCUDA.Store(true)
		s.onCUDA = append(s.onCUDA, c)
		s.cudaBytes += c.Size
		s.unsettled.Add(1)
		return
	}
	s.returned = append(s.returned, c)
	if s.settles() {
		s.unsettled.Add(1)
		return
	}
	s.Unstalled.Add(1)
	s.toFence++
	if len(s.returned) >= returnedBlocks || s.returnedBytes >= returnedBytes {
		s.fence()
	}
}

// settles reports whether only Settle ends the returned blocks: a barrier must not be pending when the call that
// submitted it returns.
func (s *Set) settles() bool { return !order.BarriersPend(s.sync) }

// Unsettled reports whether there are blocks for Settle, or in a call of it. mu may be held or not.
func (s *Set) Unsettled() bool { return s.unsettled.Load() != 0 || s.settling.Load() != 0 }

// UnsettledBytes returns the bytes of the blocks that SettleSoon settles, and of others whose bytes are counted with theirs.
func (s *Set) UnsettledBytes(slack uint64) uint64 {
	switch {
	case !s.Unsettled():
		return 0
	case s.cudaBytes < slack:
		return s.returnedBytes - s.cudaBytes
	}
	return s.returnedBytes
}

// countAgain corrects the counts of the returned blocks if the answer of settles has changed since they were added:
// Python may start and end while they wait.
func (s *Set) countAgain() {
	if s.settles() {
		s.Unstalled.Add(-int32(s.toFence))
		s.toFence = 0
		s.unsettled.Store(int32(len(s.onCUDA) + len(s.returned) + len(s.refused)))
		return
	}
	s.Unstalled.Add(int32(len(s.returned) - s.toFence))
	s.toFence = len(s.returned)
	s.unsettled.Store(int32(len(s.onCUDA)))
}

// SettleSoon is Settle for a request that can get other memory. Memory of CUDA is left out while it has less than slack
// bytes, because the wait for its work ends each capture of a CUDA graph on the device. That work, which can last long,
// delays the request for a moment only; then the wait goes on in a goroutine, at most one. mu is not held.
func (s *Set) SettleSoon(ctx context.Context, slack uint64) error {
	if s.everCUDA.Load() {
		if s.settling.Load() != 0 {
			return nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cudaPatience)
		defer cancel()
	}
	s.mu.Lock()
	cuda := s.cudaBytes >= slack
	s.mu.Unlock()
	return order.Within(ctx, func() error { return s.settle(cuda) })
}

// Settle waits for the work of other libraries on the returned blocks, and then makes them reusable or pending. Where
// barriers may be pending, it does so only for memory that libraries of CUDA were shown. If the wait fails, the blocks are
// still returned. A second call waits for the first one, and then for blocks that were returned meanwhile. mu is not held.
func (s *Set) Settle() error { return s.settle(true) }

// settle is Settle, with the memory of CUDA if asked.
func (s *Set) settle(cuda bool) error {
	if !s.Unsettled() {
		return nil
	}
	acquire := order.ReleaseLock()
	defer acquire()
	for {
		if busy, err := s.trySettle(cuda); !busy {
			return err
		}
	}
}

// trySettle is settle without a wait for computations, whose threads can wait for oneSettles. If it is busy, the
// blocks still wait for Settle.
func (s *Set) trySettle(cuda bool) (busy bool, err error) {
	s.oneSettles.Lock()
	defer s.oneSettles.Unlock()
	list := s.takeUnsettled(cuda)
	if len(list) == 0 {
		return false, nil
	}
	busy, err = order.WaitForOthers(s.sync, list)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settling.Store(0) // last
	if busy || err != nil {
		for _, c := range list {
			if order.ShownToCUDA(c.Place) {
				s.onCUDA = append(s.onCUDA, c)
				s.cudaBytes += c.Size
			} else {
				s.refused = append(s.refused, c)
			}
		}
		s.unsettled.Add(int32(len(list)))
		return busy, err
	}
	s.settled(list)
	return false, nil
}

// SettleEnded is Settle for the blocks on which the work of other libraries is known to have ended. It waits for no
// work and submits nothing. mu is not held.
func (s *Set) SettleEnded() (completed int) {
	if s.unsettled.Load() == 0 || !s.oneSettles.TryLock() {
		return 0
	}
	acquire := order.ReleaseLock() // QueueEmpty takes locks of SYCL
	defer acquire()
	defer s.oneSettles.Unlock()
	list := s.takeUnsettled(false)
	empty := order.Empty{}
	var ended, rest []*owner.Cell
	for _, c := range list {
		if empty.Ended(s.sync, c) {
			ended = append(ended, c)
		} else {
			rest = append(rest, c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settling.Store(0) // last
	s.returned = append(rest, s.returned...)
	s.unsettled.Add(int32(len(rest)))
	s.settled(ended)
	return len(ended)
}

// takeUnsettled takes the blocks for settle. The caller counts them in settling until it has put them elsewhere. mu is not
// held.
func (s *Set) takeUnsettled(cuda bool) (list []*owner.Cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countAgain()
	if s.settles() {
		list = append(s.returned, s.refused...)
		s.returned, s.refused = nil, nil
	}
	if cuda {
		list = append(list, s.onCUDA...)
		s.onCUDA, s.cudaBytes = nil, 0
	}
	if len(list) > 0 {
		s.settling.Store(int32(len(list))) // first: a reader without mu sees one of the two
		s.unsettled.Store(int32(len(s.onCUDA)))
	}
	return list
}

// settled makes blocks reusable or pending on which no other library has work. mu is held.
func (s *Set) settled(list []*owner.Cell) {
	for _, c := range list {
		s.returnedBytes -= c.Size
		if s.Working(c) {
			s.Add(c)
		} else {
			s.Complete(c)
		}
	}
	if len(list) > 0 {
		s.Serve()
	}
}

// fence makes the returned blocks pending, if barriers may be. It submits one barrier to each queue that a block
// was used on, and makes the blocks wait for it beside their own events. If a queue refuses the barrier, the end of
// the consumers' work cannot be observed: the block waits for the next tick, which tries again.
func (s *Set) fence() {
	if len(s.returned)+len(s.refused) == 0 {
		return
	}
	if s.countAgain(); s.settles() || len(s.returned) == 0 {
		return
	}
	barriers := order.Barriers{}
	for i, c := range s.returned {
		if !barriers.PutBehind(s.sync, c, i == len(s.returned)-1) {
			s.refused = append(s.refused, c)
			continue
		}
		s.returnedBytes -= c.Size
		if c.Pending() == 0 {
			s.Complete(c)
			continue
		}
		s.Add(c)
	}
	barriers.Release(s.sync)
	// Last: a request that reads 0 does not wait for mu, and finds none of these blocks.
	s.Unstalled.Add(-int32(len(s.returned)))
	s.toFence = 0
	clear(s.returned)
	s.returned = s.returned[:0]
}

// fenceAgain is fence, with the blocks whose barriers were refused.
func (s *Set) fenceAgain() {
	if s.countAgain(); s.settles() {
		return
	}
	s.Unstalled.Add(int32(len(s.refused)))
	s.toFence += len(s.refused)
	s.returned = append(s.returned, s.refused...)
	clear(s.refused)
	s.refused = s.refused[:0]
	s.fence()
}

// Collect finishes blocks whose events are done. limit bounds the blocks queried. It visits queues in the order
// of the map, which begins at random, so that each queue gets its turn.
func (s *Set) Collect(limit int) (queried, done int) {
	s.fence()
	for _, q := range s.queues {
		a, d := s.queryQueue(q, limit-queried)
		queried, done = queried+a, done+d
		if queried == limit {
			break
		}
	}
	return queried, done
}

// queryQueue queries the oldest blocks of a queue. If none of them is done, it continues behind
// them where the last such query ended, so that one block that does not end hides no other block.
func (s *Set) queryQueue(q *queueList, limit int) (queried, done int) {
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
func (s *Set) query(q *queueList, from uint32, most int) (queried, done int, next uint32) {
	b := &s.batch
	for next = from; next != 0 && queried < most; queried++ {
		c := owner.At(next)
		b.cells[queried], b.events[queried] = c, c.Pending()
		next = queueLinks(c).behind()
	}
	order.EventsDone(s.sync, b.events[:queried], b.done[:queried])
	for i, c := range b.cells[:queried] {
		switch {
		case b.done[i]:
			s.finish(c)
			done++
		case s.isLate(pendingStamp(c)) && !hasStalled(c):
			s.stall(c)
		}
	}
	return queried, done, next
}

// Breathe releases mu for a moment between two portions of work, after serving waiters if the
// portion made memory free. mu is held.
func (s *Set) Breathe(done int) {
	if done > 0 {
		s.Serve()
	}
	spent := s.spent
	s.spent = nil
	s.mu.Unlock()
	order.ReleaseEvents(s.sync, spent)
	s.mu.Lock()
}

// ReleaseSpent releases the events of finished blocks. It holds mu and is for few of them; Breathe
// does it without.
func (s *Set) ReleaseSpent() {
	order.ReleaseEvents(s.sync, s.spent)
	s.spent = s.spent[:0]
}

// CompleteSome finishes blocks whose work is done. budget bounds the blocks that it queries
// although they are not done. mu is not held.
func (s *Set) CompleteSome(budget int) (completed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence()
	for budget = min(budget, s.n); budget > 0; {
		queried, done := s.Collect(min(budget, mostBatch))
		completed += done
		if queried == 0 {
			break
		}
		budget -= queried - done
		s.Breathe(done)
	}
	return completed
}

// CompleteAll queries each block once, including stalled ones. mu is not held.
func (s *Set) CompleteAll() (completed int) {
	s.Sweeping.Lock()
	defer s.Sweeping.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenceAgain()
	last := s.stamp
	for _, ref := range slices.Collect(maps.Keys(s.queues)) {
		if q := s.queues[ref]; q != nil {
			completed += s.sweep(q, last)
		}
	}
	return completed + s.sweep(&s.stalled, last)
}

// sweep queries once each block of a queue up to a stamp. It releases mu between portions.
func (s *Set) sweep(q *queueList, last uint64) (completed int) {
	for q.sweep = q.first; q.sweep != 0 && pendingStamp(owner.At(q.sweep)) <= last; {
		_, done, next := s.query(q, q.sweep, mostBatch)
		completed += done
		q.sweep = next
		s.Breathe(done)
	}
	q.sweep = 0
	return completed
}

// Tick completes and reports stalled work. The keeper calls it four times a second. mu is not held.
func (s *Set) Tick() {
	s.SettleEnded()
	s.mu.Lock()
	s.stallClock.tick()
	s.fenceAgain()
	any := s.n != 0
	for done := 1; done > 0; { // stalled blocks that are done after all
		_, done = s.queryQueue(&s.stalled, mostBatch)
		s.Breathe(done)
	}
	s.mu.Unlock()
	if any {
		s.CompleteSome(tickLooks)
		s.reportStalled()
	}
}

// reportStalled reports the blocks that have stalled since the last report. mu is not held.
func (s *Set) reportStalled() {
	s.mu.Lock()
	news := s.ever - s.reported
	s.reported = s.ever
	s.mu.Unlock()
	if news > 0 {
		s.Report(news)
	}
}

// ErrStalled is the reason of a report.
var ErrStalled = fmt.Errorf("its work has not ended within %v", stallTime)

// Stalled returns the number of blocks that have stalled, ever and now.
func (s *Set) Stalled() (ever uint64, now int) { return s.ever, s.stalled.n }

// Stall makes all pending blocks count as waiting for longer than the deadline. For tests.
func (s *Set) Stall() { s.late = s.stamp }
