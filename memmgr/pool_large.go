package memmgr

import (
	"math"
	"slices"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// Large requests have segments of their own. Out of use these stay with the pool,
// beside segments that became empty, until age, a bound in bytes, a Trim or a
// refusal sends them back.

// newLarge is the short way of a request for a large buffer: an idle segment, when
// nobody is before it, else nil. One in many takes the other way, which times it.
func (p *Pool) newLarge(size, align uintptr) *owner.Cell {
	if size > maxSegment || align > unit || align&(align-1) != 0 ||
		p.watched || p.waiting.Load() != 0 || !p.mu.TryLock() {
		return nil
	}
	at := int32(0)
	if p.counters.locked++; !p.closed && p.waiters.n == 0 && p.waiters.hold.of == nil && p.counters.locked%latencySample != 0 {
		need := roundUp(size, unit)
		at = p.idle.fit(need, need+need/8, unit)
	}
	if at == 0 {
		p.mu.Unlock()
		return nil
	}
	c := p.takeIdle(at)
	p.counters.allocs[ownSegment]++
	p.counters.asked += uint64(size)
	p.counters.large += c.Size
	p.publishLarge(int64(c.Size), 1, int64(size))
	p.mu.Unlock()
	c.Requested = uint64(size)
	return c
}

// freeLarge is the short way back, of a cell that has nothing recorded on it.
func (p *Pool) freeLarge(c *owner.Cell) {
	p.mu.Lock()
	p.counters.frees[ownSegment]++
	p.counters.unasked += c.Requested
	p.counters.unlarge += c.Size
	p.publishLarge(-int64(c.Size), -1, -int64(c.Requested))
	p.retire(c)
	p.roomMade()
	p.mu.Unlock()
}

// reuseIdle takes a dedicated segment out of use that wastes at most an eighth.
// p.mu is held.
func (p *Pool) reuseIdle(w *want) *owner.Cell {
	need := uintptr(w.units) * unit
	if at := p.idle.fit(need, need+need/8, uintptr(w.align)*unit); at != 0 {
		return p.takeIdle(at)
	}
	return nil
}

// openIdle turns the smallest idle segment that holds a large request, however much
// larger it is, into an ordinary one, before the request is refused: the rest of it
// serves others. p.mu is held.
func (p *Pool) openIdle(w *want) bool {
	if p.closed || !p.dedicated(w) {
		return false
	}
	at := p.idle.fit(uintptr(w.units)*unit, ^uintptr(0), uintptr(w.align)*unit)
	if at == 0 {
		return false
	}
	c := p.takeIdle(at)
	block := int32(c.Block)
	setState(c, stateFree)
	owner.Recycle(c)
	n := p.heap.Segment(block)
	p.segs[n].dedicated, p.segs[n].emptyTick = false, p.ticks
	p.heap.Free(block)
	return true
}

// takeIdle takes one off the list. p.mu is held.
func (p *Pool) takeIdle(at int32) *owner.Cell {
	c := p.idle.remove(at)
	setState(c, stateInHand)
	p.counters.idleBytes -= c.Size
	return c
}

// retire keeps a dedicated segment for reuse. p.mu is held.
func (p *Pool) retire(c *owner.Cell) {
	setState(c, stateIdle)
	p.idle.add(c, p.ticks)
	p.counters.idleBytes += c.Size
	if p.closed {
		p.release(0)
		p.last()
		return
	}
	p.retain()
}

// retain lets the oldest of what is out of use go while there is more of it than
// the options allow. p.mu is held.
func (p *Pool) retain() {
	if p.options.high != math.MaxUint64 && p.spare() > p.options.high {
		p.release(p.options.low)
	}
}

// dropIdle sends one back. p.mu is held.
func (p *Pool) dropIdle(at int32) (freed uint64) {
	c := p.takeIdle(at)
	freed = c.Size
	block := int32(c.Block)
	setState(c, stateFree)
	owner.Recycle(c)
	n := p.heap.Segment(block)
	base, units := p.heap.RemoveUsed(block)
	p.freeSegment(n, base, units)
	return freed
}

// spare is what release could give back. p.mu is held.
func (p *Pool) spare() uint64 {
	return p.counters.idleBytes + p.heap.Counts().EmptyUnits*tlsf.Unit
}

// release gives back what is out of use, oldest first, until at most keep bytes of
// it are left. p.mu is held.
func (p *Pool) release(keep uint64) (freed uint64) {
	if p.spare() <= keep {
		return 0
	}
	empty := p.emptySegments()
	for p.spare() > keep {
		large := p.idle.oldest
		if large != 0 && (len(empty) == 0 || p.age(p.idle.nodes[large].tick) >= p.age(p.segs[empty[0]].emptyTick)) {
			freed += p.dropIdle(large)
			continue
		}
		_, size := p.heap.SegmentBase(empty[0])
		freed += uint64(size)
		p.dropSegment(empty[0])
		empty = empty[1:]
	}
	return freed
}

// age is how many ticks ago a tick was.
func (p *Pool) age(tick uint32) uint32 { return p.ticks - tick }

// emptySegments lists them, those that are empty longest first. p.mu is held.
func (p *Pool) emptySegments() []int32 {
	if p.heap.Counts().EmptySegments == 0 {
		return nil
	}
	empty := p.heap.EmptySegmentNumbers(nil)
	slices.SortStableFunc(empty, func(a, b int32) int {
		return int(p.age(p.segs[b].emptyTick)) - int(p.age(p.segs[a].emptyTick))
	})
	return empty
}

// Trim implements [Trimmer]: the caches dissolve, and what is out of use goes back
// to the upstream until at most keep bytes of it are left. Where the upstream is a
// [Discarder], so do the whole pages of free blocks in other segments.
func (p *Pool) Trim(keep uint64) (freed uint64) {
	emptyFronts()
	p.origin.list.Drain()
	p.completeAll()
	freed = p.trimSegments(keep)
	return freed + p.purgeAll(keep)
}

// trimSegments is Trim's part of whole segments, while the keeper has no block in hand
// that would hold its segment. A call of the upstream may panic.
func (p *Pool) trimSegments(keep uint64) (freed uint64) {
	p.purging.mu.Lock()
	defer p.purging.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	return p.release(keep)
}
