package memmgr

import "github.com/usmbridge/usmbridge/memmgr/owner"

// rack holds the magazines of one class that no processor has: a stack. The
// first cell of each magazine carries its number of blocks and the address of
// the next magazine in a word of its own.
type rack struct {
	top owner.Link
}

// A word of 64 bits holds an address of user space (48 bits) and a number.
const rackShift = 48

func rackWord(next owner.Link, n uint32) uint64 { return uint64(n)<<rackShift | uint64(next) }

func rackParts(c *owner.Cell) (next owner.Link, n uint32) {
	w := c.Magazine
	return owner.Link(w & (1<<rackShift - 1)), uint32(w >> rackShift)
}

// popMagazine takes a magazine; an empty one when there is none. p.mu is held.
func (p *Pool) popMagazine(k int) magazine {
	r := &p.middle[k]
	c := r.top.Cell()
	if c == nil {
		return magazine{}
	}
	next, n := rackParts(c)
	m := magazine{r.top, n}
	r.top = next
	p.counters.middleBytes -= classBytes[k] * int64(n)
	return m
}

// popMiddle takes one block of a class, nil when there is none. p.mu is held.
func (p *Pool) popMiddle(k int) *owner.Cell {
	r := &p.middle[k]
	c := r.top.Cell()
	if c == nil {
		return nil
	}
	next, n := rackParts(c)
	r.top = next
	if n > 1 {
		r.top = c.Next
		r.top.Cell().Magazine = rackWord(next, n-1)
	}
	p.counters.middleBytes -= classBytes[k]
	return c
}

// spill puts a magazine into the middle, or into the heap when the middle has
// enough. p.mu is held.
func (p *Pool) spill(m magazine, k int) {
	if m.n == 0 {
		return
	}
	size := classBytes[k] * int64(m.n)
	if p.closed || p.counters.middleBytes+size > p.options.middleLimit {
		p.dissolveAll(m)
		return
	}
	r := &p.middle[k]
	m.head.Cell().Magazine = rackWord(r.top, m.n)
	r.top = m.head
	p.counters.middleBytes += size
}

// toMiddle keeps a block that nobody uses for the next request of its class.
// p.mu is held.
func (p *Pool) toMiddle(c *owner.Cell, k int) {
	if p.closed || p.counters.middleBytes+classBytes[k] > p.options.middleLimit {
		p.toHeap(c)
		return
	}
	r := &p.middle[k]
	next, n := r.top, uint32(0)
	if top := r.top.Cell(); top != nil {
		if below, has := rackParts(top); has < magazineSize[k] {
			next, n = below, has
		}
	}
	c.Next = 0
	if n > 0 {
		c.Next = r.top
	}
	c.Magazine = rackWord(next, n+1)
	r.top = owner.LinkTo(c)
	p.counters.middleBytes += classBytes[k]
}

// dissolveAll gives the blocks of a magazine back to the heap. p.mu is held.
func (p *Pool) dissolveAll(m magazine) {
	for c := m.head.Cell(); c != nil; {
		next := c.Next.Cell()
		p.toHeap(c)
		c = next
	}
}
