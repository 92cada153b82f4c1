package memmgr

import (
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// New allocates memory from a resource and returns a buffer with one reference, which the
// caller releases. The memory is not initialized, unless the resource does so. Errors:
// [*OpError] of kind ErrRequest or ErrClosed, [*OutOfMemoryError], and the resource's own.
//
// The body is the fast path of a pool: a block from the bin of the processor's own shard.
// It is one function, and the request is passed by value, because a call or an address
// costs a tenth of the whole.
func New(r Resource, request Request) (Buffer, error) {
	p, ok := r.(*Pool)
	if !ok || p == nil {
		if t, ok := r.(*Tenant); ok && t != nil {
			return t.newBuffer(request)
		}
		return newCellBuffer(r, request)
	}
	if p.home.Load() != 0 {
		p.origin.list.Drain()
	}
	if request.Size > maxClassUnits*unit || request.Align > unit || request.Align&(request.Align-1) != 0 || (request.Queue != nil && p.pending.unstalled.Load() != 0) {
		if request.Size >= p.options.large {
			if c := p.newLarge(request.Size, request.Align); c != nil {
				setState(c, stateInUse)
				ref := c.Renew()
				if request.Tag != "" || request.Queue != nil || stackDepth.Load() != 0 {
					p.annotate(c, request.Tag, request.Queue)
				}
				return Buffer{ref: ref}, nil
			}
		}
		return p.slowBuffer(request)
	}
	k := classOf(max((request.Size+unit-1)/unit, p.minUnits))
	id := pin.Pin()
	s := p.front.claim(id)
	if s == nil {
		s = p.front.claimOther(id)
	}
	if s == nil {
		pin.Unpin()
		return p.slowBuffer(request)
	}
	c := s.take(k)
	if c == nil {
		s.leave()
		return p.slowBuffer(request)
	}
	s.countTake(k, uint64(request.Size))
	due := s.delta > peakStep<<deltaShift
	s.leave()
	c.Requested = uint64(request.Size)
	setState(c, stateInUse)
	ref := c.Renew()
	if due || request.Tag != "" || request.Queue != nil || p.watched || stackDepth.Load() != 0 {
		p.annotate(c, request.Tag, request.Queue)
	}
	return Buffer{ref: ref}, nil
}

// Release removes one reference. With the last one the memory returns to its resource,
// immediately or when the work pending on it is complete. Release does nothing on the zero
// Buffer and after the last reference, so that it can be deferred. While other references
// exist, one Release too many removes one of them, and the next use of its buffer panics.
//
// The second half repeats [Pool.cache], for the reason that New is one function.
func (b Buffer) Release() {
	if last, ok := b.ref.TryUnref(); !last {
		if !ok && !b.releaseAsleep() && debug.Stacks {
			b.releasedAgain()
		}
		return
	}
	c := b.ref.Cell()
	p := poolOf(c)
	k := uint(blockClass(c))
	if p == nil || !c.Plain(p.flags) || k >= numClasses || p.watched {
		finish(p, c)
		return
	}
	id := pin.Pin()
	s := p.front.claim(id)
	if s == nil {
		s = p.front.claimOther(id)
	}
	if s == nil {
		pin.Unpin()
		p.cache(c, int(k))
		return
	}
	s.put(int(k), c)
	s.countPut(int(k), c)
	if s.overtaken(int(k)) {
		p.afterPut(s, int(k))
		return
	}
	s.leave()
}

// poolOf returns the pool of a cell, nil if its resource is not a pool or has a number
// beyond the table.
func poolOf(c *owner.Cell) *Pool {
	if i := c.Resource; i < uint32(len(poolTable)) {
		return poolTable[i].Load()
	}
	return nil
}

// finish frees a cell without references that the fast path of Release does not take.
func finish(p *Pool, c *owner.Cell) {
	if p != nil {
		if blockClass(c) == ownSegment && c.Plain(p.flags) && !p.watched {
			p.freeLarge(c)
			return
		}
		if p.freeCharged(c) {
			return
		}
		p.slowFree(c)
		return
	}
	c.Finish()
}

// newLarge is the fast path of a large request: an idle segment, if the pool is not
// locked and no request waits; else nil. One request in many takes the slow path, which
// times it.
func (p *Pool) newLarge(size, align uintptr) *owner.Cell {
	if size > maxSegment || align > unit || align&(align-1) != 0 ||
		p.watched || p.pending.unstalled.Load() != 0 || !p.mu.TryLock() {
		return nil
	}
	defer p.mu.Unlock()
	p.counters.locked++
	if p.closed || p.waitlist.n != 0 || p.waitlist.reserved.of != nil || p.counters.locked%latencySample == 0 {
		return nil
	}
	need := roundUp(size, unit)
	c := p.heap.takeIdle(need, need+need/8, unit)
	if c != nil {
		p.counters.allocs[ownSegment]++
		p.counters.asked += uint64(size)
		p.counters.large += c.Size
		p.publishLarge(int64(c.Size), 1, int64(size))
		c.Requested = uint64(size)
	}
	return c
}

// freeLarge frees a large block whose cell has nothing recorded on it.
func (p *Pool) freeLarge(c *owner.Cell) {
	p.mu.Lock()
	p.counters.frees[ownSegment]++
	p.counters.unasked += c.Requested
	p.counters.unlarge += c.Size
	p.publishLarge(-int64(c.Size), -1, -int64(c.Requested))
	p.heap.retire(c)
	p.serveWaiters()
	p.mu.Unlock()
}
