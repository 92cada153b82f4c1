package memmgr

import "math"

// What the pool caches goes back by age: blocks of a class that were not needed for the
// time of [WithDecay] are freed, and segments that were out of use as long go back to
// the upstream. Both happen in portions, between which others get the lock.

// tick collects blocks whose device work is done, and returns memory that has been idle for
// the time of [WithDecay]. It reports whether the pool is closed and all its memory is back.
func (p *Pool) tick() (ended bool) {
	p.origin.list.Drain()
	p.mu.Lock()
	p.heap.clock++
	p.heap.Tick = p.heap.clock / p.heapTick()
	p.mu.Unlock()
	p.pending.tick()
	p.expireForAnother()
	age := p.decayTicks()
	if p.options.decay > 0 {
		p.purging.tick(age / p.heapTick())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return !p.leaked
	}
	if p.heap.count.reserved == 0 {
		return false
	}
	p.setBound()
	if p.options.decay <= 0 {
		return false
	}
	p.decayCaches(age)
	for p.heap.dissolveCold(coldPortion) {
		p.pending.breathe(1)
	}
	for !p.closed && p.heap.decaySegments(age) {
		p.pending.breathe(1)
	}
	p.serveWaiters()
	return false
}

// decayTicks is the time of [WithDecay], or 17 years: the count wraps around after more.
func (p *Pool) decayTicks() uint32 {
	return uint32(min(max(1, p.options.decay/tickTime), math.MaxInt32))
}

// heapTick is how many ticks the heap counts as one: its counter has 16 bits.
func (p *Pool) heapTick() uint32 { return p.decayTicks()>>15 + 1 }

// setBound makes the bound on cached blocks what it should be. Where it falls below
// what is cached, blocks are evicted until it holds. p.mu is held.
func (p *Pool) setBound() {
	p.front.budget.follow(p.heap.divided())
	if !p.front.budget.set() {
		return
	}
	p.front.lowerAll()
	for tries := numClasses; tries > 0 && p.front.budget.left.Load() < 0; tries-- {
		p.heap.yieldDepot()
	}
	if p.front.budget.left.Load() < 0 {
		p.heap.dissolveStack(p.front.evictMissing())
	}
}

// decayCaches chills the blocks that were not needed for so many ticks. p.mu is held.
func (p *Pool) decayCaches(age uint32) {
	h := &p.heap
	if h.clock%age == 0 {
		h.depot.age()
	}
	if h.clock%max(1, age/looks) == 0 && p.front.cached() > 0 {
		h.depot.chillStack(p.front.age())
	}
}
