//go:build race && cgo && linux

package owner

// int usmb_owner_forked(void);
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// handed orders goroutines that put cells on lists before those that get cells.
var handed atomic.Uint32

func beforeC() { handed.Add(1) }

// A call of C releases one variable of the runtime, and its return acquires it: that orders this goroutine
// after calls of C that have used the cell.
func afterC() {
	handed.Load()
	C.usmb_owner_forked()
}

//go:norace
func lateLoad(head *atomic.Uintptr) uintptr { return *(*uintptr)(unsafe.Pointer(head)) }

//go:norace
func lateFlags(flags *atomic.Uint32) uint32 { return *(*uint32)(unsafe.Pointer(flags)) }

//go:norace
func lateStore(word *atomic.Uint64, value uint64) { *(*uint64)(unsafe.Pointer(word)) = value }

//go:norace
func lateStoreFlags(flags *atomic.Uint32, value uint32) { *(*uint32)(unsafe.Pointer(flags)) = value }
