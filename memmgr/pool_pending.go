package memmgr

import (
	"github.com/usmbridge/usmbridge/memmgr/owner"
)

// pendingKey sorts blocks that wait for a device: by queue and size class.
type pendingKey struct {
	queue uintptr
	class int
}

// pendingSet holds dead cells whose memory is still in use by submitted work,
// oldest first under each key. Their events stay in the cells.
type pendingSet struct {
	waiting map[pendingKey][]*owner.Cell
	n       int
	bytes   uint64
}

func (s *pendingSet) init() { s.waiting = map[pendingKey][]*owner.Cell{} }

func (s *pendingSet) add(c *owner.Cell) {
	k := pendingKey{c.Queue(), int(c.Private)}
	s.waiting[k] = append(s.waiting[k], c)
	s.n++
	s.bytes += c.Size
}

// removeAt takes one out; keys stay, because the same ones come again.
func (s *pendingSet) removeAt(k pendingKey, at int) *owner.Cell {
	cells := s.waiting[k]
	c := cells[at]
	copy(cells[at:], cells[at+1:])
	cells[len(cells)-1] = nil
	s.waiting[k] = cells[:len(cells)-1]
	if len(cells) == 1 {
		delete(s.waiting, k)
	}
	s.n--
	s.bytes -= c.Size
	return c
}

// slowFree takes back a dead cell that has more to it than a size class: work
// pending, an export, a tag, a record of its place of allocation.
func (p *Pool) slowFree(c *owner.Cell) {
	noteRelease(c)
	if p.trace != nil {
		p.trace.add(traceFreeRequested, c)
	}
	c.Tag = 0
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
		p.pending.add(c)
		p.waiting.Add(1)
		p.mu.Unlock()
		return
	}
	p.settle(c)
}

// settle makes a block reusable whose work is done, as a free by the user.
func (p *Pool) settle(c *owner.Cell) {
	p.forgetWork(c)
	if p.trace != nil {
		p.trace.add(traceFreeCompleted, c)
	}
	k := int(c.Private)
	if k < noClass {
		p.cache(c, k)
		return
	}
	p.mu.Lock()
	p.uncount(c, k)
	p.dissolve(c)
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
	}
}

// complete makes a block reusable that had been counted as freed before. p.mu
// is held.
func (p *Pool) complete(c *owner.Cell) {
	p.forgetWork(c)
	c.ResetFlags(p.origin.flags)
	if p.trace != nil {
		p.trace.add(traceFreeCompleted, c)
	}
	if k := int(c.Private); k < noClass {
		p.toDepot(c, k)
		return
	}
	p.dissolve(c)
}

// Exported memory waits in a list for one barrier for all of a queue: so many
// blocks or bytes at most, or until somebody needs memory, or the next tick.
const (
	returnedBlocks = 32
	returnedBytes  = 16 << 20
)

func (p *Pool) returnExported(c *owner.Cell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncount(c, int(c.Private))
	c.SetFlags(owner.Queued)
	p.returned = append(p.returned, c)
	p.counters.returnedBytes += c.Size
	p.waiting.Add(1)
	if len(p.returned) >= returnedBlocks || p.counters.returnedBytes >= returnedBytes {
		p.fence()
	}
}

// fence submits one barrier for each queue that returned memory was used on. A
// block that had an event of its own pending, too, waits for both. Where the
// runtime refuses the barrier, nothing tells when the consumer's work ends: those
// blocks stay until a later fence gets one. p.mu is held.
func (p *Pool) fence() {
	if len(p.returned) == 0 {
		return
	}
	barriers, refused := map[uintptr]uintptr{}, map[uintptr]bool{}
	kept, keptBytes := p.returned[:0], uint64(0)
	for _, c := range p.returned {
		q := c.Queue()
		barrier, ok := barriers[q]
		if !ok && !refused[q] {
			var err error
			if barrier, err = p.sync.Barrier(q); err != nil {
				refused[q] = true
			} else {
				barriers[q] = barrier
			}
		}
		if refused[q] {
			kept, keptBytes = append(kept, c), keptBytes+c.Size
			continue
		}
		if barrier != 0 {
			p.awaitToo(c, barrier)
		}
		if c.Pending() == 0 {
			p.waiting.Add(-1)
			p.complete(c)
			continue
		}
		p.pending.add(c)
	}
	for _, barrier := range barriers {
		if barrier != 0 {
			p.sync.ReleaseEvent(barrier)
		}
	}
	clear(p.returned[len(kept):])
	p.returned, p.counters.returnedBytes = kept, keptBytes
}

// awaitToo makes a dead cell wait for an event beside what it waits for.
func (p *Pool) awaitToo(c *owner.Cell, event uintptr) {
	own := p.sync.CopyEvent(event)
	old := c.SwapPending(own)
	if old == 0 {
		return
	}
	if !p.sync.EventDone(old) {
		if joined, err := p.sync.Join(c.Queue(), old, own); err == nil {
			c.SwapPending(joined)
			p.sync.ReleaseEvent(own)
		} else {
			_ = p.sync.WaitEvent(old)
		}
	}
	p.sync.ReleaseEvent(old)
}

// collect completes blocks whose events are done, looking at limit of them at
// most (all when negative). p.mu is held.
func (p *Pool) collect(limit int) {
	p.fence()
	for k, cells := range p.pending.waiting {
		inOrder := k.queue != 0 && p.sync.SameOrder(k.queue, k.queue)
		for at := 0; at < len(cells); {
			if limit == 0 {
				return
			}
			limit--
			if !p.sync.EventDone(cells[at].Pending()) {
				if inOrder {
					break // what came later is not done either
				}
				at++
				continue
			}
			c := p.pending.removeAt(k, at)
			cells = p.pending.waiting[k]
			p.waiting.Add(-1)
			p.complete(c)
		}
	}
}

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
	if p.dedicated(w) {
		k.class = ownSegment
	}
	cells := p.pending.waiting[k]
	for at := len(cells) - 1; at >= 0; at-- {
		c := cells[at]
		need := uint64(w.units) * unit
		if w.class == noClass && (c.Size < need || c.Size-need > need/8 ||
			c.Address%(uintptr(w.align)*unit) != 0) {
			continue
		}
		p.pending.removeAt(k, at)
		p.waiting.Add(-1)
		c.ResetFlags(p.origin.flags)
		return c
	}
	return nil
}

// awaitAll waits for everything that is pending, without the lock.
func (p *Pool) awaitAll() {
	p.mu.Lock()
	p.fence()
	var cells []*owner.Cell
	for _, some := range p.pending.waiting {
		cells = append(cells, some...)
	}
	p.pending.init()
	p.pending.n = 0
	p.pending.bytes = 0
	p.mu.Unlock()
	for _, c := range cells {
		// A failure of the work is told to those who wait for it.
		_ = p.sync.WaitEvent(c.Pending())
		p.mu.Lock()
		p.waiting.Add(-1)
		p.complete(c)
		p.mu.Unlock()
	}
}
