package front

import "sync/atomic"

// Budget bounds the bytes of the free blocks that a pool caches by class: in the
// bins of all shards, in the depot, and on the way between the two. The bytes of a block are taken from the
// budget before the block is cached, and move with it. Therefore the bound holds at all times, except
// for the one block that a free puts into a bin before it checks the limit, and for blocks that were cached
// before the bound fell.
//
// Lock: the free bytes are atomic; the lock of the pool guards the bound.
type Budget struct {
	free  atomic.Int64 // bytes not taken; negative after the bound fell
	bound int64
	fixed bool // the bound is that of WithCache
}

// DefaultCache stands for the bound that is proportional to the memory of the pool.
const DefaultCache = -1

// init sets the bound to that of WithCache, or to the default one of an empty pool.
func (b *Budget) init(bytes int64) {
	b.Resize(0)
	if bytes != DefaultCache {
		b.fixed, b.bound = true, bytes
		b.free.Store(bytes)
	}
}

// Resize makes the default bound proportional to the bytes of segments. The lock of the pool is held.
func (b *Budget) Resize(segments int64) {
	if b.fixed {
		return
	}
	if bound := max(leastCache, segments-segments/sharedPart); bound != b.bound {
		b.Give(bound - b.bound)
		b.bound = bound
	}
}

// Take grants at least least bytes and up to more in addition, or nothing.
func (b *Budget) Take(least, more int64) int64 {
	for {
		free := b.free.Load()
		if free < least || least <= 0 {
			return 0
		}
		grant := min(free, least+max(more, 0))
		if b.free.CompareAndSwap(free, free-grant) {
			return grant
		}
	}
}

// Left returns the bytes that are not taken. They are negative after the bound fell.
func (b *Budget) Left() int64 { return b.free.Load() }

// Taken returns the bytes that are taken, at least those of all cached blocks. The lock of the pool is held.
func (b *Budget) Taken() int64 { return b.bound - b.free.Load() }

// Give returns bytes that were taken.
func (b *Budget) Give(bytes int64) {
	if bytes != 0 {
		b.free.Add(bytes)
	}
}
