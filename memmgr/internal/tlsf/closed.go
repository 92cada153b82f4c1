package tlsf

// A closed segment gives nothing out: what is free in it, or becomes so, merges there
// and is in no bin, so that it becomes one large block in the end.

// Close closes a segment, empty or in use. It ignores segments of AddWhole.
func (h *Heap) Close(n int32) { h.setClosed(n, true) }

// Open ends Close. A segment that was removed meanwhile is open already.
func (h *Heap) Open(n int32) { h.setClosed(n, false) }

// Closed tells whether a segment is closed.
func (h *Heap) Closed(n int32) bool { return h.segments[n].closed }

func (h *Heap) setClosed(n int32, closed bool) {
	if int(n) >= len(h.segments) {
		return
	}
	seg := &h.segments[n]
	if seg.closed == closed || seg.units == 0 || seg.whole {
		return
	}
	for i := seg.first; i != none; i = h.at(i).next {
		if !h.at(i).free {
			continue
		}
		// insert and remove look at the segment.
		seg.closed = !closed
		h.remove(i)
		seg.closed = closed
		h.insert(i)
	}
	seg.closed = closed
}

// Want has TakeClosed look out for a block of so many units, from the next Close on.
func (h *Heap) Want(units uint32) { h.wanted, h.found, h.most = units, 0, 0 }

// setAside notes a free block of a closed segment, if it is what is wanted.
func (h *Heap) setAside(i int32) {
	h.most = max(h.most, h.at(i).size)
	if h.wanted != 0 && h.at(i).size >= h.wanted {
		h.found = i + 1
	}
}

func (h *Heap) forgetFound(i int32) {
	if h.found == i+1 {
		h.found = 0
	}
}

// TakeClosed takes what Want named out of a closed segment, aligned as in Alloc, and
// returns the block; a negative number when there is none yet. It knows of the block
// that became large enough last.
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

// Used returns how many blocks of a segment are in use, and its units; 0 and 0 for a
// number that no segment has.
func (h *Heap) Used(n int32) (blocks int32, units uint32) {
	if int(n) >= len(h.segments) {
		return 0, 0
	}
	return h.segments[n].used, h.segments[n].units
}

// ClosedFits tells whether one of some closed segments has a free block of so many
// units. It looks at all of their blocks, unless none of them became so large since it
// did last.
func (h *Heap) ClosedFits(units uint32, closed []int32) bool {
	if units > h.most {
		return false
	}
	h.most = 0
	for _, n := range closed {
		if int(n) >= len(h.segments) || h.segments[n].units == 0 || !h.segments[n].closed {
			continue
		}
		for i := h.first(n); i != none; i = h.at(i).next {
			if r := h.at(i); r.free {
				h.most = max(h.most, r.size)
			}
		}
	}
	return units <= h.most
}

// SegmentNumbers returns the bound of the numbers that segments have.
func (h *Heap) SegmentNumbers() int32 { return int32(len(h.segments)) }
