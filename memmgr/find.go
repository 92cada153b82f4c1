package memmgr

import (
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
)

// This file has the ways to find a block in a pool. Each is a step of the order in which requests get memory:
//
//	findNow       for a new request: find, unless earlier waiters have precedence
//	find          a pending block of the same queue, the depot, the best fit of the heap
//	findInCaches  find, after all cached blocks went to the heap
//	findAny       a block of reserved segments, if the request may have it, or one of any segment and size
//
// [Pool.miss] and [Pool.extend] take these steps for a request, [Pool.serveOne] takes find and findAny for a
// waiter.

// findNow is find for a new request: free memory goes to earlier waiters first. p.mu is held.
func (p *Pool) findNow(w *want) *owner.Cell {
	if p.waitlist.reserved.foreign { // it may have ended
		p.serveWaiters()
	}
	if p.waitsBehind(w) || p.waitlist.n > 0 && p.yieldsFirst(w) {
		return nil
	}
	c := p.find(w)
	if c != nil {
		p.countServed(c.Size)
	}
	return c
}

// find takes a block that the pool has: a pending block of the same queue, or a free one, after blocks whose work
// is done were collected. For waiters the poller collects. p.mu is held.
func (p *Pool) find(w *want) *owner.Cell {
	if p.closed {
		return nil
	}
	if p.pending.Unstalled.Load() != 0 {
		if c := p.sameQueue(w); c != nil {
			return c
		}
		if !w.waits {
			p.pending.Collect(missLooks)
			p.pending.ReleaseSpent()
		}
	}
	if w.class != block.NoClass {
		if c := p.heap.Depot.PopBlock(w.class); c != nil {
			return c
		}
	}
	if w.units > block.CoarseUnits {
		p.gather(w.units)
	}
	return p.heap.Carve(w.units, w.align, w.class)
}

// findAny takes a block that find does not: one of a closed segment, or any block that is large enough, of a segment
// of any size. Closed segments serve the request that they are reserved for, and requests without a context, which
// are not refused because of a reservation. p.mu is held.
func (p *Pool) findAny(w *want) *owner.Cell {
	if x := p.waitlist.reserved.of; x != nil && (x.w == w || w.r.Context == nil) {
		if c := p.heap.TakeReserved(w.least, w.align, w.leastClass()); c != nil {
			return c
		}
	}
	return p.heap.CarveAny(w.least, w.align, w.leastClass())
}

// findInCaches evicts all cached blocks and searches again, if the free memory and so much
// room of the upstream can then be enough. p.mu is held.
func (p *Pool) findInCaches(w *want, room uint64) (c *owner.Cell) {
	cached, need := p.cachedBytes(), uint64(w.least)*unit
	free := uint64(max(cached, 0)) + p.heap.FreeBytes()
	if cached <= 0 || free+room < need {
		return nil
	}
	p.evictAll(&p.reclaim.requests, need, free, futileTime, func() bool {
		c = p.find(w)
		return c != nil
	})
	return c
}

// gather evicts the cached blocks above block.CoarseUnits of the caller's processor and of the
// depot, if a block of so many units would have to be cut out of a larger one and they are
// more than a bound. Cached blocks serve only their size and do not merge with the free memory
// beside them, so that larger blocks would be cut up instead. The other processors do the
// same. p.mu is held.
func (p *Pool) gather(units uint32) {
	most := max(gatherBytes, int64(p.heap.Reserved())/gatherShare)
	if p.front.Budget.Taken()*int64(p.front.Len()) <= most {
		return
	}
	if fit := p.heap.BestFit(units); fit != 0 && fit-units <= units/gatherFit {
		return
	}
	if int64(p.heap.Reserved())-p.account.Bytes.Now() < int64(units)*unit {
		return // all unused memory together is too little
	}
	if p.heap.Depot.Bytes() > most {
		p.heap.FlushFrom(block.CoarseClasses)
	}
	p.heap.DissolveStack(p.front.TakeLarge(most))
}

// restock takes a magazine for the front, with its bytes of the budget: one of the
// depot, or a few blocks that it cuts out of the heap. p.mu is held.
func (p *Pool) restock(w *want) (m block.Magazine) {
	if w.class == block.NoClass || p.front.Pressed() {
		return m
	}
	if m = p.heap.Depot.Pop(w.class); m.N != 0 {
		return m
	}
	// As many blocks as the class had misses before: a size that does not recur gets none.
	size := block.ClassBytes[w.class]
	most := min(batchBlocks, max(1, batchBytes/size), int64(p.account.Counted(w.class))) - 1
	granted := p.front.Budget.Take(min(size, size*most), size*(most-1))
	for n := granted / size; n > 0; n-- {
		c := p.heap.Carve(w.units, w.align, w.class)
		if c == nil {
			break
		}
		m.Push(c)
	}
	p.front.Budget.Give(granted - m.Bytes(w.class))
	return m
}
