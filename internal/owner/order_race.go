//go:build race && cgo && linux

package owner

// int usmb_owner_forked(void);
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// The race detector does not see C's atomic operations, but a call of C releases one variable of the
// runtime, and its return acquires it. A call that is still running may have taken the cell from the list
// of free cells, on which a goroutine has put it before.
func afterC() {
	ctl.freeHead.Load()
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
