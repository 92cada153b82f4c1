package owner

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Bits of a cell's flags; USMB_CELL_* in usmb_owner.h.
const (
	ReadOnly     uint32 = 1  // writes through this owner are refused
	Exported     uint32 = 2  // left our hands through an exchange protocol
	HostReadable uint32 = 4  // the processor may read the memory
	Foreign      uint32 = 8  // memory of others
	Queued       uint32 = 16 // free has been asked for, work is still pending
	pendingHeld  uint32 = 32 // somebody looks at or changes pending right now
)

// UnknownSize is the size of a cell whose allocation's extent nobody told.
const UnknownSize = ^uint64(0)

// CellBytes is the size of a cell in memory.
const CellBytes = 128

// Cell is the owner of one piece of memory: usmb_cell of usmb_owner.h.
//
// Cells come from [New] or from C and are never made as Go values. The pointer
// fields hold addresses outside the Go heap, which is why they are integers
// here: storing them needs no write barrier, and the collector ignores them.
type Cell struct {
	// The first cache line is what giving out and taking back touches.
	word      atomic.Uint64
	next      uintptr
	pending   atomic.Uintptr
	queue     atomic.Uintptr
	requested uint64
	own       uint64
	resource  uint32
	flags     atomic.Uint32
	stack     uint32
	tag       uint32

	home   uintptr
	atZero uintptr
	data   uintptr
	size   uint64
	place  uintptr
	ctx    uintptr
	block  uint32
	link   atomic.Uint32
	own2   uint64
}

// pointer turns an address outside the Go heap into a pointer. Going through
// memory keeps vet and checkptr, which know only Go's own objects, out of it.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// CellOf returns the cell at an address that C handed over (usmb_cell*).
func CellOf(p unsafe.Pointer) *Cell { return (*Cell)(p) }

// Pointer returns the cell's address for C (usmb_cell*).
func (c *Cell) Pointer() unsafe.Pointer { return unsafe.Pointer(c) }

// Count returns the number of references; 0 for a dead or free cell.
func (c *Cell) Count() uint32 { return uint32(c.word.Load()) }

// Generation returns the generation that a handle made now would carry.
func (c *Cell) Generation() uint32 { return uint32(c.word.Load() >> 32) }

// Ref returns the handle of the cell as it is now.
func (c *Cell) Ref() Ref { return Ref{cell: c, generation: c.Generation()} }

// Data returns the base address of the allocation.
func (c *Cell) Data() unsafe.Pointer { return pointer(c.data) }

// SetData sets the base address and the size in bytes of the allocation. For
// whoever makes the cell, before others see it.
func (c *Cell) SetData(p unsafe.Pointer, size uint64) { c.data, c.size = uintptr(p), size }

// Address is Data as an integer.
func (c *Cell) Address() uintptr { return c.data }

// SetAddress is SetData for memory known by its address only.
func (c *Cell) SetAddress(p uintptr, size uint64) { c.data, c.size = p, size }

// Size returns the allocation's size in bytes, [UnknownSize] when not known.
func (c *Cell) Size() uint64 { return c.size }

// Requested returns the bytes the user asked for.
func (c *Cell) Requested() uint64 { return c.requested }

// SetRequested sets the bytes the user asked for.
func (c *Cell) SetRequested(n uint64) { c.requested = n }

// Place returns the usmb_place of the memory, nil for plain host memory.
func (c *Cell) Place() unsafe.Pointer { return pointer(c.place) }

// SetPlace sets the usmb_place of the memory; the cell does not count it.
func (c *Cell) SetPlace(p unsafe.Pointer) { c.place = uintptr(p) }

// Context returns the context of the at-zero function.
func (c *Cell) Context() uintptr { return c.ctx }

// SetContext sets the context of the at-zero function.
func (c *Cell) SetContext(ctx uintptr) { c.ctx = ctx }

// AtZero returns the C function that finishes the cell, 0 for none.
func (c *Cell) AtZero() uintptr { return c.atZero }

// SetAtZero sets the C function (void (*)(usmb_cell *)) that the drainer runs
// before it recycles the cell. Only with cgo.
func (c *Cell) SetAtZero(fn uintptr) { c.atZero = fn }

// Home returns the list that gets the cell when C drops its last reference.
func (c *Cell) Home() *List { return listOf(c.home) }

// SetHome sets the home list; nil for none.
func (c *Cell) SetHome(l *List) { c.home = l.address() }

// Block returns the index of the pool's block.
func (c *Cell) Block() uint32 { return c.block }

// SetBlock sets the index of the pool's block.
func (c *Cell) SetBlock(b uint32) { c.block = b }

// Resource returns the index of the Go resource that owns the memory.
func (c *Cell) Resource() uint32 { return c.resource }

// SetResource sets the index of the Go resource that owns the memory.
func (c *Cell) SetResource(r uint32) { c.resource = r }

// Stack returns the number of the place of allocation, 0 for none.
func (c *Cell) Stack() uint32 { return c.stack }

// SetStack sets the number of the place of allocation.
func (c *Cell) SetStack(s uint32) { c.stack = s }

// Tag returns the number of the user's tag, 0 for none.
func (c *Cell) Tag() uint32 { return c.tag }

// SetTag sets the number of the user's tag.
func (c *Cell) SetTag(t uint32) { c.tag = t }

