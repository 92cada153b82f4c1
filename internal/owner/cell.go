package owner

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Bits of a cell's flags; USMB_CELL_* in usmb_owner.h.
const (
	ReadOnly     uint32 = 1    // writes through this owner are refused
	Exported     uint32 = 2    // left our hands through an exchange protocol
	HostReadable uint32 = 4    // the processor may read the memory
	Foreign      uint32 = 8    // memory of others
	Queued       uint32 = 16   // free has been asked for, work is still pending
	pendingHeld  uint32 = 32   // somebody looks at or changes pending right now
	Poisoned     uint32 = 64   // nobody uses the block, and it is filled to show who does
	Charged      uint32 = 128  // the account that the context numbers is charged with it
	Lent         uint32 = 256  // given out by its address, without a handle
	Shown        uint32 = 512  // C was given the cell
	async        uint32 = 1024 // shown to those who let devices work on it in their own queues
)

// UnknownSize is the size of a cell whose allocation's extent nobody told.
const UnknownSize = ^uint64(0)

// CellBytes is the size of a cell in memory.
const CellBytes = 128

// Cell is the owner of one piece of memory: usmb_cell of usmb_owner.h.
//
// Cells come from [New] or from C and are never made as Go values. The exported
// fields are written by whoever makes the cell, before others see it, and read by
// anybody; what changes afterwards is atomic and has methods. Addresses lie outside
// the Go heap, which is why they are integers here: storing them needs no write
// barrier, and the collector ignores them.
type Cell struct {
	// The first cache line is what giving out and taking back touches.
	word      atomic.Uint64
	Next      Link // in a chain of dead cells, for the chain's owner
	pending   atomic.Uintptr
	queue     atomic.Uintptr
	Requested uint64 // bytes the user asked for
	Private   uint64 // the resource's own
	Resource  uint32 // index of the Go resource that owns the memory
	flags     atomic.Uint32
	Stack     uint32 // number of the place of allocation, 0 for none
	Tag       uint32 // number of the user's tag, 0 for none

	home     uintptr
	AtZero   uintptr // C function (void (*)(usmb_cell *)) that the drainer runs before it recycles the cell, 0 for none; only with cgo
	Address  uintptr // base of the allocation
	Size     uint64  // of the allocation in bytes, UnknownSize when not known
	Place    uintptr // usmb_place of the memory, which the cell does not count; 0 for plain host memory
	Context  uintptr // for AtZero
	Block    uint32  // index of a pool's block
	link     atomic.Uint32
	Magazine uint64 // a pool's magazine that this cell heads
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

// Ref returns the handle of the cell as it is now.
func (c *Cell) Ref() Ref { return Ref{cell: c, generation: uint32(c.word.Load() >> 32)} }

// Data returns the base address of the allocation as a pointer.
func (c *Cell) Data() unsafe.Pointer { return pointer(c.Address) }

// Home returns the list that gets the cell when C drops its last reference.
func (c *Cell) Home() *List { return listOf(c.home) }

// Flags returns the flag bits.
func (c *Cell) Flags() uint32 { return c.flags.Load() }

// SetFlags sets bits and leaves the others.
func (c *Cell) SetFlags(bits uint32) { c.flags.Or(bits) }

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
	return uint64(c.flags.Load()^flags)|uint64(c.Stack|c.Tag)|uint64(c.pending.Load())|uint64(c.queue.Load()) == 0
}

// Link is the address of a cell in a chain: a pointer that the collector need
// not know, so that storing it takes no write barrier. 0 ends the chain.
type Link uintptr

// LinkTo returns the link to a cell.
func LinkTo(c *Cell) Link { return Link(unsafe.Pointer(c)) }

// Cell returns the cell, nil at the end of a chain.
func (l Link) Cell() *Cell { return (*Cell)(pointer(uintptr(l))) }

// Unref drops a reference and reports whether it was the last: then the caller
// must finish the cell ([Cell.Finish], or its own drain).
func (c *Cell) Unref() bool { return uint32(c.word.Add(^uint64(0))) == 0 }

// Renew gives a dead cell that the caller alone can reach a new life without
// passing through the free cells: the generation moves on, the count becomes 1. It
// returns the new handle. It takes no locked instruction: whoever gets the handle
// gets it through an ordering of its own.
func (c *Cell) Renew() Ref {
	w := (*uint64)(unsafe.Pointer(&c.word))
	generation := uint32(*w>>32) + 1
	*w = uint64(generation)<<32 | 1
	return Ref{cell: c, generation: generation}
}

// Retire makes every handle to a dead cell stale while the caller keeps it.
func (c *Cell) Retire() { c.word.Store((c.word.Load()>>32 + 1) << 32) }

// Release drops one reference of a cell that C's rules own (no generation to
// check); the last one finishes the cell ([Cell.Finish]).
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
	if c.AtZero != 0 || l.own {
		push(c)
		return
	}
	l.drainOne(c)
}
