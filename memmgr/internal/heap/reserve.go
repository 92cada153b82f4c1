package heap

import (
	"cmp"
	"slices"
)

// CloseSegments closes segments, those with the fewest blocks for their size first, until the closed ones have so many
// bytes. It returns the bytes that they have.
func (h *Heap) CloseSegments(bytes uint64) (has uint64) {
	if has = h.ClosedBytes(); has >= bytes {
		return has
	}
	var open []int32
	for n := range h.blocks.SegmentNumbers() {
		if _, units := h.blocks.Used(n); units != 0 && !h.blocks.Closed(n) {
			open = append(open, n)
		}
	}
	part := func(n int32) float64 { // in use
		used, units := h.blocks.Used(n)
		return float64(used) / float64(units)
	}
	slices.SortStableFunc(open, func(a, b int32) int { return cmp.Compare(part(a), part(b)) })
	for _, n := range open {
		if has >= bytes {
			break
		}
		_, size := h.blocks.SegmentBase(n)
		has += uint64(size)
		h.blocks.SetClosed(n, true)
	}
	return has
}

// closed iterates over the numbers of the closed segments.
func (h *Heap) closed(yield func(int32) bool) {
	for n := range h.blocks.SegmentNumbers() {
		if h.blocks.Closed(n) && !yield(n) {
			return
		}
	}
}

// OpenSegments opens the closed segments.
func (h *Heap) OpenSegments() {
	for n := range h.closed {
		h.blocks.SetClosed(n, false)
	}
}

// ClosedBytes returns the bytes of the closed segments.
func (h *Heap) ClosedBytes() (bytes uint64) {
	for n := range h.closed {
		_, size := h.blocks.SegmentBase(n)
		bytes += uint64(size)
	}
	return bytes
}

// ClosedBlocks returns the blocks in use in the closed segments.
func (h *Heap) ClosedBlocks() (blocks int) {
	for n := range h.closed {
		used, _ := h.blocks.Used(n)
		blocks += int(used)
	}
	return blocks
}
