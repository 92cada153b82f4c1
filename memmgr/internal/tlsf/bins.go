package tlsf

import "math/bits"

const (
	subBits  = 5
	subCount = 1 << subBits
	levels   = 32 - subBits + 1

	// listUnits is the smallest size in trees. Smaller blocks are in lists, one for each size, with
	// the block that was freed last at the head.
	listUnits = 16
)

// bins contains the free blocks of one tier. There is one bin for each size up to 31 units, and 32 bins per octave
// above. Bins from listUnits on are trees ordered by size, segment and offset. The best fit, and
// among equals the one in the segment with the lowest number, is found in time logarithmic in the
// blocks of one bin. The trees are treaps whose priorities are hashes of the record numbers, so a
// record stores only its two links.
type bins struct {
	top   uint32                  // a bit for each level with a non-empty bin
	sub   [levels]uint32          // a bit for each non-empty bin of a level
	heads [levels][subCount]int32 // record + 1
}

// bin returns the bin of free blocks of a size.
func bin(units uint32) (level, index int) {
	if units < subCount {
		return 0, int(units)
	}
	l := bits.Len32(units) - 1
	return l - subBits + 1, int(units>>(l-subBits)) - subCount
}

// above returns the first non-empty bin after the given one; ok is false if there is none.
func (b *bins) above(level, index int) (l, s int, ok bool) {
	if m := b.sub[level] & uint32(uint64(^uint32(0))<<(index+1)); m != 0 {
		return level, bits.TrailingZeros32(m), true
	}
	if m := b.top & uint32(uint64(^uint32(0))<<(level+1)); m != 0 {
		l = bits.TrailingZeros32(m)
		return l, bits.TrailingZeros32(b.sub[l]), true
	}
	return 0, 0, false
}

// binsOf returns the bins for the free blocks of a segment.
func (h *Heap) binsOf(segment int32) *bins {
	if s := &h.segments[segment]; !s.closed {
		return h.tiers[s.tier]
	}
	return &h.closed
}

// upTo returns the bins of the tiers up to top.
func (h *Heap) upTo(top int) []*bins { return h.tiers[:min(top+1, len(h.tiers))] }

// insert puts a free block into its bin.
func (h *Heap) insert(i int32) {
	r := h.at(i)
	r.free = true
	h.counts.FreeBlocks++
	h.counts.FreeUnits += uint64(r.size)
	if r.dirty() {
		h.counts.DirtyUnits += uint64(r.size)
	}
	b := h.binsOf(r.segment)
	l, s := bin(r.size)
	head := &b.heads[l][s]
	if *head == 0 {
		b.top |= 1 << l
		b.sub[l] |= 1 << s
	}
	if r.size < listUnits {
		r.a, r.b = none, *head-1
		if *head != 0 {
			h.at(*head - 1).a = i
		}
		*head = i + 1
		return
	}
	*head = h.plant(*head-1, i) + 1
}

// remove takes a block out of its bin.
func (h *Heap) remove(i int32) {
	r := h.at(i)
	r.free = false
	h.counts.FreeBlocks--
	h.counts.FreeUnits -= uint64(r.size)
	if r.dirty() {
		h.counts.DirtyUnits -= uint64(r.size)
	}
	b := h.binsOf(r.segment)
	l, s := bin(r.size)
	head := &b.heads[l][s]
	if r.size < listUnits {
		h.unlink(head, r)
	} else {
		*head = h.uproot(*head-1, i) + 1
	}
	if *head == 0 {
		b.sub[l] &^= 1 << s
		if b.sub[l] == 0 {
			b.top &^= 1 << l
		}
	}
}

func (h *Heap) unlink(head *int32, r *record) {
	if r.a == none {
		*head = r.b + 1
	} else {
		h.at(r.a).b = r.b
	}
	if r.b != none {
		h.at(r.b).a = r.a
	}
}

// less is the order of a tree.
func less(x, y *record) bool {
	if x.size != y.size {
		return x.size < y.size
	}
	if x.segment != y.segment {
		return x.segment < y.segment
	}
	return x.offset < y.offset
}

// priority is a hash of a record's number. It is different for each record.
func priority(i int32) uint32 {
	x := uint32(i) * 0x9E3779B1
	x ^= x >> 15
	return x * 0x85EBCA6B
}

