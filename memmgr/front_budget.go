package memmgr

import "sync/atomic"

// cacheBudget bounds the bytes of the free blocks that a pool caches by class: in the
// bins of all shards, in the depot, and on the way between the two. A part takes the
// bytes of a block before it caches the block, and passes them on with it. Therefore
// the bound holds at all times, except for the one block that a free puts into a bin
// before it looks.
//
// Lock: none; the fields are atomic.
type cacheBudget struct {
	left  atomic.Int64 // bytes not taken; negative after the bound fell
	bound atomic.Int64

	fixed   int64         // the bound by WithCache, or defaultCache
	divided atomic.Int64  // bytes of segments that are divided
	inUse   *atomic.Int64 // bytes that users hold, as far as they are published
}

// defaultCache is the value of fixed for the bound that follows the state of the pool.
const defaultCache = -1

// take grants least bytes and up to more on top, or nothing.
func (b *cacheBudget) take(least, more int64) int64 {
	for {
		left := b.left.Load()
		if left < least || least <= 0 {
			return 0
		}
		grant := min(left, least+max(more, 0))
		if b.left.CompareAndSwap(left, left-grant) {
			return grant
		}
	}
}

// takeShare grants so many bytes and a share of what is left, if the bound or the state
// of the pool allows it. The share is small, so that all processors find one.
func (b *cacheBudget) takeShare(bytes int64) int64 {
	share := func() int64 { return min(b.left.Load()/8, peakStep) }
	granted := b.take(bytes, share())
	if granted == 0 && b.fixed == defaultCache {
		b.raise()
		granted = b.take(bytes, share())
	}
	return granted
}

// give returns bytes that were taken.
func (b *cacheBudget) give(bytes int64) {
	if bytes != 0 {
		b.left.Add(bytes)
	}
}

// wanted returns the bound by the options or, without one, by the state of the pool.
func (b *cacheBudget) wanted() int64 {
	if b.fixed != defaultCache {
		return b.fixed
	}
	all := b.divided.Load()
	free := all - b.inUse.Load()
	return max(leastCache, all/leastCachePart, free-all/sharedPart)
}

// follow records the bytes of the segments that are divided.
func (b *cacheBudget) follow(bytes int64) { b.divided.Store(bytes) }

// raise raises the bound if the state of the pool allows it.
func (b *cacheBudget) raise() {
	for wanted := b.wanted(); ; {
		bound := b.bound.Load()
		if wanted <= bound {
			return
		}
		if b.bound.CompareAndSwap(bound, wanted) {
			b.give(wanted - bound)
			return
		}
	}
}

// set makes the bound what it should be. It reports whether more than that is cached.
func (b *cacheBudget) set() (exceeded bool) {
	wanted := b.wanted()
	b.give(wanted - b.bound.Swap(wanted))
	return b.left.Load() < 0
}
