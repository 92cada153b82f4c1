package memmgr

// What the pool caches goes back by age: blocks of a class that were not needed for the
// time of [WithDecay] are freed, and segments that were out of use as long go back to
// the upstream. Both happen in portions, between which others get the lock.

// coldPortion is how many blocks are freed under one hold of the lock.
const coldPortion = 512

// setBound makes the bound on cached blocks what it should be. Where it falls below
// what is cached, blocks are evicted until it holds. p.mu is held.
func (p *Pool) setBound() {
	p.budget.follow(p.heap.divided())
	if !p.budget.set() {
		return
	}
	p.lowerAll()
	for tries := numClasses; tries > 0 && p.budget.left.Load() < 0; tries-- {
		p.heap.yieldDepot()
	}
	if p.budget.left.Load() < 0 {
		p.heap.dissolveStack(p.evictMissing())
	}
}

// decayCaches chills the blocks that were not needed for so many ticks. p.mu is held.
func (p *Pool) decayCaches(age uint32) {
	h := &p.heap
	if h.clock%age == 0 {
		h.depot.age()
	}
	if h.clock%max(1, age/looks) == 0 && p.cached() > 0 {
		h.depot.chillStack(p.front.age())
	}
}

// flush frees every block that front and depot cache. p.mu is held.
func (p *Pool) flush() {
	p.heap.dissolveStack(p.drain())
	p.heap.flush()
}

// press begins or ends the time in which a request waits for memory: nothing is cached
// meanwhile. Each block that is freed goes to the heap at once, and [Pool.roomMade] is
// called. p.mu is held.
func (p *Pool) press(on bool) {
	if p.pressed == on {
		return
	}
	p.heap.depot.off = on || p.closed
	p.heap.dissolveStack(p.front.press(on))
	p.heap.flush()
}

// last ends the part of a closed pool in the tables, with its last segment. p.mu is
// held.
func (p *Pool) last() {
	if p.leaked {
		p.leaked = false
		p.origin.removePool()
	}
}

// Trim implements [Trimmer]: the caches dissolve, and what is out of use goes back
// to the upstream until at most keep bytes of it are left. Where the upstream is a
// [Discarder], so do the whole pages of free blocks in other segments.
func (p *Pool) Trim(keep uint64) (freed uint64) {
	emptyFronts()
	p.origin.list.Drain()
	p.completeAll()
	freed = p.trimSegments(keep)
	return freed + p.purging.purgeAll(keep)
}

// trimSegments is Trim's part of whole segments, while the keeper has no block in hand
// that would hold its segment. A call of the upstream may panic.
func (p *Pool) trimSegments(keep uint64) (freed uint64) {
	p.purging.mu.Lock()
	defer p.purging.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	return p.heap.release(keep)
}
