package memmgr

import (
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
	"github.com/usmbridge/usmbridge/syclobj"
)

// LiveBuffer describes memory that is still referenced.
type LiveBuffer struct {
	Address   uintptr
	Size      uint64
	Requested uint64
	Count     int // references
	Place     *syclobj.Place
	Resource  Resource // nil for foreign memory
	Tag       string
	Stack     Stack // place of allocation, where it was recorded
	Foreign   bool
}

// Live lists the memory that is referenced now, oldest cell first. It looks at
// every owner cell ever used, so it is for reports, not for steady work. Memory
// that is allocated or released meanwhile may or may not be in the list.
func Live() []LiveBuffer {
	var all []LiveBuffer
	eachLive(func(c *owner.Cell, count int) { all = append(all, describe(c, count)) })
	return all
}

// describe returns the description of the memory of a live cell.
func describe(c *owner.Cell, count int) LiveBuffer {
	b := LiveBuffer{
		Address: c.Address, Size: c.Size, Requested: c.Requested, Count: count, Place: placeOfCell(c),
		Tag: tagName(c.Tag), Stack: stackOf(c.Stack),
		Foreign: c.Flags()&owner.Foreign != 0,
	}
	if o := originOf(c); o != nil {
		b.Resource = o.current()
	}
	return b
}

// eachLive calls f for every cell of this package's memory that is alive.
func eachLive(f func(c *owner.Cell, count int)) {
	_, used := owner.Capacity()
	for i := 1; i <= used; i++ {
		c := owner.At(uint32(i))
		r := c.Ref()
		n := r.Count()
		if n == 0 || (c.Resource == 0 && c.Flags()&owner.Foreign == 0) {
			continue
		}
		f(c, int(n))
	}
}

// eachUsed calls f for the cells of this pool that users hold. It looks at every
// block. p.mu is held.
func (p *Pool) eachUsed(f func(*owner.Cell)) {
	p.heap.Walk(func(int32, uintptr, uintptr) {}, func(b tlsf.Piece) {
		if b.Free || b.User == 0 {
			return
		}
		if c := owner.At(b.User); c.Count() > 0 {
			f(c)
		}
	})
}

// LiveCount returns how many pieces of memory are referenced, and their bytes
// as far as known.
func LiveCount() (buffers int, bytes uint64) {
	eachLive(func(c *owner.Cell, _ int) {
		buffers++
		if c.Size != owner.UnknownSize {
			bytes += c.Size
		}
	})
	return buffers, bytes
}
