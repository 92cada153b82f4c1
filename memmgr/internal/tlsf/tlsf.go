package tlsf

import (
	"fmt"
)

// Unit is the granule in bytes: every block starts at a multiple of it, relative
// to an address that is one too, and is a multiple of it long.
const Unit = 256

const (
	none = int32(-1)

	chunkBits = 12
	chunkSize = 1 << chunkBits
)

// record describes one block, free or in use. 32 bytes.
type record struct {
	offset uint32 // units from the segment's base
	size   uint32 // units
	prev   int32  // neighbour at the lower address
	next   int32  // neighbour at the higher address
	// Free: the bin's links, before and after in a list, left and right in a
	// tree. In use: a is the user's word.
	a, b    int32
	segment int32
	tick    uint16 // free: the low bits of Heap.Tick at which it became so
	free    bool
	purged  bool // free: its whole pages hold nothing
}

type segment struct {
	base  uintptr
	units uint32
	first int32 // none: the number is free
	used  int32 // blocks in use
	next  int32 // next free number

	closed bool // its free blocks are in no bin
	whole  bool // it is one block; while that is free, it is in Heap.whole
}

// Heap is a set of segments divided into blocks. The zero Heap is ready.
type Heap struct {
	chunks   []*[chunkSize]record
	records  int32 // records ever used
	spare    int32 // free record + 1, linked by a
	segments []segment
	spareSeg int32 // free segment number + 1

	bins   bins // free blocks of segments that are divided
	whole  bins // free segments that AddWhole added
	counts Counts
	wanted uint32 // of TakeClosed
	found  int32  // a free block of a closed segment that has so many units, + 1
	most   uint32 // at least as large as any free block of closed segments

	// Tick is the user's clock: freed blocks carry the low bits of it, for Stale.
	Tick uint32
}

// Counts is what a heap holds.
type Counts struct {
	Segments      int
	EmptySegments int    // segments that are one free block
	UsedBlocks    int    // in use
	FreeBlocks    int    // free, whole segments included
	UsedUnits     uint64 // in use
	FreeUnits     uint64
	EmptyUnits    uint64 // in empty segments
	DirtyUnits    uint64 // free and not purged
}

// Counts returns the counts.
func (h *Heap) Counts() Counts { return h.counts }

// Bytes returns the memory that the bookkeeping takes.
func (h *Heap) Bytes() uint64 { return uint64(len(h.chunks)) * chunkSize * 32 }

func (h *Heap) at(i int32) *record { return &h.chunks[i>>chunkBits][i&(chunkSize-1)] }

func (h *Heap) newRecord() int32 {
	if h.spare != 0 {
		i := h.spare - 1
		h.spare = h.at(i).a
		return i
	}
	i := h.records
	if int(i>>chunkBits) == len(h.chunks) {
		h.chunks = append(h.chunks, new([chunkSize]record))
	}
	h.records++
	return i
}

func (h *Heap) dropRecord(i int32) {
	*h.at(i) = record{a: h.spare, segment: none}
	h.spare = i + 1
}

// AddSegment takes over address space as one free block and returns its number.
// base must be a multiple of Unit. purged tells that no page of it holds anything.
func (h *Heap) AddSegment(base uintptr, units uint32, purged bool) int32 {
	n := h.addSegment(base, units)
	h.counts.EmptySegments++
	h.counts.EmptyUnits += uint64(units)
	first := h.segments[n].first
	h.at(first).purged = purged
	h.insert(first)
	return n
}

// AddWhole takes over address space as one block in use and returns the block. Alloc
// does not divide the segment; AllocWhole finds it again when the block is free.
func (h *Heap) AddWhole(base uintptr, units uint32) int32 {
	n := h.addSegment(base, units)
	h.segments[n].used, h.segments[n].whole = 1, true
	h.counts.UsedBlocks++
	h.counts.UsedUnits += uint64(units)
	return h.segments[n].first
}

func (h *Heap) addSegment(base uintptr, units uint32) int32 {
	if base%Unit != 0 || units == 0 {
		panic(fmt.Sprintf("tlsf: a segment of %d units at %#x", units, base))
	}
	n := h.spareSeg - 1
	if n >= 0 {
		h.spareSeg = h.segments[n].next
	} else {
		n = int32(len(h.segments))
		h.segments = append(h.segments, segment{})
	}
	i := h.newRecord()
	*h.at(i) = record{size: units, prev: none, next: none, segment: n}
	h.segments[n] = segment{base: base, units: units, first: i}
	h.counts.Segments++
	return n
}

