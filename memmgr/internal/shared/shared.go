// Package shared lets the packages in folders of memmgr add pools to the default ones: they
// count against memmgr.SetDefaultLimit and are closed by memmgr.CloseDefaults.
package shared

import (
	"io"
	"sync"
)

// Key identifies a default pool.
type Key struct {
	Place   any // a *syclobj.Place
	Variant any // distinguishes the pools of one place; nil for that of memmgr.Default
}

// Pool is set by memmgr: it returns the *memmgr.Pool of a key. If there is none, it makes
// one with a name over the memmgr.Resource that upstream returns, which is closed with the
// pool, or at once if another goroutine was faster.
var Pool func(key Key, name string, upstream func() (io.Closer, error)) (any, error)

// ending is set once the process is about to end through C's exit.
var ending struct {
	mu   sync.RWMutex
	over bool
}

// End is called by diag.StopBackground. When it returns, no call is inside UnlessEnding, and
// later calls do nothing.
func End() {
	ending.mu.Lock()
	ending.over = true
	ending.mu.Unlock()
}

// UnlessEnding calls f, which gives memory back to another runtime, unless the process is
// about to end: the destructors that run then must not be disturbed. It reports whether f
// ran and returned true.
func UnlessEnding(f func() bool) bool {
	ending.mu.RLock()
	defer ending.mu.RUnlock()
	return !ending.over && f()
}
