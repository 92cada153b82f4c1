package tlsf

// purgeUnits is the least free block that is looked at for purging: a page of
// the smallest size there is.
const purgeUnits = 16

// dirty tells whether a free block may hold pages that nobody needs.
func (r *record) dirty() bool { return !r.purged && r.size >= purgeUnits }

// Cursor is a place in the order of the free blocks, for going through them in
// portions while they change. The zero Cursor is the beginning.
type Cursor struct {
	at record // the next one to be looked at, or where it would be
}

// NextDirty looks at so many free blocks from the cursor on, moves it, and
// returns the first that was not purged, has been free for so many ticks, and
// lies in a segment that is in use; negative when there is none among them. ended
// tells that there are no more blocks.
func (h *Heap) NextDirty(c *Cursor, age uint32, tries int) (block int32, ended bool) {
	c.at.size = max(c.at.size, purgeUnits)
	for ; tries > 0; tries-- {
		i := h.bins.from(h, &c.at)
		if i == none {
			return none, true
		}
		r := h.at(i)
		c.at = record{size: r.size, segment: r.segment, offset: r.offset + 1}
		if !r.purged && h.segments[r.segment].used > 0 && age <= uint32(uint16(h.Tick)-r.tick) {
			return i, false
		}
	}
	return none, false
}

// Take takes a whole free block, for GiveBack.
func (h *Heap) Take(i int32) { h.take(i) }

// GiveBack makes a block free again that Take took, purged or not, and reports
// whether its segment is one free block now. The time of its becoming free stays.
func (h *Heap) GiveBack(i int32, purged bool) (empty bool) {
	r := h.at(i)
	seg := r.segment
	r.purged = purged
	h.release(i)
	return h.segments[seg].used == 0
}
