package memmgr

import (
	"errors"

	"github.com/usmbridge/usmbridge/internal/owner"
)

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
	setState(c, stateReturned)
	p.returned = append(p.returned, c)
	p.counters.returnedBytes += c.Size
	p.waiting.Add(1)
	if len(p.returned) >= returnedBlocks || p.counters.returnedBytes >= returnedBytes {
		p.fence()
	}
}

// fence submits one barrier for each queue that returned memory was used or shown on. A
// block that had an event of its own pending, too, waits for both. Where the
// runtime refuses the barrier, nothing tells when the consumer's work ends: those
// blocks wait for the next tick, which asks again. p.mu is held.
func (p *Pool) fence() {
	if len(p.returned) == 0 {
		return
	}
	f := fencing{p: p, barriers: map[uintptr]barrier{}}
	for _, c := range p.returned {
		if !f.behind(c) {
			p.refused = append(p.refused, c)
			p.waiting.Add(-1) // for a search it would be in vain
			continue
		}
		p.counters.returnedBytes -= c.Size
		if c.Pending() == 0 {
			p.waiting.Add(-1)
			p.complete(c)
			continue
		}
		p.pending.add(c, p.sync.SameOrder)
	}
	f.end()
	clear(p.returned)
	p.returned = p.returned[:0]
}

// refence asks again for the barriers that were refused. p.mu is held.
func (p *Pool) refence() {
	p.waiting.Add(int32(len(p.refused)))
	p.returned = append(p.returned, p.refused...)
	clear(p.refused)
	p.refused = p.refused[:0]
	p.fence()
}

// fencing is one round of barriers, one for each queue.
type fencing struct {
	p        *Pool
	barriers map[uintptr]barrier
}

type barrier struct {
	event   uintptr // owned; 0 when nothing is pending on the queue
	refused bool
}

// behind makes a block wait for a barrier on its queue, and on those that it was shown on
// before, and reports whether the runtime took them.
func (f *fencing) behind(c *owner.Cell) bool {
	if b := f.on(c.Queue()); b.refused || (b.event != 0 && f.p.awaitToo(c, b.event) != nil) {
		return false
	}
	for _, q := range formerQueues(c) {
		if b := f.on(q); b.refused || (b.event != 0 && f.p.awaitBefore(c, b.event) != nil) {
			return false
		}
	}
	return true
}

// on is the round's barrier on a queue.
func (f *fencing) on(q uintptr) barrier {
	b, asked := f.barriers[q]
	if !asked {
		event, err := f.p.sync.Barrier(q)
		b = barrier{event, err != nil}
		f.barriers[q] = b
	}
	return b
}

func (f *fencing) end() {
	for _, b := range f.barriers {
		if b.event != 0 {
			f.p.sync.ReleaseEvent(b.event)
		}
	}
}

var errNoReference = errors.New("the library gives no reference of an event")

// awaitToo makes a dead cell wait for an event beside what it waits for. When it
// fails, nothing has changed.
func (p *Pool) awaitToo(c *owner.Cell, event uintptr) error {
	old := c.Pending()
	if old == 0 || p.sync.EventDone(old) {
		own := p.sync.CopyEvent(event)
		if own == 0 {
			return errNoReference
		}
		c.SwapPending(own)
	} else {
		joined, err := p.sync.Join(c.Queue(), old, event)
		if err != nil {
			return err
		}
		c.SwapPending(joined)
	}
	if old != 0 {
		p.sync.ReleaseEvent(old)
	}
	return nil
}

// awaitBefore is awaitToo for an event of another queue than the block's: it comes before
// later work of that one too, to which the block may be given at once.
func (p *Pool) awaitBefore(c *owner.Cell, event uintptr) error {
	if p.sync.EventDone(event) {
		return nil
	}
	first := c.Pending()
	if first == 0 {
		first = event
	}
	joined, err := p.sync.Join(c.Queue(), first, event)
	if err != nil {
		return err
	}
	if old := c.SwapPending(joined); old != 0 {
		p.sync.ReleaseEvent(old)
	}
	return nil
}

// pendToo makes a block that its user still holds wait for an event, which it takes,
// beside what it waits for.
func (p *Pool) pendToo(c *owner.Cell, event uintptr) {
	if err := p.awaitToo(c, event); err != nil {
		_ = p.sync.WaitEvent(event) // the last resort, and still right
	}
	p.sync.ReleaseEvent(event)
}
