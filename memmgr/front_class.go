package memmgr

import (
	"math/bits"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// Size classes, in units of tlsf.Unit (256 bytes). Up to 2 KiB each number of units is a class. Up to
// 32 KiB there are 8 classes for each power of two, so that at most 12.5 % of a block is unused; up to
// 2 MiB there are 64 (1.6 %), because waste matters most in large blocks. All blocks of a class have
// the size of the class.
const (
	unit          = tlsf.Unit
	denseUnits    = 8                   // up to here each unit is a class
	coarseUnits   = 128                 // 32 KiB: 8 classes an octave
	maxClassUnits = 8192                // 2 MiB
	coarseClasses = denseUnits + 4*8    // below 32 KiB
	numClasses    = coarseClasses + 384 // 6 octaves of 64
	noClass       = numClasses          // for larger or specially aligned blocks, which are not cached
)

// classOf returns the class of the smallest blocks that hold that many units.
func classOf(units uintptr) int {
	if units <= coarseUnits {
		return int(coarseClass[units])
	}
	return fineClass(units)
}

// fineClass is classOf above coarseUnits.
func fineClass(units uintptr) int {
	l := uint(bits.Len64(uint64(units - 1))) // units in (2^(l-1), 2^l]
	above := units - 1 - uintptr(1)<<((l-1)&63)
	return coarseClasses + int(l-8)*64 + int(above>>((l-7)&63))
}

// coarseClass is the table of classOf up to coarseUnits. It needs two or three cache lines.
var coarseClass = func() (table [coarseUnits + 1]uint8) {
	for units := uint(1); units <= coarseUnits; units++ {
		if units <= denseUnits {
			table[units] = uint8(units - 1)
			continue
		}
		l := uint(bits.Len(units - 1))
		above := units - 1 - 1<<(l-1)
		table[units] = uint8(denseUnits + (l-4)*8 + above>>(l-4))
	}
	return table
}()

// classUnits is the inverse of classOf: the units of a block of each class.
var classUnits = func() (table [numClasses]uint32) {
	for units := uintptr(1); units <= maxClassUnits; units++ {
		table[classOf(units)] = uint32(units)
	}
	return table
}()

// classBytes is the size of a block of each class. classDelta is the number that such a
// block adds to shard.delta.
var classBytes, classDelta = func() (bytes, delta [numClasses]int64) {
	for k := range bytes {
		bytes[k] = int64(classUnits[k]) * unit
		delta[k] = bytes[k]<<deltaShift + 1
	}
	return bytes, delta
}()

// magazineSize is how many blocks of a class make a magazine, the unit in which blocks
// move between a shard and the depot. A bin holds up to two magazines.
var magazineSize = func() (table [numClasses]uint32) {
	for k := range table {
		table[k] = min(mostMagazine, max(leastMagazine, magazineBytes/(classUnits[k]*unit)))
	}
	return table
}()

// cacheBudget bounds the bytes of the free blocks that a pool caches by class: in the
// bins of all shards, in the depot, and on the way between the two. The bytes of a block are taken from the
// budget before the block is cached, and move with it. Therefore the bound holds at all times, except
// for the one block that a free puts into a bin before it checks the limit.
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

// take grants at least least bytes and up to more in addition, or nothing.
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

// takeShare grants these bytes and a share of the rest, if the bound or the state of the pool allows it. The
// share is small, so that each processor gets one.
func (b *cacheBudget) takeShare(bytes int64) int64 {
	share := func() int64 { return min(b.left.Load()/8, peakStep) }
	granted := b.take(bytes, share())
	if granted == 0 && b.fixed == defaultCache {
		b.raise()
		granted = b.take(bytes, share())
	}
	return granted
}

// taken returns the bytes that are taken, at least those of all cached blocks.
func (b *cacheBudget) taken() int64 { return b.bound.Load() - b.left.Load() }

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

// set updates the bound. It reports whether more than that is cached.
func (b *cacheBudget) set() (exceeded bool) {
	wanted := b.wanted()
	b.give(wanted - b.bound.Swap(wanted))
	return b.left.Load() < 0
}
