//go:build !race || !cgo || !linux

package owner

import (
	"sync/atomic"
	"unsafe"
)

// The functions of this file are the accesses that nothing orders. In builds with the race detector they
// are hidden from it: see order_race.go. Each caller says why the access is harmless.

// A caller of beforeC is about to put a cell on a list from which C may take it, and a caller of afterC got
// a cell that C may have had: it comes after the earlier users of the cell. C's atomic operations order
// them anyway; the race detector does not see those.
func beforeC() {}
func afterC()  {}

func lateLoad(head *atomic.Uintptr) uintptr { return head.Load() }

func lateFlags(flags *atomic.Uint32) uint32 { return flags.Load() }

func lateStore(word *atomic.Uint64, value uint64) { *(*uint64)(unsafe.Pointer(word)) = value }

func lateStoreFlags(flags *atomic.Uint32, value uint32) { *(*uint32)(unsafe.Pointer(flags)) = value }
