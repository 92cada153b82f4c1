// Package shared lets packages below memmgr have resources that the whole process shares,
// as those of memmgr.Default: pools under the limit of memmgr.SetDefaultLimit, which
// memmgr.CloseDefaults closes.
package shared

import (
	"io"
	"sync"
)

// Key says which of them it is.
type Key struct {
	Place   any // a *syclobj.Place
	Variant any // what tells memory of one place from other such memory; nil: that of memmgr.Default
}

// Resource is memmgr's: it gives the resource of a key, a pool with a name over the
// memmgr.Resource that upstream makes. Upstream is called where there is none yet; what it
// made is closed with the pool, or at once where somebody else was quicker.
var Resource func(key Key, name string, upstream func() (io.Closer, error)) (any, error)

// ending is set once the process is about to end through C's exit.
var ending struct {
	mu   sync.RWMutex
	over bool
}

// End is memmgr.StopBackground's: from now on, and when it returns, nobody is inside
// UnlessEnding.
func End() {
	ending.mu.Lock()
	ending.over = true
	ending.mu.Unlock()
}

// UnlessEnding calls f, which gives memory back to a runtime of others, unless the process
// is about to end, under whose destructors that must not be; it reports whether it did.
func UnlessEnding(f func() bool) bool {
	ending.mu.RLock()
	defer ending.mu.RUnlock()
	return !ending.over && f()
}
