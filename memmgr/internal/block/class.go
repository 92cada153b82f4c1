package block

import (
	"math/bits"

	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// Size classes, in units of 256 bytes. Up to 2 KiB each number of units is a class, so that up to 255 bytes are
// unused, and more where the least block has two units. Up to 32 KiB there are 8 classes for each power of two,
// so that a block exceeds the request by at most 12.5 %; up to 2 MiB there are 64
// (1.6 %), because waste matters most in large blocks. All blocks of a class have the size of the class.
const (
	Unit          = tlsf.Unit
	CoarseUnits   = 128                 // 32 KiB: 8 classes an octave
	MaxClassUnits = 8192                // 2 MiB
	CoarseClasses = denseUnits + 4*8    // below 32 KiB
	NumClasses    = CoarseClasses + 384 // 6 octaves of 64
	NoClass       = NumClasses          // for larger or specially aligned blocks, which are not cached

	denseUnits = 8 // up to here each unit is a class
)

// A magazine has magazineBytes, but at least leastMagazine and at most mostMagazine blocks.
// Larger magazines mean fewer visits to the depot and more cached bytes. Measure with membench: larson,
// handover, fragmentation.
const (
	magazineBytes = 16 << 20
	leastMagazine = 4
	mostMagazine  = 128
)

// ClassFor returns the class of the smallest blocks that hold that many units.
func ClassFor(units uintptr) int {
	if units <= CoarseUnits {
		return int(coarseClass[units])
	}
	return fineClass(units)
}

// fineClass is ClassFor above CoarseUnits.
func fineClass(units uintptr) int {
	l := uint(bits.Len64(uint64(units - 1))) // units in (2^(l-1), 2^l]
	above := units - 1 - uintptr(1)<<((l-1)&63)
	return CoarseClasses + int(l-8)*64 + int(above>>((l-7)&63))
}

// coarseClass is the table of ClassFor up to CoarseUnits. It needs two or three cache lines.
var coarseClass = func() (table [CoarseUnits + 1]uint8) {
	for units := uint(1); units <= CoarseUnits; units++ {
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

// ClassUnits is the inverse of ClassFor: the units of a block of each class.
var ClassUnits = func() (table [NumClasses]uint32) {
	for units := uintptr(1); units <= MaxClassUnits; units++ {
		table[ClassFor(units)] = uint32(units)
	}
	return table
}()

// ClassBytes is the size of a block of each class.
var ClassBytes = func() (table [NumClasses]int64) {
	for k := range table {
		table[k] = int64(ClassUnits[k]) * Unit
	}
	return table
}()

// MagazineSize is how many blocks of a class make a magazine, the unit in which blocks
// move between a shard and the depot. A bin holds up to two magazines.
var MagazineSize = func() (table [NumClasses]uint32) {
	for k := range table {
		table[k] = min(mostMagazine, max(leastMagazine, magazineBytes/(ClassUnits[k]*Unit)))
	}
	return table
}()
