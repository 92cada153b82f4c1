package tlsf

import (
	"fmt"
	"math/bits"
)

// Unit is the granule in bytes: every block starts at a multiple of it, relative
// to an address that is one too, and is a multiple of it long.
const Unit = 256

const (
	subBits  = 5
	subCount = 1 << subBits
	levels   = 32 - subBits + 1
	none     = int32(-1)

	chunkBits = 12
	chunkSize = 1 << chunkBits
)

// record describes one block, free or in use. 32 bytes.
type record struct {
	offset uint32 // units from the segment's base
	size   uint32 // units
	prev   int32  // neighbour at the lower address
	next   int32  // neighbour at the higher address
	// Free: links of the bin's list. In use: a is the user's word.
	a, b    int32
	segment int32
	free    bool
}

type segment struct {
	base  uintptr
	units uint32
	first int32 // none: the number is free
	used  int32 // blocks in use
	next  int32 // next free number
}

// Heap is a set of segments divided into blocks. The zero Heap is ready.
type Heap struct {
	chunks   []*[chunkSize]record
	records  int32 // records ever used
	spare    int32 // free record + 1, linked by a
	segments []segment
	spareSeg int32 // free segment number + 1

	top   uint32 // bit per level with a non-empty bin
	sub   [levels]uint32
	heads [levels][subCount]int32 // record + 1

	counts Counts
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

// bin returns the list that a free block of so many units belongs to.
func bin(units uint32) (level, index int) {
	if units < subCount {
		return 0, int(units)
	}
	l := bits.Len32(units) - 1
	return l - subBits + 1, int(units>>(l-subBits)) - subCount
}

// binAbove returns the first list all of whose blocks are large enough; ok is
// false when no list can be.
func binAbove(units uint32) (level, index int, ok bool) {
	if units >= subCount {
		round := uint32(1)<<(bits.Len32(units)-1-subBits) - 1
		if units > ^uint32(0)-round {
			return 0, 0, false
		}
		units += round
	}
	level, index = bin(units)
	return level, index, true
}

func (h *Heap) insert(i int32) {
	r := h.at(i)
	l, s := bin(r.size)
	head := h.heads[l][s]
	r.free, r.a, r.b = true, none, head-1
	if head != 0 {
		h.at(head - 1).a = i
	}
	h.heads[l][s] = i + 1
	h.top |= 1 << l
	h.sub[l] |= 1 << s
	h.counts.FreeBlocks++
	h.counts.FreeUnits += uint64(r.size)
}

func (h *Heap) remove(i int32) {
	r := h.at(i)
	l, s := bin(r.size)
	if r.a == none {
		h.heads[l][s] = r.b + 1
		if r.b == none {
			h.sub[l] &^= 1 << s
			if h.sub[l] == 0 {
				h.top &^= 1 << l
			}
		}
	} else {
		h.at(r.a).b = r.b
	}
	if r.b != none {
		h.at(r.b).a = r.a
	}
	r.free = false
	h.counts.FreeBlocks--
	h.counts.FreeUnits -= uint64(r.size)
}

// find returns a free block of at least so many units, or none.
func (h *Heap) find(units uint32) int32 {
	l, s, ok := binAbove(units)
	if !ok {
		return none
	}
	if m := h.sub[l] & (^uint32(0) << s); m != 0 {
		return h.heads[l][bits.TrailingZeros32(m)] - 1
	}
	if m := h.top & uint32(uint64(^uint32(0))<<(l+1)); m != 0 {
		l = bits.TrailingZeros32(m)
		return h.heads[l][bits.TrailingZeros32(h.sub[l])] - 1
	}
	return none
}

// searchSame looks through the list that a block of exactly this size would be
// in, whose blocks may be a little too small. For when find found nothing.
func (h *Heap) searchSame(units uint32, limit int) int32 {
	l, s := bin(units)
	for i := h.heads[l][s] - 1; i != none && limit > 0; limit-- {
		r := h.at(i)
		if r.size >= units {
			return i
		}
		i = r.b
	}
	return none
}

// AddSegment takes over address space as one free block and returns its number.
// base must be a multiple of Unit.
func (h *Heap) AddSegment(base uintptr, units uint32) int32 {
	n := h.addSegment(base, units)
	h.counts.EmptySegments++
	h.counts.EmptyUnits += uint64(units)
	h.insert(h.segments[n].first)
	return n
}

// AddUsed takes over address space as one block in use, of a segment of its
// own, and returns the block.
func (h *Heap) AddUsed(base uintptr, units uint32) int32 {
	n := h.addSegment(base, units)
	h.segments[n].used = 1
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
		if i = h.searchSame(units, 32); i == none {
			return none
		}
	}
	h.take(i)
	h.cut(i, units)
	return i
}

func (h *Heap) allocAligned(units, align uint32) int32 {
	if units > ^uint32(0)-align {
		return none
	}
	i := h.find(units + align - 1)
	if i == none {
		if i = h.findLying(units, align); i == none {
			return none
		}
	}
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

// findLying looks for a block that is too small for any alignment, and happens
// to lie well for this one: at a few of each list.
func (h *Heap) findLying(units, align uint32) int32 {
	first, _ := bin(units)
	last, _ := bin(units + align - 1)
	for l := first; l <= last; l++ {
		for m := h.sub[l]; m != 0; m &= m - 1 {
			i := h.heads[l][bits.TrailingZeros32(m)] - 1
			for tries := 8; i != none && tries > 0; tries-- {
				r := h.at(i)
				if uint64(r.size) >= uint64(units)+uint64(h.skip(r, align)) {
					return i
				}
				i = r.b
			}
		}
	}
	return none
}

// skip returns how many units lie before the first aligned one.
func (h *Heap) skip(r *record, align uint32) uint32 {
	at := uint64(h.segments[r.segment].base/Unit) + uint64(r.offset)
	return uint32(-at & uint64(align-1))
}

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
		prev: i, next: r.next, segment: r.segment,
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

// absorb joins a block with its upper neighbour, neither in a list.
func (h *Heap) absorb(i, upper int32) {
	r, u := h.at(i), h.at(upper)
	r.size += u.size
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

// RemoveUsed takes out a segment that is one block in use.
func (h *Heap) RemoveUsed(block int32) (base uintptr, units uint32) {
	r := h.at(block)
	n := r.segment
	if r.free || h.segments[n].units != r.size {
		panic("tlsf: block is not a segment of its own")
	}
	h.counts.UsedBlocks--
	h.counts.UsedUnits -= uint64(r.size)
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

// Largest returns the bytes of the largest free block, to the size of its bin.
func (h *Heap) Largest() uintptr {
	if h.top == 0 {
		return 0
	}
	l := 31 - bits.LeadingZeros32(h.top)
	s := 31 - bits.LeadingZeros32(h.sub[l])
	largest := uint32(0)
	limit := 64
	for i := h.heads[l][s] - 1; i != none && limit > 0; i = h.at(i).b {
		largest = max(largest, h.at(i).size)
		limit--
	}
	return uintptr(largest) * Unit
}

// EmptySegmentNumbers appends the numbers of the empty segments.
func (h *Heap) EmptySegmentNumbers(to []int32) []int32 {
	for n := range h.segments {
		if h.segments[n].first != none && h.segments[n].used == 0 && h.segments[n].units != 0 {
			to = append(to, int32(n))
		}
	}
	return to
}

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

// first returns the lowest block; it never moves, because merging keeps the
// lower record.
func (h *Heap) first(n int32) int32 { return h.segments[n].first }
