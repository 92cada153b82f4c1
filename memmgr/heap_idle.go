package memmgr

import (
	"math"
	"math/bits"
	"slices"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// idleSet contains the idle dedicated segments of a heap in sorted lists, one for each range of
// sizes, 32 per octave, so that few entries move unless many segments have one size.
type idleSet struct {
	lists [][]uint64 // of entries units<<32 | segment number; nil until a segment is idle
}

// rangeOf returns the number of the list for segments of a size.
func rangeOf(units uint32) int {
	octave := bits.Len32(units)
	return octave<<5 | int(units<<(32-octave)>>26&31)
}

func (s *idleSet) add(units uint32, n int32) {
	if s.lists == nil {
		s.lists = make([][]uint64, 1+rangeOf(math.MaxUint32))
	}
	list, x := &s.lists[rangeOf(units)], uint64(units)<<32|uint64(n)
	at, _ := slices.BinarySearch(*list, x)
	*list = slices.Insert(*list, at, x)
}

func (s *idleSet) remove(units uint32, n int32) {
	list := &s.lists[rangeOf(units)]
	at, _ := slices.BinarySearch(*list, uint64(units)<<32|uint64(n))
	*list = slices.Delete(*list, at, at+1)
}

// takeIdle takes the smallest idle dedicated segment that holds the bytes, has at most
// most bytes and is aligned; nil when there is none.
func (h *heap) takeIdle(least, most, align uintptr) *owner.Cell {
	if h.idleBytes == 0 {
		return nil
	}
	from, to, tries := uint32(least/unit), uint32(min(most, maxSegment)/unit), idleTries
	for k := rangeOf(from); k <= rangeOf(to); k++ {
		list := &h.idle.lists[k]
		at, _ := slices.BinarySearch(*list, uint64(from)<<32)
		for ; at < len(*list); at++ {
			n := uint32((*list)[at])
			c := h.segs[n].cell.Cell()
			if uintptr(c.Size) > most || tries == 0 {
				return nil
			}
			if c.Address&(align-1) == 0 {
				*list = slices.Delete(*list, at, at+1)
				h.segs[n].cell = 0
				h.unlist(int32(n))
				h.idleBytes -= c.Size
				setState(c, stateInHand)
				return c
			}
			tries--
		}
	}
	return nil
}

// reuseIdle takes an idle dedicated segment that wastes at most an eighth.
func (h *heap) reuseIdle(need, align uintptr) *owner.Cell {
	return h.takeIdle(need, need+need/8, align)
}

// openIdle makes the smallest idle dedicated segment that holds a large request an
// ordinary one, however much larger it is, before the request is refused: the rest
// serves other requests.
func (h *heap) openIdle(w *want) bool {
	if h.closed || !h.dedicated(w) {
		return false
	}
	c := h.takeIdle(uintptr(w.units)*unit, maxSegment, uintptr(w.align)*unit)
	if c == nil {
		return false
	}
	block := int32(c.Block)
	n := h.Segment(block)
	h.segs[n].dedicated = false
	setState(c, stateFree)
	owner.Recycle(c)
	h.Free(block)
	h.list(n)
	return true
}

// retire makes a dedicated segment idle. In the TLSF heap its block stays in use.
func (h *heap) retire(c *owner.Cell) {
	setState(c, stateIdle)
	n := h.Segment(int32(c.Block))
	h.segs[n].cell = owner.LinkTo(c)
	h.idle.add(uint32(c.Size/unit), n)
	h.idleBytes += c.Size
	h.freed(n, true)
}
