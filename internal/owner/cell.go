package owner

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Bits of a cell's flags; USMB_CELL_* in usmb_owner.h.
const (
	ReadOnly     uint32 = 1               // writes through this owner are refused
	Exported     uint32 = 2               // was exported by an exchange protocol
	HostReadable uint32 = 4               // the host can read the memory
	Foreign      uint32 = 8               // memory of another library
	Queued       uint32 = 16              // freed, with work still pending
	pendingHeld  uint32 = 32              // lock of pending
	Poisoned     uint32 = 64              // free, and filled with a pattern that detects writes
	Charged      uint32 = 128             // charged to the account whose number is Context
	Lent         uint32 = 256             // allocated by address, without a handle
	Async        uint32 = 1024            // shown with the default queues of its place
	OnQueues     uint32 = 2048            // shown with queues that package memmgr has recorded
	Alias        uint32 = 4096            // a second owner of the memory of another cell: see Record
	Failed       uint32 = 8192            // work on the memory has failed: see TakeFailure
	CUDA         uint32 = 16384           // was exported to a library of CUDA, which does not use SYCL's queues
	Imported     uint32 = 32768           // its owner may have unreported work on it
	UsedBits     uint32 = 15 << usedShift // see Used
	Observers    uint32 = 0xFFF << 20     // see Observe

	usedShift        = 16      // USMB_USED_SHIFT
	observer  uint32 = 1 << 20 // USMB_CELL_OBSERVER

	// Seen are the flags of memory on which other libraries may have devices work without reporting
	// it: it was exported, shown or imported.
	Seen = Exported | Imported | Async | OnQueues | CUDA
)

// UnknownSize is the Size of a cell if the size of its allocation is unknown.
const UnknownSize = ^uint64(0)

// CellBytes is the size of a cell in memory.
const CellBytes = 128

// Cell is the owner of one piece of memory: usmb_cell of usmb_owner.h.
//
// Cells are made by [New] or by C, never as Go values. The maker writes the exported fields before it
// publishes the cell; afterwards they are only read. Fields that change later are atomic and have
// methods. Addresses are integers because the memory is outside the Go heap: storing them needs no
// write barrier, and the garbage collector ignores them.
type Cell struct {
	// The first cache line has the fields that allocating and freeing access.
	word      atomic.Uint64 // generation<<32 | count
	Next      Link          // in a chain of dead cells; used by the owner of the chain
	pending   atomic.Uintptr
	queue     atomic.Uintptr
	Requested uint64 // bytes the user asked for
	Private   uint64 // used by the resource
	Resource  uint32 // index of the Go resource that owns the memory
	flags     atomic.Uint32
	Stack     uint32 // number of the recorded stack of the allocation, 0 for none
	Tag       uint32 // number of the user's tag, 0 for none

	home     uintptr
	AtZero   uintptr // C function (void (*)(usmb_cell *)) that runs before the cell is recycled, 0 for none; only with cgo
	Address  uintptr // base of the allocation
	Size     uint64  // of the allocation in bytes, or UnknownSize
	Place    uintptr // usmb_place of the memory, borrowed; 0 for plain host memory
	Context  uintptr // for AtZero
	Block    uint32  // index of a pool's block
	link     atomic.Uint32
	Magazine uint64 // a pool's magazine that this cell heads
}

// Pointer converts an address outside the Go heap. The detour through memory avoids the checks of vet
// and checkptr, which know only Go objects.
func Pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// CellOf returns the cell at an address from C (usmb_cell*).
func CellOf(p unsafe.Pointer) *Cell { return (*Cell)(p) }

// Pointer returns the cell's address for C (usmb_cell*).
func (c *Cell) Pointer() unsafe.Pointer { return unsafe.Pointer(c) }

// Count returns the number of references, 0 for a dead or free cell.
func (c *Cell) Count() uint32 { return uint32(c.word.Load()) }

// Ref returns a handle with the current generation of the cell.
func (c *Cell) Ref() Ref { return Ref{cell: c, generation: uint32(c.word.Load() >> 32)} }

// Data returns the base address of the allocation as a pointer.
func (c *Cell) Data() unsafe.Pointer { return Pointer(c.Address) }

// Home returns the list that gets the cell when C drops its last reference.
func (c *Cell) Home() *List { return listOf(c.home) }

// Flags returns the flag bits.
func (c *Cell) Flags() uint32 { return c.flags.Load() }

// SetFlags sets bits and keeps the remaining ones.
func (c *Cell) SetFlags(bits uint32) { c.flags.Or(bits) }

// TakeFailure clears Failed and reports whether it was set: by a wait whose caller could not pass the
// failure of the work on to the user.
func (c *Cell) TakeFailure() bool { return c.flags.And(^Failed)&Failed != 0 }

// ClearFlags clears bits and keeps the remaining ones.
func (c *Cell) ClearFlags(bits uint32) { c.flags.And(^bits) }

// ResetFlags replaces all bits by a plain store. No other goroutine and no C code may change the flags
// meanwhile: the cell is dead and the caller's, or it was not published yet. [Cell.Look] may read them.
func (c *Cell) ResetFlags(bits uint32) { lateStoreFlags(&c.flags, bits) }

// Used returns the number of the queue on which a library that computes for this one works on the memory, 0 for
// none: usmb_cell_used. The function usmb_sycl_wait_used waits for this work.
func (c *Cell) Used() uint32 { return c.flags.Load() & UsedBits >> usedShift }

