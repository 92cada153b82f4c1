package engine

import "sync/atomic"

// Budget bounds what all requests together take of a resource. Its methods may be called from any goroutine.
type Budget struct {
	most int64
	used atomic.Int64
}

// NewBudget returns a budget of some units.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Take charges n units, and reports whether the bound allows it. Give ends the charge.
func (b *Budget) Take(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.most-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Give ends the charge of n units.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Used returns the units that are taken.
func (b *Budget) Used() int64 { return b.used.Load() }