// plant adds a record to a tree and returns the root.
func (h *Heap) plant(root, i int32) int32 {
	r, p := h.at(i), priority(i)
	if root == none {
		r.a, r.b = none, none
		return i
	}
	link := &root
	for *link != none && priority(*link) > p {
		t := h.at(*link)
		if less(r, t) {
			link = &t.a
		} else {
			link = &t.b
		}
	}
	// The new record replaces the subtree at link and splits it into its own children.
	rest := *link
	*link = i
	low, high := &r.a, &r.b
	for rest != none {
		t := h.at(rest)
		if less(t, r) {
			*low, low = rest, &t.b
			rest = t.b
		} else {
			*high, high = rest, &t.a
			rest = t.a
		}
	}
	*low, *high = none, none
	return root
}

// uproot takes a record out of a tree and returns the root.
func (h *Heap) uproot(root, i int32) int32 {
	r := h.at(i)
	link := &root
	for *link != i {
		t := h.at(*link)
		if less(r, t) {
			link = &t.a
		} else {
			link = &t.b
		}
	}
	low, high := r.a, r.b
	if low == none && high == none {
		*link = none
		return root
	}
	for low != none && high != none {
		if priority(low) > priority(high) {
			t := h.at(low)
			*link, link = low, &t.b
			low = t.b
		} else {
			t := h.at(high)
			*link, link = high, &t.a
			high = t.a
		}
	}
	if low == none {
		low = high
	}
	*link = low
	return root
}

// least returns the first record of a tree that is not less than key, or none.
func (h *Heap) least(root int32, key *record) int32 {
	found := none
	for i := root; i != none; {
		if t := h.at(i); less(t, key) {
			i = t.b
		} else {
			found, i = i, t.a
		}
	}
	return found
}

// first returns the first block of a non-empty bin.
func (b *bins) first(h *Heap, l, s int) int32 {
	i := b.heads[l][s] - 1
	if h.at(i).size < listUnits {
		return i
	}
	for h.at(i).a != none {
		i = h.at(i).a
	}
	return i
}

// from returns the first free block that is not less than key in the order of the bins, or none. In a
// list it is the first block of the key's size.
func (b *bins) from(h *Heap, key *record) int32 {
	l, s := bin(key.size)
	if head := b.heads[l][s]; head != 0 {
		if key.size < listUnits {
			return head - 1
		}
		if i := h.least(head-1, key); i != none {
			return i
		}
	}
	if l, s, ok := b.above(l, s); ok {
		return b.first(h, l, s)
	}
	return none
}

// after returns the free block that follows i in the order of the bins, or none.
func (b *bins) after(h *Heap, i int32) int32 {
	r := h.at(i)
	if r.size >= listUnits {
		return b.from(h, &record{size: r.size, segment: r.segment, offset: r.offset + 1})
	}
	if r.b != none {
		return r.b
	}
	l, s := bin(r.size)
	if l, s, ok := b.above(l, s); ok {
		return b.first(h, l, s)
	}
	return none
}

// find returns the best fit in some tiers, or none: the smallest free block of at least units, and
// among equals the first in the order of the bin, of the first tier.
func (h *Heap) find(units uint32, tiers []*bins) int32 {
	found, key := none, record{size: units}
	for _, b := range tiers {
		if i := b.from(h, &key); i != none && (found == none || h.at(i).size < h.at(found).size) {
			found = i
		}
	}
	return found
}

// Largest returns the bytes of the largest free block of open segments.
func (h *Heap) Largest() (bytes uintptr) {
	for _, b := range h.tiers {
		bytes = max(bytes, b.largest(h))
	}
	return bytes
}

func (b *bins) largest(h *Heap) uintptr {
	if b.top == 0 {
		return 0
	}
	l := 31 - bits.LeadingZeros32(b.top)
	s := 31 - bits.LeadingZeros32(b.sub[l])
	i := b.heads[l][s] - 1
	if h.at(i).size >= listUnits {
		for h.at(i).b != none {
			i = h.at(i).b
		}
	}
	return uintptr(h.at(i).size) * Unit
}

// BestFit returns the units of the smallest free block of at least so many that Alloc can use, 0 if there is
// none.
func (h *Heap) BestFit(units uint32) uint32 {
	if i := h.find(units, h.upTo(h.tier(units))); i != none {
		return h.at(i).size
	}
	return 0
}