// Flags returns the flag bits.
func (c *Cell) Flags() uint32 { return c.flags.Load() }

// SetFlags sets bits and leaves the others.
func (c *Cell) SetFlags(bits uint32) { c.flags.Or(bits) }

// ClearFlags clears bits and leaves the others.
func (c *Cell) ClearFlags(bits uint32) { c.flags.And(^bits) }

// ResetFlags replaces all bits. For whoever makes the cell, before others see
// it: the store is a plain one.
func (c *Cell) ResetFlags(bits uint32) { *(*uint32)(unsafe.Pointer(&c.flags)) = bits }

// Pending returns the event of the last work submitted on the memory; the cell
// keeps it. 0: nothing is pending.
func (c *Cell) Pending() uintptr { return c.pending.Load() }

// SwapPending puts an owned event in the cell (0 for none) and hands the former
// one to the caller, who owns it then.
func (c *Cell) SwapPending(event uintptr) uintptr { return c.pending.Swap(event) }

// HoldPending keeps others from exchanging the pending event until LetPending,
// so that the reference can be loaded and copied in one piece. For those steps
// only, never while waiting.
func (c *Cell) HoldPending() {
	for c.flags.Or(pendingHeld)&pendingHeld != 0 {
		runtime.Gosched()
	}
}

// LetPending ends HoldPending.
func (c *Cell) LetPending() { c.flags.And(^pendingHeld) }

// Queue returns the reference of the queue of last use, 0 for none; borrowed.
func (c *Cell) Queue() uintptr { return c.queue.Load() }

// SetQueue records the queue of last use; the cell does not count it.
func (c *Cell) SetQueue(q uintptr) { c.queue.Store(q) }

// Plain reports whether nothing was recorded on the cell beside the given flags:
// no event, queue, tag or place of allocation.
func (c *Cell) Plain(flags uint32) bool {
	return uint64(c.flags.Load()^flags)|uint64(c.stack|c.tag)|uint64(c.pending.Load())|uint64(c.queue.Load()) == 0
}

// Own returns the word that the resource of the memory may use as it likes.
func (c *Cell) Own() uint64 { return c.own }

// SetOwn sets that word.
func (c *Cell) SetOwn(v uint64) { c.own = v }

// Own2 is a second such word.
func (c *Cell) Own2() uint64 { return c.own2 }

// SetOwn2 sets the second word.
func (c *Cell) SetOwn2(v uint64) { c.own2 = v }

// Next returns the link of a chain that the caller owns.
func (c *Cell) Next() *Cell { return (*Cell)(pointer(c.next)) }

// SetNext sets the link of a dead cell that the caller owns.
func (c *Cell) SetNext(n *Cell) { c.next = uintptr(unsafe.Pointer(n)) }

// Link is the address of a cell in a chain: a pointer that the collector need
// not know, so that storing it takes no write barrier. 0 ends the chain.
type Link uintptr

// LinkTo returns the link to a cell.
func LinkTo(c *Cell) Link { return Link(unsafe.Pointer(c)) }

// Cell returns the cell, nil at the end of a chain.
func (l Link) Cell() *Cell { return (*Cell)(pointer(uintptr(l))) }

// Link returns the link of a chain that the caller owns.
func (c *Cell) Link() Link { return Link(c.next) }

// SetLink sets the link of a dead cell that the caller owns.
func (c *Cell) SetLink(l Link) { c.next = uintptr(l) }

// Retain adds a reference; the caller holds one already.
func (c *Cell) Retain() { c.word.Add(1) }

// Unref drops a reference and reports whether it was the last: then the caller
// must finish the cell ([Cell.Finish], or its own drain).
func (c *Cell) Unref() bool { return uint32(c.word.Add(^uint64(0))) == 0 }

// Renew gives a dead cell that the caller owns a new life without passing
// through the free cells: the generation moves on, the count becomes 1. It
// returns the new handle.
func (c *Cell) Renew() Ref {
	generation := uint32(c.word.Load()>>32) + 1
	c.word.Store(uint64(generation)<<32 | 1)
	return Ref{cell: c, generation: generation}
}

// RenewOwned is Renew without a locked instruction, for the caller that alone
// can reach the cell; whoever gets the handle gets it through an ordering of its
// own.
func (c *Cell) RenewOwned() Ref {
	w := (*uint64)(unsafe.Pointer(&c.word))
	generation := uint32(*w>>32) + 1
	*w = uint64(generation)<<32 | 1
	return Ref{cell: c, generation: generation}
}

// Retire makes every handle to a dead cell stale while the caller keeps it.
func (c *Cell) Retire() { c.word.Store((c.word.Load()>>32 + 1) << 32) }

// Release drops one reference of a cell that C's rules own (no generation to
// check); the last one finishes the cell as [Ref.Release] does.
func (c *Cell) Release() {
	if c.Unref() {
		c.Finish()
	}
}

// Finish disposes of a dead cell: the home list's drain function runs now, in
// this goroutine; a cell with a C function at zero, or whose list has its own
// goroutine, is pushed to its list.
func (c *Cell) Finish() {
	l := c.Home()
	if l == nil {
		Recycle(c)
		return
	}
	if c.atZero != 0 || l.own {
		push(c)
		return
	}
	l.drainOne(c)
}