// Alloc takes so many units, aligned to a power of two in units relative to
// address 0, and returns the block, or a negative number when no free block is
// large enough.
func (h *Heap) Alloc(units, align uint32) int32 {
	if units == 0 {
		units = 1
	}
	if align > 1 {
		return h.allocAligned(units, align)
	}
	i := h.find(units)
	if i == none {
		return none
	}
	h.take(i)
	h.cut(i, units)
	return i
}

func (h *Heap) allocAligned(units, align uint32) int32 {
	i := none
	if units <= ^uint32(0)-align {
		i = h.find(units + align - 1)
	}
	if i == none {
		return h.AllocLying(units, align, 64)
	}
	return h.takeAligned(i, units, align)
}

// AllocLying takes an aligned block out of a free one that is too small for any
// alignment and happens to lie well for this one, looking at so many blocks at
// most, or at all that could serve when limit is negative.
func (h *Heap) AllocLying(units, align uint32, limit int) int32 {
	for i := h.find(units); i != none && limit != 0; i = h.bins.after(h, i) {
		limit--
		if r := h.at(i); uint64(r.size) >= uint64(units)+uint64(h.skip(r, align)) {
			return h.takeAligned(i, units, align)
		}
	}
	return none
}

// takeAligned takes the first aligned place of a free block that has one.
func (h *Heap) takeAligned(i int32, units, align uint32) int32 {
	skip := h.skip(h.at(i), align)
	h.take(i)
	if skip > 0 {
		front := i
		i = h.split(front, skip)
		h.release(front)
	}
	h.cut(i, units)
	return i
}

// skip returns how many units lie before the first aligned one.
func (h *Heap) skip(r *record, align uint32) uint32 {
	at := uint64(h.segments[r.segment].base/Unit) + uint64(r.offset)
	return uint32(-at & uint64(align-1))
}

// AllocWhole takes the smallest free segment of AddWhole that has between least and
// most units and is aligned to a power of two in units relative to address 0. It
// returns the block, or a negative number when none of the first tries segments fits.
func (h *Heap) AllocWhole(least, most, align uint32, tries int) int32 {
	for i := h.whole.from(h, &record{size: least}); i != none && tries > 0; i = h.whole.after(h, i) {
		r := h.at(i)
		if r.size > most {
			return none
		}
		if h.skip(r, align) == 0 {
			h.take(i)
			return i
		}
		tries--
	}
	return none
}

// Divide makes a segment of AddWhole that is in use one that Alloc divides when it is
// free.
func (h *Heap) Divide(n int32) { h.segments[n].whole = false }

// take makes a free block used.
func (h *Heap) take(i int32) {
	r := h.at(i)
	seg := &h.segments[r.segment]
	if seg.used == 0 {
		h.counts.EmptySegments--
		h.counts.EmptyUnits -= uint64(seg.units)
	}
	seg.used++
	h.remove(i)
	h.counts.UsedBlocks++
	h.counts.UsedUnits += uint64(r.size)
}

// split divides a used block and returns the upper part, used too.
func (h *Heap) split(i int32, units uint32) int32 {
	j := h.newRecord()
	r := h.at(i)
	*h.at(j) = record{
		offset: r.offset + units, size: r.size - units,
		prev: i, next: r.next, segment: r.segment, tick: r.tick, purged: r.purged,
	}
	if r.next != none {
		h.at(r.next).prev = j
	}
	r.next, r.size = j, units
	h.segments[r.segment].used++
	h.counts.UsedBlocks++
	return j
}

// cut gives back what a used block has over so many units.
func (h *Heap) cut(i int32, units uint32) {
	if h.at(i).size > units {
		h.release(h.split(i, units))
	}
}

// release makes a used block free and merges it with its neighbours.
func (h *Heap) release(i int32) int32 {
	r := h.at(i)
	seg := &h.segments[r.segment]
	seg.used--
	h.counts.UsedBlocks--
	h.counts.UsedUnits -= uint64(r.size)
	if r.next != none && h.at(r.next).free {
		n := r.next
		h.remove(n)
		h.absorb(i, n)
	}
	if r.prev != none && h.at(r.prev).free {
		p := r.prev
		h.remove(p)
		h.absorb(p, i)
		i = p
	}
	if seg.used == 0 {
		h.counts.EmptySegments++
		h.counts.EmptyUnits += uint64(seg.units)
	}
	h.insert(i)
	return i
}

