package owner

import (
	"errors"
	"math"
	"sync/atomic"
	"unsafe"
)

// ErrNoMemory is returned when the system gives no memory for another cell.
var ErrNoMemory = errors.New("owner: no memory for another owner cell: " +
	"the reservation is used up or the system refuses to commit more of it")

// layoutVersion is USMB_OWNER_LAYOUT.
const layoutVersion = 1

// slabCells is how many cells are made readable at a time: two MiB of them,
// which cost nothing until they are touched.
const slabCells = 16384

// mostCells is how many cells the reservation is made for: 8 GiB of addresses, or an eighth
// of a 32-bit process's.
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

// ctl is settled once, when the package is initialised: C code may ask for
// cells from the moment that any Go code can run.
var ctl = reserveCells()

// reserveCells makes the reservation, halving its size on failure, and commits
// the first slab, which the control block heads.
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

// At returns the cell with an index; cells have indices 1 and up.
func At(index uint32) *Cell {
	return (*Cell)(unsafe.Add(unsafe.Pointer(ctl), uintptr(index)*CellBytes))
}

// Index returns the number of a cell: four bytes instead of a pointer.
func (c *Cell) Index() uint32 {
	return uint32((uintptr(unsafe.Pointer(c)) - uintptr(unsafe.Pointer(ctl))) / CellBytes)
}

// Capacity returns how many cells the reservation can hold and how many have
// ever been in use.
func Capacity() (cells, used int) { return int(ctl.limit), int(ctl.bump.Load()) - 1 }

func popFree() *Cell {
	head := ctl.freeHead.Load()
	for uint32(head) != 0 {
		c := At(uint32(head))
		// The cell may be taken under our eyes; then the tag has moved on.
		next := (head>>32+1)<<32 | uint64(c.link.Load())
		if ctl.freeHead.CompareAndSwap(head, next) {
			return c
		}
		head = ctl.freeHead.Load()
	}
	return nil
}

// commitSlab makes the next slab readable. Several threads may do the same one:
// asking twice for the same protection is harmless.
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

// New returns a cell with count 1 whose home is the given list (nil: none), of
// unknown size and with all other facts zero. It returns [ErrNoMemory] when the
// reservation is used up.
func New(home *List) (*Cell, error) {
	c := rawCell()
	if c == nil {
		return nil, ErrNoMemory
	}
	c.clear()
	c.home = home.address()
	c.word.Store(c.word.Load()>>32<<32 | 1)
	return c, nil
}

func (c *Cell) clear() {
	c.Next, c.home, c.AtZero, c.Address, c.Place, c.Context = 0, 0, 0, 0, 0, 0
	c.Size, c.Requested = UnknownSize, 0
	// Nobody else sees the cell yet, so plain stores do for its atomic fields:
	// each atomic one costs as much as the rest of this function.
	*(*uintptr)(unsafe.Pointer(&c.pending)) = 0
	*(*uintptr)(unsafe.Pointer(&c.queue)) = 0
	c.Block, c.Resource, c.Stack, c.Tag = 0, 0, 0, 0
	*(*uint32)(unsafe.Pointer(&c.flags)) = 0
	c.Private, c.Magazine = 0, 0
}

// Recycle gives a dead cell's place back. The generation moves on, so every
// handle to it becomes stale. The caller owns the cell and forgets it.
func Recycle(c *Cell) {
	c.Retire()
	index := uint64(c.Index())
	for {
		head := ctl.freeHead.Load()
		c.link.Store(uint32(head))
		if ctl.freeHead.CompareAndSwap(head, (head>>32+1)<<32|index) {
			return
		}
	}
}

// Bytes returns the memory that cells have taken since the start of the process. A cell
// that is free is used again.
func Bytes() uint64 {
	_, used := Capacity()
	return uint64(used) * CellBytes
}
