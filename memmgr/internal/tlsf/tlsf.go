package tlsf

import (
	"fmt"
	"math"
	"math/bits"
)

// Unit is the granule in bytes. The address and the size of every block are multiples of it.
const Unit = 256

const (
	none = int32(-1)

	chunkBits = 10
	chunkSize = 1 << chunkBits
)

// record describes one block, free or in use. 32 bytes.
type record struct {
	offset uint32 // units from the segment's base
	size   uint32 // units
	prev   int32  // neighbour at the lower address
	next   int32  // neighbour at the higher address
	// Free block: the links of its bin, previous and next in a list, left and right in a tree.
	// Block in use: a is the user's word.
	a, b    int32
	segment int32
	tick    uint16 // free block: low bits of Heap.Tick when it was freed
	free    bool
	purged  bool // free block: its whole pages have no memory
}

type segment struct {
	base  uintptr
	units uint32
	first int32 // lowest block, constant because merging keeps the lower record; none if the number is unused
	used  int32 // blocks in use
	next  int32 // next unused number + 1

	tier   uint8 // see Heap.Shared
	closed bool  // see SetClosed
}

// Heap is a set of segments divided into blocks. The zero Heap is ready.
type Heap struct {
	chunks   []*[chunkSize]record
	records  int32 // records ever used
	spare    int32 // free record + 1, linked by a
	segments []segment
	spareSeg int32 // free segment number + 1

	tiers  []*bins // of the free blocks of each tier
	closed bins    // of the free blocks of closed segments
	counts Counts

	// Shared is the size in units up to which segments serve all requests: tier 0. Segments of up to
	// Shared<<t units are in tier t and serve only requests of at least (Shared<<t)/pinPart units, so that
	// small blocks do not keep large segments in use. 0 means that all segments are in tier 0. Set it before
	// the first segment is added.
	Shared uint32

	// Tick is the caller's clock. Freed blocks record its low bits, for NextDirty.
	Tick uint32
}

// Counts are the counts of a heap.
type Counts struct {
	Segments      int
	EmptySegments int // segments without a block in use
	UsedBlocks    int
	FreeBlocks    int // including whole segments
	UsedUnits     uint64
	FreeUnits     uint64
	EmptyUnits    uint64 // in empty segments
	DirtyUnits    uint64 // free and not purged
}

// Counts returns the current counts.
func (h *Heap) Counts() Counts { return h.counts }

// Bytes returns the bytes of the heap's records.
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

// AddSegment adds address space as a segment of one free block and returns the segment's number. base
// must be a multiple of Unit. The segment serves requests of least units even if it is so large that
// its tier would not. purged means that its pages have no memory yet.
func (h *Heap) AddSegment(base uintptr, units, least uint32, purged bool) int32 {
	if base%Unit != 0 || units == 0 {
		panic(fmt.Sprintf("tlsf: invalid segment of %d units at %#x", units, base))
	}
	n := h.spareSeg - 1
	if n >= 0 {
		h.spareSeg = h.segments[n].next
	} else {
		n = int32(len(h.segments))
		h.segments = append(h.segments, segment{})
	}
	tier := 0
	if h.Shared != 0 {
		tier = min(bits.Len32((units-1)/h.Shared), h.tier(least))
	}
	for tier >= len(h.tiers) {
		h.tiers = append(h.tiers, &bins{})
	}
	first := h.newRecord()
	*h.at(first) = record{size: units, prev: none, next: none, segment: n, purged: purged}
	h.segments[n] = segment{base: base, units: units, first: first, tier: uint8(tier)}
	h.counts.Segments++
	h.counts.EmptySegments++
	h.counts.EmptyUnits += uint64(units)
	h.insert(first)
	return n
}

// pinPart is the largest ratio of a segment above Heap.Shared to a block in it.
const pinPart = 32

// tier returns the highest tier that serves a request.
func (h *Heap) tier(units uint32) int {
	return max(bits.Len32(units/max(h.Shared/pinPart, 1))-1, 0)
}

// alignTries is how many free blocks Alloc tries that fit only at their own address.
const alignTries = 64

// Alloc takes a block of at least 1 unit. Its address is a multiple of align units, a power of two. It
// returns the block, or a negative number if no free block fits that the tiers allow.
func (h *Heap) Alloc(units, align uint32) int32 {
	return h.alloc(max(units, 1), align, h.upTo(h.tier(units)), alignTries)
}

