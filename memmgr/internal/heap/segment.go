package heap

import (
	"math/bits"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
)

// Segment is memory of the upstream, with what the upstream needs to take it back.
type Segment struct {
	Address, Size, Requested, Align uintptr
	Cookie                          uint64
}

// segment is the record of a segment, beside that of the TLSF heap.
type segment struct {
	cookie       uint64
	requested    uintptr
	older, newer int32  // neighbours in the list by age: number + 1
	idleSince    uint32 // tick since which the blocks that were freed are idle
	align        uint8  // its logarithm
	listed       bool   // in the list by age
}

// Counts counts segments, their bytes, and the free blocks in segments in use.
type Counts struct {
	Segments, SegmentsPeak    int64
	Added, Dropped            int64  // segments, ever
	ReservedPeak              uint64 // of bytes
	BytesAdded, BytesDropped  uint64 // ever
	SplitBlocks, SplitBytes   int64
	SplitPeak, SplitBytesPeak int64
}

// Reserved returns the bytes of all segments. It needs no lock.
func (h *Heap) Reserved() uint64 { return h.reserved.Load() }

// Counts returns the current counts.
func (h *Heap) Counts() Counts {
	h.NoteSplit()
	h.counts.SplitBlocks, h.counts.SplitBytes = h.Split()
	return h.counts
}

// ResetPeaks sets the peaks to the present values.
func (h *Heap) ResetPeaks() {
	c := &h.counts
	c.SegmentsPeak, c.ReservedPeak = c.Segments, h.Reserved()
	c.SplitPeak, c.SplitBytesPeak = h.Split()
}

// Split returns the free blocks and bytes in segments that are in use.
func (h *Heap) Split() (blocks, bytes int64) {
	c := h.blocks.Counts()
	return int64(c.FreeBlocks - c.EmptySegments), int64(c.FreeUnits-c.EmptyUnits) * block.Unit
}

// NoteSplit raises the peaks of Split.
func (h *Heap) NoteSplit() {
	blocks, bytes := h.Split()
	h.counts.SplitPeak = max(h.counts.SplitPeak, blocks)
	h.counts.SplitBytesPeak = max(h.counts.SplitBytesPeak, bytes)
}

// Grow adds a segment of the upstream for a request, and takes a block for it. untouched reports that no page of the
// segment is resident. It returns nil if there are no more cells.
func (h *Heap) Grow(s Segment, untouched bool, units, align uint32, class int) *owner.Cell {
	n := h.blocks.AddSegment(s.Address, uint32(s.Size/block.Unit), units, untouched)
	for int(n) >= len(h.segments) {
		h.segments = append(h.segments, segment{})
	}
	h.segments[n] = segment{
		cookie: s.Cookie, requested: s.Requested, idleSince: h.clock,
		align: uint8(bits.TrailingZeros64(uint64(s.Align))),
	}
	c := &h.counts
	c.ReservedPeak = max(c.ReservedPeak, h.reserved.Add(uint64(s.Size)))
	c.BytesAdded += uint64(s.Size)
	c.Segments++
	c.SegmentsPeak = max(c.SegmentsPeak, c.Segments)
	c.Added++
	h.boundCaches()
	taken := h.cellOf(h.blocks.AllocIn(n, units, align), class)
	if taken == nil {
		h.list(n)
	}
	return taken
}

// drop gives a segment without blocks in use back.
func (h *Heap) drop(n int32) {
	h.unlist(n)
	r := &h.segments[n]
	base, units := h.blocks.RemoveSegment(n)
	s := Segment{
		Address: base, Size: uintptr(units) * block.Unit, Requested: r.requested, Align: 1 << r.align, Cookie: r.cookie,
	}
	*r = segment{}
	h.reserved.Add(-uint64(s.Size))
	h.counts.BytesDropped += uint64(s.Size)
	h.counts.Segments--
	h.counts.Dropped++
	h.boundCaches()
	h.options.Drop(s)
	if h.shut && h.counts.Segments == 0 {
		h.options.Emptied()
	}
}

// freed notes that a block of a segment was freed, and whether the segment is empty now.
func (h *Heap) freed(seg int32, empty bool) {
	if !empty {
		return
	}
	if h.shut {
		h.drop(seg)
		return
	}
	h.list(seg)
	if h.EmptyBytes() > h.options.High {
		h.Release(h.options.Low)
	}
}

// list puts an empty segment into the list by age. A pool of large blocks has thousands of segments: to look for the
// oldest at each growth would double the time of a request.
func (h *Heap) list(n int32) {
	s := &h.segments[n]
	s.listed = true
	s.older, s.newer = h.newest, 0
	for s.older != 0 && int32(h.segments[s.older-1].idleSince-s.idleSince) > 0 {
		s.older, s.newer = h.segments[s.older-1].older, s.older
	}
	h.link(s.older, s.newer, n+1, n+1)
}

// unlist takes a segment out of that list if it is there.
func (h *Heap) unlist(n int32) {
	if s := &h.segments[n]; s.listed {
		s.listed = false
		h.link(s.older, s.newer, s.newer, s.older)
	}
}

// link sets the newer neighbour of one segment of the list and the older one of another. All are numbers + 1; 0 is
// the end of the list.
func (h *Heap) link(older, newer, newerOfOlder, olderOfNewer int32) {
	if older != 0 {
		h.segments[older-1].newer = newerOfOlder
	} else {
		h.oldest = newerOfOlder
	}
	if newer != 0 {
		h.segments[newer-1].older = olderOfNewer
	} else {
		h.newest = olderOfNewer
	}
}

// boundCaches sets the default bound on cached bytes by those of the segments.
func (h *Heap) boundCaches() { h.Depot.Budget.Resize(int64(h.Reserved())) }

// EmptyBytes returns the bytes of segments out of use: those that Release could give back.
func (h *Heap) EmptyBytes() uint64 { return h.blocks.Counts().EmptyUnits * block.Unit }

// Release gives segments out of use back, oldest first, until at most keep bytes of them are left. It returns the
// bytes that it gave back.
func (h *Heap) Release(keep uint64) (freed uint64) {
	before := h.EmptyBytes()
	for h.EmptyBytes() > keep {
		h.drop(h.oldest - 1)
	}
	return before - h.EmptyBytes()
}

// Pay gives the oldest segments out of use back before a new one of so many bytes, if they have at least the bytes of
// the request together. So a pool does not grow beside memory that no request can use.
func (h *Heap) Pay(bytes, need uint64) {
	if empty := h.EmptyBytes(); empty >= need {
		h.Release(empty - min(empty, bytes))
	}
}
