//go:build cgo && linux

package ownertest

/*
#cgo CFLAGS: -O2 -Wall -Wextra -I${SRCDIR}/..
#include <stdlib.h>
#include "helpers.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Supported reports whether this build has the helpers.
const Supported = true

// Layout is the layout of the header's structs according to the C compiler.
type Layout struct {
	Cell, List, Control []uintptr // offsets in order, then the size
	Flags               []uint32
	Version             uint32
}

// HeaderLayout returns the layout of the C compiler.
func HeaderLayout() Layout {
	c := C.usmb_test_offsets()
	var l Layout
	for _, v := range c.cell {
		l.Cell = append(l.Cell, uintptr(v))
	}
	for _, v := range c.list {
		l.List = append(l.List, uintptr(v))
	}
	for _, v := range c.control {
		l.Control = append(l.Control, uintptr(v))
	}
	for _, v := range c.flags {
		l.Flags = append(l.Flags, uint32(v))
	}
	l.Version = uint32(c.layout)
	return l
}

// DropOnThreads drops each cell once with usmb_cell_drop, from so many C
// threads, and returns when they have ended.
func DropOnThreads(cells []*owner.Cell, threads int) error {
	if len(cells) == 0 {
		return nil
	}
	// The array of pointers goes to C memory: the pointers in it are C's own.
	array := C.calloc(C.size_t(len(cells)), C.size_t(unsafe.Sizeof(uintptr(0))))
	if array == nil {
		return fmt.Errorf("ownertest: no memory for %d pointers", len(cells))
	}
	defer C.free(array)
	pointers := unsafe.Slice((*unsafe.Pointer)(array), len(cells))
	for i, c := range cells {
		pointers[i] = c.Pointer()
	}
	if rc := C.usmb_test_drop_on_threads((**C.usmb_cell)(array), C.size_t(len(cells)), C.int(threads)); rc != 0 {
		return fmt.Errorf("ownertest: starting threads: errno %d", int(rc))
	}
	return nil
}

// Churn has each of so many C threads make and drop n cells whose home is the
// list, and returns how many were made. Half of the cells have a C function at
// zero that adds 1 to [ZeroSum].
func Churn(l *owner.List, n, threads int) int {
	return int(C.usmb_test_churn((*C.usmb_list)(l.Pointer()), C.size_t(n), C.int(threads)))
}

// CountZero returns an at-zero function that adds the cell's context to ZeroSum.
func CountZero() uintptr { return uintptr(C.usmb_test_count_zero()) }

// ZeroSum returns the sum of the contexts of the cells that CountZero finished.
func ZeroSum() int64 { return int64(C.usmb_test_zero_sum()) }

// RunList disposes of n cells of the list with functions at zero, in one call of C.
func RunList(l *owner.List, n int) {
	C.usmb_test_run_list((*C.usmb_list)(l.Pointer()), C.size_t(n))
}

// NewCell makes a cell in C.
func NewCell(l *owner.List) *owner.Cell {
	return owner.CellOf(unsafe.Pointer(C.usmb_cell_new((*C.usmb_list)(l.Pointer()))))
}

// Drop drops one reference by C's function, on the caller's thread.
func Drop(c *owner.Cell) { C.usmb_cell_drop(c.Pointer()) }

// DropInFork forks the process; the child drops the cell and uses lists in C.
// It returns 0 when all went well there.
func DropInFork(c *owner.Cell) int {
	return int(C.usmb_test_drop_in_fork((*C.usmb_cell)(c.Pointer())))
}
