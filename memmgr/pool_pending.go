package memmgr

import (
	"github.com/usmbridge/usmbridge/internal/owner"
)

// slowFree takes back a dead cell that has more to it than a size class: work
// pending, an export, a tag, a record of its place of allocation.
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
	exported := c.Flags()&owner.Exported != 0
	c.ResetFlags(p.origin.flags)
	if exported && p.origin.sync != nil {
		p.returnExported(c)
		return
	}
	if event := c.Pending(); event != 0 && !p.sync.EventDone(event) {
		p.mu.Lock()
		p.uncount(c, int(c.Private))
		c.SetFlags(owner.Queued)
		p.pending.add(c, p.sync.SameOrder)
		p.waiting.Add(1)
		p.roomMade() // for requests on the same queue
		p.mu.Unlock()
		return
	}
	p.settle(c)
}

// settle makes a block reusable whose work is done, as a free by the user.
func (p *Pool) settle(c *owner.Cell) {
	p.uncharge(c)
	p.forgetWork(c)
	if p.trace != nil {
		p.trace.add(traceFreeCompleted, c)
	}
	p.poisonFree(c)
	k := int(c.Private)
	if k < noClass {
		p.cache(c, k)
		return
	}
	p.mu.Lock()
	p.uncount(c, k)
	p.heap.dissolveUnclassed(c)
	p.roomMade()
	p.mu.Unlock()
}

// forgetWork ends what a cell knows of events and queues.
func (p *Pool) forgetWork(c *owner.Cell) {
	if event := c.SwapPending(0); event != 0 {
		p.sync.ReleaseEvent(event)
	}
	if q := c.Queue(); q != 0 {
		c.SetQueue(0)
		forgetQueue(q)
		forgetQueues(takeFormer(c))
	}
}

// complete makes a block reusable that had been counted as freed before. p.mu
// is held.
func (p *Pool) complete(c *owner.Cell) {
	p.uncharge(c)
	p.forgetWork(c)
	c.ResetFlags(p.origin.flags)
	if p.trace != nil {
		p.trace.add(traceFreeCompleted, c)
	}
	p.poisonFree(c)
	if k := int(c.Private); k < noClass {
		p.heap.cache(c, k)
		return
	}
	p.heap.dissolveUnclassed(c)
}

// sameQueueTries bounds the search among blocks that have no class.
const sameQueueTries = 32

// sameQueue takes a block whose pending work is on the in-order queue that the
// request is for: whatever it is used for next comes after that work. The event
// stays with the buffer, for the host to wait on. p.mu is held.
func (p *Pool) sameQueue(w *want) *owner.Cell {
	if w.r.Queue == nil {
		return nil
	}
	queue := p.sync.QueueRef(w.r.Queue)
	if queue == 0 || !p.sync.SameOrder(queue, queue) {
		return nil
	}
	k := pendingKey{queue, w.class}
	if p.heap.dedicated(w) {
		k.class = ownSegment
	}
	need := uint64(w.units) * unit
	at := p.pending.newest[k]
	for tries := sameQueueTries; at != 0 && tries > 0; tries-- {
		c := owner.At(at)
		at = classLinks(c).behind()
		if w.class == noClass && (c.Size < need || c.Size-need > need/8 ||
			c.Address%(uintptr(w.align)*unit) != 0) {
			continue
		}
		p.pending.remove(c)
		p.waiting.Add(-1)
		p.uncharge(c)
		c.ResetFlags(p.origin.flags)
		return c
	}
	return nil
}
