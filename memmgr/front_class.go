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
// for the one block that a free puts into a bin before it checks the limit, and for blocks that were cached
// before the bound fell.
//
// Lock: the free bytes are atomic; Pool.mu guards the bound.
type cacheBudget struct {
	free  atomic.Int64 // bytes not taken; negative after the bound fell
	bound int64
	fixed bool // the bound is that of WithCache
}

// defaultCache stands for the bound that is proportional to the memory of the pool.
const defaultCache = -1

// init sets the bound to that of WithCache, or to the default one of an empty pool.
func (b *cacheBudget) init(bytes int64) {
	b.resize(0)
	if bytes != defaultCache {
		b.fixed, b.bound = true, bytes
		b.free.Store(bytes)
	}
}

// resize makes the default bound proportional to the bytes of segments. Pool.mu is held.
func (b *cacheBudget) resize(segments int64) {
	if b.fixed {
		return
	}
	bound := max(leastCache, segments-segments/sharedPart)
	b.give(bound - b.bound)
	b.bound = bound
}

// take grants at least least bytes and up to more in addition, or nothing.
func (b *cacheBudget) take(least, more int64) int64 {
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

// taken returns the bytes that are taken, at least those of all cached blocks. Pool.mu is held.
func (b *cacheBudget) taken() int64 { return b.bound - b.free.Load() }

// give returns bytes that were taken.
func (b *cacheBudget) give(bytes int64) {
	if bytes != 0 {
		b.free.Add(bytes)
	}
}
