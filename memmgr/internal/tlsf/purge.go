package tlsf

// purgeUnits is the size of the smallest free block that is purged: 4 KiB, the smallest page size.
const purgeUnits = 16

// dirty reports whether a free block may contain whole pages that were not purged.
func (r *record) dirty() bool { return !r.purged && r.size >= purgeUnits }

// Cursor is a position in the order of the free blocks, tier by tier. It stays valid while they change. The zero
// Cursor is the beginning.
type Cursor struct {
	tier int
	at   record // the key of the next block
}

// NextDirty looks at the free block at the cursor and advances the cursor. It returns the block if it was not
// purged, has been free for at least age ticks, and is in a segment with blocks in use, otherwise a negative
// number. ended reports that the cursor is at the end.
func (h *Heap) NextDirty(c *Cursor, age uint32) (block int32, ended bool) {
	i := none
	for ; i == none; c.tier++ {
		if c.tier >= len(h.tiers) {
			return none, true
		}
		c.at.size = max(c.at.size, purgeUnits)
		if i = h.tiers[c.tier].from(h, &c.at); i != none {
			break
		}
		c.at = record{}
	}
	r := h.at(i)
	c.at = record{size: r.size, segment: r.segment, offset: r.offset + 1}
	if r.purged || h.segments[r.segment].used == 0 || age > uint32(uint16(h.Tick)-r.tick) {
		return none, false
	}
	return i, false
}

// Take takes a whole free block. GiveBack returns it.
func (h *Heap) Take(i int32) { h.take(i) }

// GiveBack makes a block of Take free again, and records whether it was purged. It keeps the tick at
// which the block was freed. It reports whether the segment has no block in use.
func (h *Heap) GiveBack(i int32, purged bool) (empty bool) {
	r := h.at(i)
	seg := r.segment
	r.purged = purged
	h.release(i)
	return h.segments[seg].used == 0
}
