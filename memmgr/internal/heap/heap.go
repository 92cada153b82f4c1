package heap

import (
	"math"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// Heap is the part of a pool that holds memory from the upstream.
type Heap struct {
	Depot front.Depot

	options Options
	blocks  tlsf.Heap

	segments       []segment // by number
	oldest, newest int32     // segments out of use by age: number + 1, 0 for none
	reserved       atomic.Uint64
	counts         Counts
	shut           bool // segments go back as soon as they are empty

	clock     uint32 // ticks
	idleSince uint32 // tick since which the blocks that are being freed are idle
}

// Options of a heap.
type Options struct {
	Cells     Cells
	Shared    uint32 // largest segment in units that serves requests of any size
	Decay     Decay
	High, Low uint64        // if more than High bytes are out of use, all but Low go back
	Budget    *front.Budget // of front and depot
	Drop      func(Segment) // takes a segment that goes back; called with the lock
	Emptied   func()        // called when the last segment of a shut heap has gone back
}

// Cells are the facts that all cells of a heap have in common.
type Cells struct {
	Home            *owner.List
	Place           uintptr
	Resource, Flags uint32
}

// Init prepares an empty heap.
func (h *Heap) Init(o Options) {
	h.options = o
	h.blocks.Shared = o.Shared
	h.Depot.Budget = o.Budget
	h.setClock(0)
}

// Shut makes all segments go back as soon as they are empty, and nothing is cached any more.
func (h *Heap) Shut() { h.shut, h.Depot.Off = true, true }

// Carve takes the best fit for so many units; nil when none fits.
func (h *Heap) Carve(units, align uint32, class int) *owner.Cell {
	return h.cellOf(h.blocks.Alloc(units, align), class)
}

// CarveAny is Carve as the last resort, after the caches were emptied: it takes any free block that is large enough,
// of a segment of any size, and without the bound on the search for an aligned place.
func (h *Heap) CarveAny(units, align uint32, class int) *owner.Cell {
	return h.cellOf(h.blocks.AllocAny(units, align), class)
}

// TakeReserved is Carve from the closed segments.
func (h *Heap) TakeReserved(units, align uint32, class int) *owner.Cell {
	return h.cellOf(h.blocks.AllocClosed(units, align), class)
}

// cellOf gives block n, which was just taken, its cell. It returns nil for a negative number, and when there are no
// more cells.
func (h *Heap) cellOf(n int32, class int) *owner.Cell {
	if n < 0 {
		return nil
	}
	of := &h.options.Cells
	c, err := owner.NewDead(of.Home)
	if err != nil {
		h.blocks.Free(n)
		return nil
	}
	c.Address, c.Size = h.blocks.Address(n), uint64(h.blocks.Size(n))
	c.Place = of.Place
	c.Resource = of.Resource
	c.Block = uint32(n)
	block.SetClass(c, class)
	c.ResetFlags(of.Flags)
	h.blocks.SetUser(n, c.Index())
	h.unlist(h.blocks.Segment(n))
	block.SetState(c, block.InHand)
	return c
}

// toHeap frees a block; it merges with its neighbours.
func (h *Heap) toHeap(c *owner.Cell) {
	n := int32(c.Block)
	block.SetState(c, block.Free)
	owner.Recycle(c)
	seg := h.blocks.Segment(n)
	if s := &h.segments[seg]; int32(h.idleSince-s.idleSince) > 0 {
		s.idleSince = h.idleSince
	}
	h.freed(seg, h.blocks.Free(n))
}

// Cache puts a block into the depot, or frees it when it has no class or the depot may not hold more.
func (h *Heap) Cache(c *owner.Cell, k int) {
	if k >= block.NoClass || !h.Depot.Put(c, k) {
		h.toHeap(c)
	}
}

// Spill puts a magazine, whose bytes of the cache budget are taken, into the depot, or frees its blocks while nothing
// is cached.
func (h *Heap) Spill(m block.Magazine, k int) {
	if m.N != 0 && !h.Depot.Push(m, k) {
		h.Dissolve(m)
	}
}

// Dissolve frees the blocks of a magazine. They keep the tick since which they are idle.
func (h *Heap) Dissolve(m block.Magazine) {
	h.setIdle(m.Since)
	for c := m.Head.Cell(); c != nil; {
		next := c.Next.Cell()
		h.toHeap(c)
		c = next
	}
	h.setIdle(0)
}

// DissolveStack frees the blocks of many magazines, and reports whether there were any.
func (h *Heap) DissolveStack(s block.Stack) bool {
	any := !s.Empty()
	for !s.Empty() {
		h.Dissolve(s.Pop())
	}
	return any
}

// Flush frees all blocks of the depot.
func (h *Heap) Flush() {
	h.dissolveCold(math.MaxInt)
	h.FlushFrom(0)
}

// FlushFrom frees the blocks of the depot of the classes from first on.
func (h *Heap) FlushFrom(first int) {
	for k := first; k < block.NumClasses && h.Depot.Bytes() != 0; k++ {
		for m := h.Depot.Pop(k); m.N != 0; m = h.Depot.Pop(k) {
			h.Dissolve(m)
			h.Depot.Budget.Give(m.Bytes(k))
		}
	}
}

// YieldDepot frees about one magazine of the depot, so that a shard finds room in the cache budget: blocks in use have
// precedence over blocks that lie in the depot.
func (h *Heap) YieldDepot() { h.Dissolve(h.Depot.Evict()) }

// Largest returns the bytes of the largest free block of open segments.
func (h *Heap) Largest() uintptr { return h.blocks.Largest() }

// BestFit returns the units of the smallest free block that Carve can use for so many, 0 if there is none.
func (h *Heap) BestFit(units uint32) uint32 { return h.blocks.BestFit(units) }

// FreeBytes returns the bytes of free blocks, without those of the depot.
func (h *Heap) FreeBytes() uint64 { return h.blocks.Counts().FreeUnits * block.Unit }

// DirtyBytes returns the bytes of free blocks that may have whole pages of memory.
func (h *Heap) DirtyBytes() uint64 { return h.blocks.Counts().DirtyUnits * block.Unit }

// Walk calls segment for every segment, and then piece for each of its blocks in the order of their addresses. The
// user's word of a block is the number of its cell.
func (h *Heap) Walk(segment func(base, size uintptr, closed bool), piece func(tlsf.Piece)) {
	h.blocks.Walk(func(n int32, base, size uintptr) { segment(base, size, h.blocks.Closed(n)) }, piece)
}

// MetadataBytes returns the bytes of the records and cells of all blocks.
func (h *Heap) MetadataBytes() uint64 {
	return h.blocks.Bytes() + uint64(h.blocks.Counts().UsedBlocks)*owner.CellBytes
}
