package memmgr

import (
	"slices"
	"sync"
	"sync/atomic"
)

// fronts are the caches that others keep in front of the pools.
var fronts struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*func()]
}

// AddCache registers a function that gives back to the pools what a cache in front of
// them keeps of their memory: blocks that nobody uses any more and that are in use to
// their pool. It is called when a pool is asked for its counters or its state, is
// trimmed or closed, and when a request finds no memory: from any goroutine, several at
// a time, while no pool is locked. It must be quick and must not allocate from a pool.
// remove takes it out again.
func AddCache(give func()) (remove func()) {
	entry := &give
	change := func(f func([]*func()) []*func()) {
		fronts.mu.Lock()
		defer fronts.mu.Unlock()
		var all []*func()
		if old := fronts.all.Load(); old != nil {
			all = slices.Clone(*old)
		}
		all = f(all)
		fronts.all.Store(&all)
	}
	change(func(all []*func()) []*func() { return append(all, entry) })
	return sync.OnceFunc(func() {
		change(func(all []*func()) []*func() {
			return slices.DeleteFunc(all, func(f *func()) bool { return f == entry })
		})
	})
}

// emptyFronts has the caches in front of the pools give everything back, by lists that
// are still to be drained. No lock is held.
func emptyFronts() {
	if all := fronts.all.Load(); all != nil {
		for _, give := range *all {
			(*give)()
		}
	}
}
