package tlsf

// Alloc takes no block of a closed segment, because its free blocks are in no bin. They still merge, so
// that the segment becomes one large free block when its last block in use is freed.

// Close closes a segment, which may be empty or in use.
func (h *Heap) Close(n int32) { h.setClosed(n, true) }

// Open lets Alloc use a closed segment again. It ignores segments that were removed.
func (h *Heap) Open(n int32) { h.setClosed(n, false) }

// Closed reports whether a segment is closed.
func (h *Heap) Closed(n int32) bool { return h.segments[n].closed }

func (h *Heap) setClosed(n int32, closed bool) {
	if int(n) >= len(h.segments) {
		return
	}
	seg := &h.segments[n]
	if seg.closed == closed || seg.units == 0 {
		return
	}
	for i := seg.first; i != none; i = h.at(i).next {
		if !h.at(i).free {
			continue
		}
		// remove reads the previous value, insert the new one.
		seg.closed = !closed
		h.remove(i)
		seg.closed = closed
		h.insert(i)
	}
	seg.closed = closed
}

// Want sets the size of the block that TakeClosed takes. Call it before Close.
func (h *Heap) Want(units uint32) { h.wanted, h.found, h.most = units, 0, 0 }

// noteClosed records a free block of a closed segment if it is large enough for Want.
func (h *Heap) noteClosed(i int32) {
	h.most = max(h.most, h.at(i).size)
	if h.wanted != 0 && h.at(i).size >= h.wanted {
		h.found = i + 1
	}
}

// TakeClosed takes a block of the size of Want from a closed segment, aligned as in Alloc. It returns
// the block, or a negative number if there is none. It considers only the free block that became
// large enough last.
func (h *Heap) TakeClosed(align uint32) int32 {
	i := h.found - 1
	if i == none {
		return none
	}
	r := h.at(i)
	if uint64(r.size) < uint64(h.wanted)+uint64(h.skip(r, align)) {
		return none
	}
	return h.takeAligned(i, h.wanted, align)
}

// Used returns the number of blocks in use of a segment, and its size in units. For an unused segment
// number it returns 0 and 0.
func (h *Heap) Used(n int32) (blocks int32, units uint32) {
	if int(n) >= len(h.segments) {
		return 0, 0
	}
	return h.segments[n].used, h.segments[n].units
}

// ClosedFits reports whether one of the closed segments has a free block of at least units. It reads
// all of their blocks, unless no free block became large enough since the last call.
func (h *Heap) ClosedFits(units uint32, closed []int32) bool {
	if units > h.most {
		return false
	}
	h.most = 0
	for _, n := range closed {
		if int(n) >= len(h.segments) || h.segments[n].units == 0 || !h.segments[n].closed {
			continue
		}
		for i := h.segments[n].first; i != none; i = h.at(i).next {
			if r := h.at(i); r.free {
				h.most = max(h.most, r.size)
			}
		}
	}
	return units <= h.most
}

// SegmentNumbers returns the exclusive upper bound of segment numbers.
func (h *Heap) SegmentNumbers() int32 { return int32(len(h.segments)) }
