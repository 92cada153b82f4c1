package memmgr

import "github.com/usmbridge/usmbridge/memmgr/owner"

// magazineStack holds the magazines of one class that no processor has. The
// first cell of each magazine carries its number of blocks and the address of
// the next magazine in a word of its own.
type magazineStack struct {
	top owner.Link
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
	p.counters.depotBytes -= classBytes[k] * int64(n)
	return m
}

// popDepot takes one block of a class, nil when there is none. p.mu is held.
func (p *Pool) popDepot(k int) *owner.Cell {
	r := &p.depot[k]
	c := r.top.Cell()
	if c == nil {
		return nil
	}
	next, n := magazineParts(c)
	r.top = next
	if n > 1 {
		r.top = c.Next
		r.top.Cell().Magazine = magazineWord(next, n-1)
	}
	p.counters.depotBytes -= classBytes[k]
	return c
}

// spill puts a magazine into the depot, or into the heap when the depot has
// enough. p.mu is held.
func (p *Pool) spill(m magazine, k int) {
	if m.n == 0 {
		return
	}
	size := classBytes[k] * int64(m.n)
	if p.closed || p.counters.depotBytes+size > p.options.depotLimit {
		p.dissolveAll(m)
		return
	}
	r := &p.depot[k]
	m.head.Cell().Magazine = magazineWord(r.top, m.n)
	r.top = m.head
	p.counters.depotBytes += size
}

// toDepot keeps a block that nobody uses for the next request of its class.
// p.mu is held.
func (p *Pool) toDepot(c *owner.Cell, k int) {
	if p.closed || p.counters.depotBytes+classBytes[k] > p.options.depotLimit {
		p.toHeap(c)
		return
	}
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
