package memmgr

import (
	"math/bits"

	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// Size classes, in units of tlsf.Unit (256 bytes). Up to 2 KiB every unit is a
// class; up to 32 KiB there are 8 classes an octave, so that at most 12.5 % of a
// block is not asked for; up to 2 MiB there are 64 an octave (1.6 %), because
// large blocks are where waste shows. A block of a class is exactly that large.
const (
	unit          = tlsf.Unit
	denseUnits    = 8                   // up to here each unit is a class
	coarseUnits   = 128                 // 32 KiB: 8 classes an octave
	maxClassUnits = 8192                // 2 MiB
	coarseClasses = denseUnits + 4*8    // below 32 KiB
	numClasses    = coarseClasses + 384 // 6 octaves of 64
	noClass       = numClasses          // larger, or aligned: not cached
	ownSegment    = numClasses + 1      // has a segment of its own
)

// classOf returns the class of the smallest blocks that hold so many units.
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

// coarseClass is classOf up to coarseUnits, in two cache lines.
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

// classUnits is the inverse: units of a block of each class.
var classUnits = func() (table [numClasses]uint32) {
	for units := uintptr(1); units <= maxClassUnits; units++ {
		table[classOf(units)] = uint32(units)
	}
	return table
}()

// classBytes is the size of a block of each class; classDelta what it adds to a
// shard's unpublished change.
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

// classBatch is how many blocks are cut out of a segment at a time.
func classBatch(k int) int {
	return int(min(batchBlocks, max(1, batchBytes/(classUnits[k]*unit))))
}
