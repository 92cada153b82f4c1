// Package stacks records the places of allocation and release of memory.
package stacks

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Depth is how many frames to record, 0 for none.
var Depth atomic.Int32

// table contains every distinct stack once. A cell stores its number in four bytes.
// Programs have few distinct places of allocation.
var table = struct {
	mu     sync.Mutex
	seed   maphash.Seed
	byHash map[uint64][]uint32
	all    [][]uintptr
	// The stacks of freed memory, for the panic on use after release.
	former [4096]Record
}{seed: maphash.MakeSeed(), byHash: map[uint64][]uint32{}, all: make([][]uintptr, 1)}

// Record has the numbers of the stacks of freed memory.
type Record struct {
	ref      owner.Ref
	Stack    uint32 // of the allocation
	Released uint32 // of the last release, 0 if C released it
}

// NoteAllocation records the place of allocation in a new cell.
func NoteAllocation(c *owner.Cell) {
	if depth := Depth.Load(); depth != 0 {
		c.Stack = Capture(int(depth), 3)
	}
}

// NoteRelease records the places of allocation and release of a cell that is freed.
func NoteRelease(c *owner.Cell) {
	if c.Stack == 0 {
		return
	}
	r := Record{ref: c.Ref(), Stack: c.Stack}
	if depth := Depth.Load(); depth != 0 {
		r.Released = Capture(int(depth), 3)
	}
	table.mu.Lock()
	table.former[c.Index()%uint32(len(table.former))] = r
	table.mu.Unlock()
	c.Stack = 0
}

// Capture returns the number of the caller's stack.
func Capture(depth, skip int) uint32 {
	var pcs [64]uintptr
	n := runtime.Callers(skip+1, pcs[:depth])
	var h maphash.Hash
	h.SetSeed(table.seed)
	for _, pc := range pcs[:n] {
		maphash.WriteComparable(&h, pc)
	}
	sum := h.Sum64()
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, number := range table.byHash[sum] {
		if slices.Equal(table.all[number], pcs[:n]) {
			return number
		}
	}
	number := uint32(len(table.all))
	table.all = append(table.all, slices.Clone(pcs[:n]))
	table.byHash[sum] = append(table.byHash[sum], number)
	return number
}

// Of returns a recorded stack by its number.
func Of(number uint32) []uintptr {
	table.mu.Lock()
	defer table.mu.Unlock()
	if int(number) >= len(table.all) {
		return nil
	}
	return table.all[number]
}

// Former returns the record of the memory of a stale handle, the zero record if another
// one has replaced it.
func Former(r owner.Ref) Record {
	if f := FormerAt(r.Cell()); f.ref == r {
		return f
	}
	return Record{}
}

// FormerAt returns the record at a cell's position in the table.
func FormerAt(c *owner.Cell) Record {
	table.mu.Lock()
	defer table.mu.Unlock()
	return table.former[c.Index()%uint32(len(table.former))]
}
