//go:build !linux

package owner

import "unsafe"

// reservation keeps the cells reachable for ever. Go's objects do not move and
// the system gives pages on first touch, so a large slice does as a
// reservation where there is no C to share it with.
var reservation []Cell

// reserve takes room for cells; all of it is readable at once.
func reserve(cells, commitFirst int) (unsafe.Pointer, int) {
	cells = max(min(cells, 1<<20), commitFirst)
	reservation = make([]Cell, cells)
	return unsafe.Pointer(unsafe.SliceData(reservation)), cells
}

func commit(unsafe.Pointer, uintptr) bool { return true }