// AllocAny is Alloc for a request that would fail: it takes a block of any tier, and tries all that may fit.
func (h *Heap) AllocAny(units, align uint32) int32 {
	return h.alloc(max(units, 1), align, h.tiers, -1)
}

// AllocIn is Alloc from a segment without blocks in use.
func (h *Heap) AllocIn(n int32, units, align uint32) int32 {
	i := h.segments[n].first
	if r := h.at(i); !r.free || uint64(r.size) < uint64(units)+uint64(h.skip(r, align)) {
		return none
	}
	return h.takeAligned(i, units, align)
}

func (h *Heap) alloc(units, align uint32, tiers []*bins, tries int) int32 {
	if uint64(units) > h.counts.FreeUnits {
		return none
	}
	if align <= 1 {
		i := h.find(units, tiers)
		if i != none {
			h.take(i)
			h.cut(i, units)
		}
		return i
	}
	if units <= math.MaxUint32-align {
		if i := h.find(units+align-1, tiers); i != none {
			return h.takeAligned(i, units, align)
		}
	}
	// A free block that is not large enough for every address may fit at its own.
	for _, b := range tiers {
		for i := b.from(h, &record{size: units}); i != none && tries != 0; i = b.after(h, i) {
			tries--
			if r := h.at(i); uint64(r.size) >= uint64(units)+uint64(h.skip(r, align)) {
				return h.takeAligned(i, units, align)
			}
		}
	}
	return none
}

// takeAligned takes the first aligned part of a free block that is large enough.
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

// skip returns the number of units before the first aligned one of a block.
func (h *Heap) skip(r *record, align uint32) uint32 {
	at := uint64(h.segments[r.segment].base/Unit) + uint64(r.offset)
	return uint32(-at & uint64(align-1))
}

// take marks a free block as used.
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

// split divides a used block and returns the upper part, which is used too.
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

// cut frees the part of a used block beyond units.
func (h *Heap) cut(i int32, units uint32) {
	if h.at(i).size > units {
		h.release(h.split(i, units))
	}
}

// release makes a used block free and merges it with free neighbours.
func (h *Heap) release(i int32) {
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
}

// absorb merges a block with its upper neighbour and keeps the later tick. Neither is in a bin.
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

// Free frees a block and reports whether its segment has no block in use.
func (h *Heap) Free(i int32) (empty bool) {
	r := h.at(i)
	if r.free || r.segment == none {
		panic("tlsf: block is already free")
	}
	seg := r.segment
	r.purged, r.tick = false, uint16(h.Tick)
	h.release(i)
	return h.segments[seg].used == 0
}

// RemoveSegment removes a segment without blocks in use and returns its address and size.
func (h *Heap) RemoveSegment(n int32) (base uintptr, units uint32) {
	seg := &h.segments[n]
	if seg.used != 0 {
		panic("tlsf: segment is in use")
	}
	h.remove(seg.first)
	h.counts.EmptySegments--
	h.counts.EmptyUnits -= uint64(seg.units)
	base, units = seg.base, seg.units
	h.dropRecord(seg.first)
	*seg = segment{first: none, next: h.spareSeg}
	h.spareSeg = n + 1
	h.counts.Segments--
	return base, units
}

// Address returns the address of a block.
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

// User returns the user's word of a block in use.
func (h *Heap) User(i int32) uint32 { return uint32(h.at(i).a) }

// SegmentBase returns the address and the size in bytes of a segment.
func (h *Heap) SegmentBase(n int32) (base, size uintptr) {
	return h.segments[n].base, uintptr(h.segments[n].units) * Unit
}

// Piece describes a block for Walk.
type Piece struct {
	Segment int32
	Offset  uintptr // bytes from the segment's base
	Size    uintptr
	Free    bool
	User    uint32 // of a block in use
}

// Walk calls segment for every segment, and then block for each of its blocks in the order of their
// addresses.
func (h *Heap) Walk(segment func(n int32, base, size uintptr), block func(Piece)) {
	for n := range h.segments {
		seg := &h.segments[n]
		if seg.first == none || seg.units == 0 {
			continue
		}
		segment(int32(n), seg.base, uintptr(seg.units)*Unit)
		for i := seg.first; i != none; i = h.at(i).next {
			r := h.at(i)
			p := Piece{Segment: int32(n), Offset: uintptr(r.offset) * Unit, Size: uintptr(r.size) * Unit, Free: r.free}
			if !r.free {
				p.User = uint32(r.a)
			}
			block(p)
		}
	}
}
