package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// magazineStack holds the magazines of one class that no processor has. The
// first cell of each magazine carries its number of blocks and the address of
// the next magazine in a word of its own.
type magazineStack struct {
	top owner.Link
}

// depotClass is what the depot has of one class.
type depotClass struct {
	magazineStack
	blocks uint32
	low    uint32 // the least that there were since the last look
}

// left notes that so many blocks were taken.
func (d *depotClass) left(n uint32) {
	d.blocks -= n
	d.low = min(d.low, d.blocks)
}

// A word of 64 bits holds an address of user space (48 bits) and a number.
const magazineShift = 48

func magazineWord(next owner.Link, n uint32) uint64 { return uint64(n)<<magazineShift | uint64(next) }

func magazineParts(c *owner.Cell) (next owner.Link, n uint32) {
	w := c.Magazine
	return owner.Link(w & (1<<magazineShift - 1)), uint32(w >> magazineShift)
}

// popMagazine takes a magazine; an empty one when there is none. p.mu is held.
func (p *Pool) popMagazine(k int) magazine {
	r := &p.depot[k]
	c := r.top.Cell()
	if c == nil {
		return magazine{}
	}
	next, n := magazineParts(c)
	m := magazine{r.top, n}
	r.top = next
	r.left(n)
	p.counters.depotBytes -= m.bytes(k)
	return m
}

// push puts a magazine on top, of whatever class.
func (r *magazineStack) push(m magazine) {
	m.head.Cell().Magazine = magazineWord(r.top, m.n)
	r.top = m.head
}

// pop takes the magazine on top; there is one.
func (r *magazineStack) pop() (m magazine) {
	m.head = r.top
	r.top, m.n = magazineParts(r.top.Cell())
	return m
}

// popDepot takes one block of a class for a user, nil when there is none. p.mu is
// held.
func (p *Pool) popDepot(k int) *owner.Cell {
	r := &p.depot[k]
	c := r.top.Cell()
	if c == nil {
		return nil
	}
	next, n := magazineParts(c)
	setState(c, stateInHand)
	r.top = next
	if n > 1 {
		r.top = c.Next
		r.top.Cell().Magazine = magazineWord(next, n-1)
	}
	r.left(1)
	p.counters.depotBytes -= classBytes[k]
	p.budget.give(classBytes[k])
	return c
}

// spill puts a magazine that comes with its bytes of the budget into the depot, or
// into the heap when nothing is to be kept. p.mu is held.
func (p *Pool) spill(m magazine, k int) {
	if m.n == 0 {
		return
	}
	if p.closed || p.pressed {
		p.dissolveAll(m)
		p.budget.give(m.bytes(k))
		return
	}
	p.depot[k].push(m)
	p.depot[k].blocks += m.n
	p.counters.depotBytes += m.bytes(k)
}

// toDepot keeps a block that nobody uses for the next request of its class.
// p.mu is held.
func (p *Pool) toDepot(c *owner.Cell, k int) {
	if p.closed || p.pressed || p.budget.take(classBytes[k], 0) == 0 {
		p.toHeap(c)
		return
	}
	setState(c, stateCached)
	r := &p.depot[k]
	next, n := r.top, uint32(0)
	if top := r.top.Cell(); top != nil {
		if below, has := magazineParts(top); has < magazineSize[k] {
			next, n = below, has
		}
	}
	c.Next = 0
	if n > 0 {
		c.Next = r.top
	}
	c.Magazine = magazineWord(next, n+1)
	r.top = owner.LinkTo(c)
	r.blocks++
	p.counters.depotBytes += classBytes[k]
}

// dissolveAll gives the blocks of a magazine back to the heap. p.mu is held.
func (p *Pool) dissolveAll(m magazine) {
	for c := m.head.Cell(); c != nil; {
		next := c.Next.Cell()
		p.toHeap(c)
		c = next
	}
}

// dissolveStack does so with many, and tells whether there were any. p.mu is held.
func (p *Pool) dissolveStack(r magazineStack) bool {
	any := r.top != 0
	for r.top != 0 {
		p.dissolveAll(r.pop())
	}
	return any
}

// yieldDepot gives a magazine's bytes back to the budget when a processor found
// nothing left there, so that those who work come before what lies: of each class
// in turn, of which it looks at a few. p.mu is held.
func (p *Pool) yieldDepot() {
	if p.counters.depotBytes == 0 {
		return
	}
	if p.cold.top != 0 {
		p.dissolveCold(1)
		return
	}
	for range coldTries {
		k := p.hand
		p.hand = (p.hand + 1) % numClasses
		if m := p.popMagazine(k); m.n != 0 {
			p.dissolveAll(m)
			p.budget.give(m.bytes(k))
			return
		}
	}
}
