package python

import (
	"sync"
	"sync/atomic"
)

// Go values that Python objects refer to: C holds a number, never a Go pointer.
// (runtime/cgo has the same, but cannot be linked without cgo.)
var (
	handles    sync.Map // uintptr to any
	lastHandle atomic.Uintptr
)

// newHandle returns a number, not 0, for v, until freeHandle.
func newHandle(v any) uintptr {
	h := lastHandle.Add(1)
	handles.Store(h, v)
	return h
}

// handleValue returns what newHandle was given, nil after freeHandle.
func handleValue(h uintptr) any {
	v, _ := handles.Load(h)
	return v
}

// freeHandle forgets the value.
func freeHandle(h uintptr) { handles.Delete(h) }
