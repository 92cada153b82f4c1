package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// This file connects the part pending with the other parts of a pool.

// slowFree processes a dead cell that is not plain: it has pending work, a tag or a recorded
// stack, or its memory was exported.
func (p *Pool) slowFree(c *owner.Cell) {
	if p.sleep.dropBlock(c) {
		return
	}
	noteRelease(c)
	p.noteGiven(c)
	if p.trace != nil {
		p.trace.add(traceFreeRequested, c)
	}
	if c.Tag != 0 {
		p.tagsOf(c).add(c.Tag, -int64(c.Size), -1)
		c.Tag = 0
	}
	exported := c.Flags()&owner.Exported != 0 && p.origin.sync != nil
	c.ResetFlags(p.origin.flags)
	if !exported && !p.pending.working(c) {
		p.settle(c)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncount(c, blockClass(c))
	if exported {
		p.pending.addReturned(c)
		return
	}
	p.pending.add(c)
	p.serveWaiters() // a request for the same queue may take it
}

// settle makes a block without pending work reusable and counts the free.
func (p *Pool) settle(c *owner.Cell) {
	p.endUse(c)
	k := blockClass(c)
	if k < noClass {
		p.cache(c, k)
		return
	}
	p.mu.Lock()
	p.uncount(c, k)
	p.heap.dissolveUnclassed(c)
	p.serveWaiters()
	p.mu.Unlock()
}

// complete makes a block reusable whose free was counted before. p.mu is held.
func (p *Pool) complete(c *owner.Cell) {
	c.ResetFlags(p.origin.flags)
	p.endUse(c)
	if k := blockClass(c); k < noClass {
		p.heap.cache(c, k)
		return
	}
	p.heap.dissolveUnclassed(c)
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
	class := w.class
	if p.heap.dedicated(w) {
		class = ownSegment
	}
	c := p.pending.takeFor(queue, class, uint64(w.units)*unit, uintptr(w.align)*unit)
	if c != nil {
		p.uncharge(c)
		c.ResetFlags(p.origin.flags)
	}
	return c
}

// awaitAll waits for pending work, except for stalled work, and reports that. p.mu is not held.
func (p *Pool) awaitAll() {
	p.pending.completeAll()
	awaitWork(&p.pending)
	p.pending.reportStalled()
}