// absorb joins a block with its upper neighbour, neither in a bin. The younger
// one's tick counts.
func (h *Heap) absorb(i, upper int32) {
	r, u := h.at(i), h.at(upper)
	r.size += u.size
	r.purged = r.purged && u.purged
	if int16(u.tick-r.tick) > 0 {
		r.tick = u.tick
	}
	r.next = u.next
	if u.next != none {
		h.at(u.next).prev = i
	}
	h.dropRecord(upper)
}

// Free gives a block back, and reports whether its segment is one free block
// now.
func (h *Heap) Free(i int32) (empty bool) {
	r := h.at(i)
	if r.free || r.segment == none {
		panic("tlsf: block is free already")
	}
	seg := r.segment
	r.purged, r.tick = false, uint16(h.Tick)
	h.release(i)
	return h.segments[seg].used == 0
}

// RemoveSegment takes an empty segment out and returns what was added.
func (h *Heap) RemoveSegment(n int32) (base uintptr, units uint32) {
	seg := &h.segments[n]
	if seg.used != 0 {
		panic("tlsf: segment is in use")
	}
	h.remove(seg.first)
	h.counts.EmptySegments--
	h.counts.EmptyUnits -= uint64(seg.units)
	return h.forget(n)
}

func (h *Heap) forget(n int32) (base uintptr, units uint32) {
	seg := &h.segments[n]
	base, units = seg.base, seg.units
	h.dropRecord(seg.first)
	*seg = segment{first: none, next: h.spareSeg}
	h.spareSeg = n + 1
	h.counts.Segments--
	return base, units
}

// Address returns where a block starts.
func (h *Heap) Address(i int32) uintptr {
	r := h.at(i)
	return h.segments[r.segment].base + uintptr(r.offset)*Unit
}

// Size returns the bytes of a block.
func (h *Heap) Size(i int32) uintptr { return uintptr(h.at(i).size) * Unit }

// Segment returns the number of the block's segment.
func (h *Heap) Segment(i int32) int32 { return h.at(i).segment }

// SetUser sets the user's word of a block in use.
func (h *Heap) SetUser(i int32, word uint32) { h.at(i).a = int32(word) }

// User returns it.
func (h *Heap) User(i int32) uint32 { return uint32(h.at(i).a) }

// SegmentBase returns base and size in bytes of a segment.
func (h *Heap) SegmentBase(n int32) (base, size uintptr) {
	return h.segments[n].base, uintptr(h.segments[n].units) * Unit
}

// Piece is a block as Walk shows it.
type Piece struct {
	Segment int32
	Offset  uintptr // bytes from the segment's base
	Size    uintptr
	Free    bool
	User    uint32 // of a block in use
}

// Walk calls segment for every segment and then block for each of its blocks by
// address.
func (h *Heap) Walk(segment func(n int32, base, size uintptr), block func(Piece)) {
	for n := range h.segments {
		seg := &h.segments[n]
		if seg.first == none || seg.units == 0 {
			continue
		}
		segment(int32(n), seg.base, uintptr(seg.units)*Unit)
		for i := h.first(int32(n)); i != none; i = h.at(i).next {
			r := h.at(i)
			p := Piece{Segment: int32(n), Offset: uintptr(r.offset) * Unit, Size: uintptr(r.size) * Unit, Free: r.free}
			if !r.free {
				p.User = uint32(r.a)
			}
			block(p)
		}
	}
}

// WalkUsed calls f with the user's word of each block in use of a segment, by
// address; false when there are no segments of that number or above.
func (h *Heap) WalkUsed(segment int32, f func(user uint32)) bool {
	if int(segment) >= len(h.segments) {
		return false
	}
	if h.segments[segment].units == 0 {
		return true
	}
	for i := h.first(segment); i != none; i = h.at(i).next {
		if r := h.at(i); !r.free {
			f(uint32(r.a))
		}
	}
	return true
}

// first returns the lowest block; it never moves, because merging keeps the
// lower record.
func (h *Heap) first(n int32) int32 { return h.segments[n].first }
