//go:build !linux || race

package owner

import (
	"runtime"
	"unsafe"
)

// The race detector sees only Go's memory, so in its builds the cells are Go memory, as on systems without
// C code. reservation keeps them reachable. Go objects do not move, and pinned ones may be shared with C.
var (
	reservation []Cell
	pinned      runtime.Pinner
)

// reserve allocates all cells; they are accessible immediately. The system provides pages at their first
// access.
func reserve(cells, commitFirst int) (unsafe.Pointer, int) {
	cells = max(min(cells, 1<<20), commitFirst)
	reservation = make([]Cell, cells)
	pinned.Pin(unsafe.SliceData(reservation))
	return unsafe.Pointer(unsafe.SliceData(reservation)), cells
}

func commit(unsafe.Pointer, uintptr) bool { return true }
