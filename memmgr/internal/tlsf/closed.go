package tlsf

// The free blocks of a closed segment are in bins of their own, which only AllocClosed uses. They still merge, so that
// the segment becomes one large free block when its last block in use is freed.

// SetClosed closes a segment, which may be empty or in use, or lets Alloc use it again.
func (h *Heap) SetClosed(n int32, closed bool) {
	seg := &h.segments[n]
	if seg.closed == closed {
		return
	}
	for i := seg.first; i != none; i = h.at(i).next {
		if !h.at(i).free {
			continue
		}
		// remove reads the previous value, insert the new one.
		h.remove(i)
		seg.closed = closed
		h.insert(i)
		seg.closed = !closed
	}
	seg.closed = closed
}

// Closed reports whether a segment is closed.
func (h *Heap) Closed(n int32) bool { return h.segments[n].closed }

// AllocClosed is Alloc from closed segments.
func (h *Heap) AllocClosed(units, align uint32) int32 {
	return h.alloc(max(units, 1), align, []*bins{&h.closed}, alignTries)
}

// Used returns the number of blocks in use of a segment, and its size in units: 0 and 0 for an unused
// segment number.
func (h *Heap) Used(n int32) (blocks int32, units uint32) {
	return h.segments[n].used, h.segments[n].units
}

// SegmentNumbers returns the exclusive upper bound of segment numbers.
func (h *Heap) SegmentNumbers() int32 { return int32(len(h.segments)) }