// Record returns the cell with the pending event, the queues and the observers of the memory: the cell itself,
// or for an alias the cell that SetRecord was given.
func (c *Cell) Record() *Cell {
	if c.flags.Load()&Alias != 0 {
		return At(c.link.Load())
	}
	return c
}

// SetRecord makes a cell that only the caller knows an alias, once its flags have Alias. The alias holds a
// reference of the record.
func (c *Cell) SetRecord(of *Cell) { c.link.Store(of.Index()) }

// Observe counts an observer: somebody who can access the memory without a call of this library, as through a
// view. Work of devices that this library submits on observed memory ends before the call returns. The caller
// holds a reference until Unobserve. Plain memory, on which devices do not work, has no observers. If there
// are too many to count, the memory stays observed.
func (c *Cell) Observe() { c.Record().observers(observer) }

// Unobserve ends one Observe.
func (c *Cell) Unobserve() { c.Record().observers(^observer + 1) }

func (c *Cell) observers(more uint32) {
	if c.Place == 0 {
		return
	}
	for {
		flags := c.flags.Load()
		if flags&Observers == Observers || c.flags.CompareAndSwap(flags, flags+more) {
			return
		}
	}
}

// Observed reports whether the memory has observers.
func (c *Cell) Observed() bool { return c.Record().flags.Load()&Observers != 0 }

// Pending returns the event of the last work that was submitted on the memory, 0 for none. The cell
// owns it.
func (c *Cell) Pending() uintptr { return c.pending.Load() }

// SwapPending stores an event, 0 for none, and returns the previous one. The cell takes ownership of
// the new event, and the caller of the previous one.
func (c *Cell) SwapPending(event uintptr) uintptr { return c.pending.Swap(event) }

// HoldPending locks the pending event until LetPending, so that the caller can load it and copy its
// reference before it is exchanged. Do not wait while holding it.
func (c *Cell) HoldPending() {
	for c.flags.Or(pendingHeld)&pendingHeld != 0 {
		runtime.Gosched()
	}
}

// LetPending unlocks the pending event.
func (c *Cell) LetPending() { c.flags.And(^pendingHeld) }

// Queue returns the queue of last use, 0 for none. The reference is borrowed.
func (c *Cell) Queue() uintptr { return c.queue.Load() }

// SetQueue records the queue of last use. The cell does not retain it.
func (c *Cell) SetQueue(q uintptr) { c.queue.Store(q) }

// Plain reports whether the cell has exactly the given flags, and no event, queue, tag or recorded
// stack.
func (c *Cell) Plain(flags uint32) bool {
	return uint64(c.flags.Load()^flags)|uint64(c.Stack|c.Tag)|uint64(c.pending.Load())|uint64(c.queue.Load()) == 0
}

// Facts are the fields of a cell that reports show.
type Facts struct {
	Ref                  Ref // of the memory that the fields describe
	Count, Flags         uint32
	Resource, Stack, Tag uint32
	Address, Place       uintptr
	Size, Requested      uint64
}

// Look copies the fields of a cell of which the caller holds no reference. Other goroutines may release
// the cell and reuse it meanwhile, so the fields are of one piece of memory only if Ref is valid
// afterwards. What a maker writes after it has published the handle may be missing even then: the tag and
// the stack of a pool's block.
//
// The race detector does not check these reads: nothing orders them.
//
//go:norace
func (c *Cell) Look() (f Facts) {
	w := c.word.Load()
	f.Ref, f.Count = Ref{cell: c, generation: uint32(w >> 32)}, uint32(w)
	// Makers set Resource or the flags last.
	f.Flags, f.Resource = lateFlags(&c.flags), c.Resource
	f.Stack, f.Tag, f.Requested = c.Stack, c.Tag, c.Requested
	f.Address, f.Size, f.Place = c.Address, c.Size, c.Place
	return f
}

// Link is the address of a cell in a chain, 0 at its end. It is an integer so that storing it needs no
// write barrier.
type Link uintptr

// LinkTo returns the link to a cell.
func LinkTo(c *Cell) Link { return Link(unsafe.Pointer(c)) }

// Cell returns the cell, nil at the end of a chain.
func (l Link) Cell() *Cell { return (*Cell)(Pointer(uintptr(l))) }

// Unref drops a reference and reports whether it was the last. If so, the caller must finish the cell
// ([Cell.Finish], or its own drain function).
func (c *Cell) Unref() bool { return uint32(c.word.Add(^uint64(0))) == 0 }

// Renew reuses a dead cell that only the caller can reach: it increments the generation, sets the
// count to 1 and returns the new handle. It uses no locked instruction, so the caller must publish
// the handle by a synchronizing operation. Holders of stale handles may read the word at any time: they
// see another generation before the store and after it.
func (c *Cell) Renew() Ref {
	generation := uint32(c.word.Load()>>32) + 1
	lateStore(&c.word, uint64(generation)<<32|1)
	return Ref{cell: c, generation: generation}
}

// Retire makes all handles of a dead cell stale. The caller keeps the cell.
func (c *Cell) Retire() { c.word.Store((c.word.Load()>>32 + 1) << 32) }

// Release drops one reference without a check of the generation, and finishes the cell if it was the
// last ([Cell.Finish]).
func (c *Cell) Release() {
	if c.Unref() {
		c.Finish()
	}
}

// Finish disposes of a dead cell. The drain function of its home list runs immediately, in this
// goroutine. A cell with a C function (AtZero), or whose list has its own goroutine, is pushed on its
// list instead. A cell without a home is recycled.
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
