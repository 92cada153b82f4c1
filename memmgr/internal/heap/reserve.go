package heap

import (
	"cmp"
	"maps"
	"slices"
)

// Want sets the units of the block that TakeReserved takes. Call it before CloseSegments; 0 is no block.
func (h *Heap) Want(units uint32) { h.blocks.Want(units) }

// CloseSegments closes segments, those with the fewest blocks for their size first, until the closed ones have so many
// bytes. It returns the bytes that they have.
func (h *Heap) CloseSegments(bytes uint64) (has uint64) {
	if has = h.ClosedBytes(); has >= bytes {
		return has
	}
	parts := map[int32]float64{} // in use, of the segments that may be closed
	for n := range h.blocks.SegmentNumbers() {
		if used, units := h.blocks.Used(n); units != 0 && !h.blocks.Closed(n) {
			parts[n] = float64(used) / float64(units)
		}
	}
	emptiest := func(a, b int32) int { return cmp.Or(cmp.Compare(parts[a], parts[b]), cmp.Compare(a, b)) }
	for _, n := range slices.SortedFunc(maps.Keys(parts), emptiest) {
		if has >= bytes {
			break
		}
		_, size := h.blocks.SegmentBase(n)
		has += uint64(size)
		h.blocks.Close(n)
		h.closed = append(h.closed, n)
	}
	return has
}

// OpenSegments opens the closed segments.
func (h *Heap) OpenSegments() {
	for _, n := range h.closed {
		h.blocks.Open(n)
	}
	h.closed = h.closed[:0]
}

// ClosedBytes returns the bytes of the closed segments.
func (h *Heap) ClosedBytes() (bytes uint64) {
	for _, n := range h.closed {
		if h.blocks.Closed(n) { // else the segment was returned, and a new segment may have its number
			_, size := h.blocks.SegmentBase(n)
			bytes += uint64(size)
		}
	}
	return bytes
}

// ClosedBlocks returns the blocks in use in the closed segments.
func (h *Heap) ClosedBlocks() (blocks int) {
	for _, n := range h.closed {
		used, _ := h.blocks.Used(n)
		blocks += int(used)
	}
	return blocks
}

// ClosedFits reports whether a closed segment has a free block of at least so many units.
func (h *Heap) ClosedFits(units uint32) bool { return h.blocks.ClosedFits(units, h.closed) }
