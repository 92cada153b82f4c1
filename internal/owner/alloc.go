package owner

import (
	"errors"
	"math"
	"sync/atomic"
	"unsafe"
)

// ErrNoMemory is returned when there is no memory for another cell.
var ErrNoMemory = errors.New("owner: no memory for another owner cell: " +
	"the reservation is used up or the system refuses to commit more of it")

// layoutVersion is USMB_OWNER_LAYOUT.
const layoutVersion = 1

// slabCells is the number of cells that are made accessible at a time: 2 MiB, which use no memory
// until the first access.
const slabCells = 16384

// mostCells is the number of cells of the reservation: 8 GiB of addresses, or an eighth of a 32-bit
// address space.
const mostCells = min(1<<26, math.MaxInt/4/CellBytes)

// control is usmb_control: the head of the reservation, in the place of cell 0.
type control struct {
	freeHead  atomic.Uint64
	_         [7]uint64
	bump      atomic.Uint32
	committed atomic.Uint32
	limit     uint32
	slab      uint32
	waker     waker
	layout    uint32
	cellBytes uint32
	_         [4]uint64
}

// ctl is set at package initialisation, because C code may allocate cells as soon as Go code runs.
var ctl = reserveCells()

// reserveCells makes the reservation and commits the first slab. The control block takes the place of
// cell 0.
func reserveCells() *control {
	base, cells := reserve(mostCells, slabCells)
	if base == nil {
		panic(ErrNoMemory)
	}
	c := (*control)(base)
	c.limit = uint32(cells)
	c.slab = slabCells
	c.layout = layoutVersion
	c.cellBytes = CellBytes
	c.waker.fd = -1
	c.bump.Store(1)
	c.committed.Store(slabCells)
	bind(c)
	return c
}

// At returns the cell with an index. Indices begin at 1.
func At(index uint32) *Cell {
	return (*Cell)(unsafe.Add(unsafe.Pointer(ctl), uintptr(index)*CellBytes))
}

// Index returns the index of a cell, a reference of 4 bytes.
func (c *Cell) Index() uint32 {
	return uint32((uintptr(unsafe.Pointer(c)) - uintptr(unsafe.Pointer(ctl))) / CellBytes)
}

// Capacity returns the number of cells of the reservation, and how many of them have been used at least
// once.
func Capacity() (cells, used int) { return int(ctl.limit), int(ctl.bump.Load()) - 1 }

func popFree() *Cell {
	head := ctl.freeHead.Load()
	for uint32(head) != 0 {
		c := At(uint32(head))
		// Another thread may take the cell before the load of link, and even use its place for a list.
		// The load is harmless: cells are always readable, and the exchange fails, because each change
		// of head changes the tag.
		next := (head>>32+1)<<32 | uint64(c.link.Load())
		if ctl.freeHead.CompareAndSwap(head, next) {
			afterC()
			return c
		}
		head = ctl.freeHead.Load()
	}
	return nil
}

// commitSlab makes the next slab accessible. Several threads may commit the same slab: setting the same
// protection twice is harmless.
func commitSlab(have uint32) bool {
	want := min(ctl.limit-have, ctl.slab)
	if want == 0 || !commit(unsafe.Pointer(At(have)), uintptr(want)*CellBytes) {
		return false
	}
	ctl.committed.CompareAndSwap(have, have+want)
	return true
}

func bump() *Cell {
	for {
		n, have := ctl.bump.Load(), ctl.committed.Load()
		if n >= have {
			if !commitSlab(have) {
				return nil
			}
			continue
		}
		if ctl.bump.CompareAndSwap(n, n+1) {
			return At(n)
		}
	}
}

func rawCell() *Cell {
	if c := popFree(); c != nil {
		return c
	}
	return bump()
}

// New returns a cell with count 1, unknown size and all other fields zero. home is the list that drains
// it; nil for none. It fails with [ErrNoMemory].
func New(home *List) (*Cell, error) {
	c, err := NewDead(home)
	if err == nil {
		c.word.Store(c.word.Load()>>32<<32 | 1)
	}
	return c, err
}

// NewDead is New without the reference. [Cell.Renew] makes one.
func NewDead(home *List) (*Cell, error) {
	c := rawCell()
	if c == nil {
		return nil, ErrNoMemory
	}
	c.clear()
	c.home = home.address()
	return c, nil
}

func (c *Cell) clear() {
	c.Next, c.home, c.AtZero, c.Address, c.Place, c.Context = 0, 0, 0, 0, 0, 0
	c.Size, c.Requested = UnknownSize, 0
	// The cell is not published yet, so its atomic fields need only plain stores. One atomic store
	// would cost as much as the rest of this function.
	*(*uintptr)(unsafe.Pointer(&c.pending)) = 0
	*(*uintptr)(unsafe.Pointer(&c.queue)) = 0
	c.Block, c.Resource, c.Stack, c.Tag = 0, 0, 0, 0
	*(*uint32)(unsafe.Pointer(&c.flags)) = 0
	c.Private, c.Magazine = 0, 0
}

// DropQueues removes the queues that are recorded for a dead cell. A package that recycles cells whose queues may be
// recorded calls it before. Package memmgr sets it.
var DropQueues func(*Cell)

// Settle waits for the work of other libraries on memory in no pool that was released, such as memory of other processes,
// and gives it back, where only a call whose caller waits may do so. It reports whether the waits succeeded. No lock may
// be held, but that of usmb_host_lock. Package memmgr sets it.
var Settle func() bool

// SettleEnded is Settle for memory on which that work is known to have ended. It does not wait for work. Package memmgr
// sets it.
var SettleEnded func()

// Shown is the home of the dead cells whose memory belongs to others and was shown to other libraries. Their Context is
// the address of a second cell, of which they own a reference. The reference is released when the work of the other
// libraries has ended. Package memmgr sets it.
var Shown *List

// Recycle makes a dead cell free for reuse and all its handles stale. The caller must not use the cell
// afterwards.
func Recycle(c *Cell) {
	c.Retire()
	index := uint64(c.Index())
	for {
		head := ctl.freeHead.Load()
		c.link.Store(uint32(head))
		beforeC()
		if ctl.freeHead.CompareAndSwap(head, (head>>32+1)<<32|index) {
			return
		}
	}
}

// Bytes returns the bytes of all cells that have been used at least once. Free cells are reused and
// stay counted.
func Bytes() uint64 {
	_, used := Capacity()
	return uint64(used) * CellBytes
}
