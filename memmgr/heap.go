package memmgr

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// heap is the part of a pool that holds memory from the upstream: segments, the blocks
// that they are divided into, and the depot. Segments of up to [mostGrowth] bytes serve
// requests of any size, larger ones only requests that are not much smaller (see
// [tlsf.Heap]).
//
// Lock: Pool.mu guards every field but count.now; each method requires it.
type heap struct {
	tlsf.Heap
	depot front.Depot

	segs           []poolSegment // by segment number
	oldest, newest int32         // segments out of use by age: number + 1, 0 for none
	clock          uint32        // ticks of the keeper
	idleSince      uint32        // tick since which the blocks that are being freed are idle
	decay          decay
	emptyLarge     uint64 // bytes of those that serve only large requests
	count          segmentCounts
	closed         bool // segments go back as soon as they are empty

	origin    *origin
	mu        *poolMutex // takes the segments that go back
	trace     *traceRing
	high, low uint64 // see WithRetention
	emptied   func() // called when the last segment of a closed heap goes back
}

// poolSegment is the pool's record of a segment, beside that of the TLSF heap.
type poolSegment struct {
	cookie       uint64
	requested    uintptr
	older, newer int32  // neighbours in the list by age: number + 1
	idleSince    uint32 // tick since which the blocks that were freed are idle
	align        uint8  // its logarithm
	listed       bool   // in the list by age
}

// block returns the segment as the upstream's block.
func (s *poolSegment) block(base, size uintptr) Block {
	return Block{
		Address: base, Size: size, Requested: s.requested, Align: 1 << s.align, Cookie: s.cookie,
	}
}

// segmentCounts counts segments and their bytes.
type segmentCounts struct {
	reserved, reservedPeak     uint64
	segments, segmentsPeak     int64
	reservedEver, reservedGone uint64
	deviceAllocs, deviceFrees  int64
	splitPeak, splitBytesPeak  int64
	now                        atomic.Int64 // reserved; read without the lock
}

func (c *segmentCounts) added(bytes uint64) {
	c.reserved += bytes
	c.now.Store(int64(c.reserved))
	c.reservedEver += bytes
	c.reservedPeak = max(c.reservedPeak, c.reserved)
	c.segments++
	c.segmentsPeak = max(c.segmentsPeak, c.segments)
	c.deviceAllocs++
}

func (c *segmentCounts) dropped(bytes uint64) {
	c.reserved -= bytes
	c.now.Store(int64(c.reserved))
	c.reservedGone += bytes
	c.segments--
	c.deviceFrees++
}

// split returns the free blocks and bytes in segments that are in use.
func (h *heap) split() (blocks, bytes int64) {
	c := h.Counts()
	return int64(c.FreeBlocks - c.EmptySegments), int64(c.FreeUnits-c.EmptyUnits) * tlsf.Unit
}

// noteSplit raises the peaks of split.
func (h *heap) noteSplit() {
	blocks, bytes := h.split()
	h.count.splitPeak = max(h.count.splitPeak, blocks)
	h.count.splitBytesPeak = max(h.count.splitBytesPeak, bytes)
}

// carve takes a block out of a segment; nil when none fits.
func (h *heap) carve(w *want) *owner.Cell {
	return h.cellOf(h.Alloc(w.units, w.align), w.class)
}

// carveAny is carve as the last resort, after the caches were emptied: it takes any
// free block that holds the request, of a segment of any size, without rounding to the
// size class and without the bound on the search for an aligned place.
func (h *heap) carveAny(w *want) *owner.Cell {
	return h.cellOf(h.AllocAny(w.least, w.align), w.leastClass())
}

// cellOf gives block n, which was just taken, its cell. It returns nil for a negative
// number, and when there are no more cells.
func (h *heap) cellOf(n int32, class int) *owner.Cell {
	if n < 0 {
		return nil
	}
	c, err := owner.NewDead(h.origin.list)
	if err != nil {
		h.Free(n)
		return nil
	}
	c.Address, c.Size = h.Address(n), uint64(h.Size(n))
	c.Place = uintptr(h.origin.place)
	c.Resource = h.origin.index
	c.Block = uint32(n)
	block.SetClass(c, class)
	c.ResetFlags(h.origin.flags)
	h.SetUser(n, c.Index())
	h.unlist(h.Segment(n))
	block.SetState(c, block.InHand)
	return c
}

// toHeap frees a block; it merges with its neighbours.
func (h *heap) toHeap(c *owner.Cell) {
	n := int32(c.Block)
	block.SetState(c, block.Free)
	owner.Recycle(c)
	seg := h.Segment(n)
	if s := &h.segs[seg]; int32(h.idleSince-s.idleSince) > 0 {
		s.idleSince = h.idleSince
	}
	h.freed(seg, h.Free(n))
}

// setClock sets the clock and what follows from it.
func (h *heap) setClock(tick uint32) {
	h.clock = tick
	h.depot.Tick = tick + h.decay.span - tick%h.decay.span
	h.setIdle(0)
}

// setIdle sets since when the blocks are idle that are freed from now on; 0 means the present.
func (h *heap) setIdle(since uint32) {
	if since == 0 || int32(since-h.clock) > 0 {
		since = h.clock
	}
	h.idleSince, h.Tick = since, since/h.decay.purgeTick
}

// freed records that a block of a segment was freed, and whether the segment is
// empty now.
func (h *heap) freed(seg int32, empty bool) {
	if !empty {
		return
	}
	if h.closed {
		h.dropSegment(seg)
		return
	}
	h.list(seg)
	h.retain()
}

// dissolve frees the blocks of a magazine. They keep the tick since which they are idle.
func (h *heap) dissolve(m block.Magazine) {
	h.setIdle(m.Since)
	for c := m.Head.Cell(); c != nil; {
		next := c.Next.Cell()
		h.toHeap(c)
		c = next
	}
	h.setIdle(0)
}

// dissolveStack frees the blocks of many magazines, and reports whether there were any.
func (h *heap) dissolveStack(s block.Stack) bool {
	any := !s.Empty()
	for !s.Empty() {
		h.dissolve(s.Pop())
	}
	return any
}

// cache puts a block into the depot, or frees it when it has no class or the depot may not hold more.
func (h *heap) cache(c *owner.Cell, k int) {
	if k >= block.NoClass || !h.depot.Put(c, k) {
		h.toHeap(c)
	}
}

// spill puts a magazine, whose bytes of the cache budget are taken, into the depot,
// or frees its blocks while nothing is cached.
func (h *heap) spill(m block.Magazine, k int) {
	if m.N != 0 && !h.depot.Push(m, k) {
		h.dissolve(m)
	}
}

// flush frees all blocks of the depot.
func (h *heap) flush() {
	h.dissolveCold(math.MaxInt)
	for k := 0; k < block.NumClasses && h.depot.Bytes() != 0; k++ {
		h.flushClass(k)
	}
}

func (h *heap) flushClass(k int) {
	for m := h.depot.Pop(k); m.N != 0; m = h.depot.Pop(k) {
		h.dissolve(m)
		h.depot.Budget.Give(m.Bytes(k))
	}
}

// yieldDepot frees about one magazine of the depot, so that a shard finds room in the
// cache budget: blocks in use have precedence over blocks that lie in the depot.
func (h *heap) yieldDepot() { h.dissolve(h.depot.Evict()) }

// dissolveCold frees about so many blocks of the cold magazines, and reports whether
// some are left.
func (h *heap) dissolveCold(blocks int) (more bool) {
	for blocks > 0 && h.depot.HasCold() {
		m := h.depot.PopCold()
		blocks -= int(m.N)
		h.dissolve(m)
	}
	return h.depot.HasCold()
}

// list puts an empty segment into the list by age.
func (h *heap) list(n int32) {
	s := &h.segs[n]
	s.listed = true
	s.older, s.newer = h.newest, 0
	for s.older != 0 && int32(h.segs[s.older-1].idleSince-s.idleSince) > 0 {
		s.older, s.newer = h.segs[s.older-1].older, s.older
	}
	if s.older != 0 {
		h.segs[s.older-1].newer = n + 1
	} else {
		h.oldest = n + 1
	}
	if s.newer != 0 {
		h.segs[s.newer-1].older = n + 1
	} else {
		h.newest = n + 1
	}
	if !h.Any(n) {
		_, size := h.SegmentBase(n)
		h.emptyLarge += uint64(size)
		h.boundCaches()
	}
}

// unlist takes a segment out of that list if it is there.
func (h *heap) unlist(n int32) {
	s := &h.segs[n]
	if !s.listed {
		return
	}
	s.listed = false
	if s.older != 0 {
		h.segs[s.older-1].newer = s.newer
	} else {
		h.oldest = s.newer
	}
	if s.newer != 0 {
		h.segs[s.newer-1].older = s.older
	} else {
		h.newest = s.older
	}
	if !h.Any(n) {
		_, size := h.SegmentBase(n)
		h.emptyLarge -= uint64(size)
		h.boundCaches()
	}
}

// addSegment takes over memory of the upstream for a request of so many units, and returns the
// number of the segment. untouched reports that no page of it is resident.
func (h *heap) addSegment(b Block, units uint32, untouched bool) (n int32) {
	h.count.added(uint64(b.Size))
	n = h.AddSegment(b.Address, uint32(b.Size/unit), units, untouched)
	for int(n) >= len(h.segs) {
		h.segs = append(h.segs, poolSegment{})
	}
	h.segs[n] = poolSegment{
		cookie: b.Cookie, requested: b.Requested, idleSince: h.clock,
		align: uint8(bits.TrailingZeros64(uint64(b.Align))),
	}
	h.list(n)
	h.boundCaches()
	if h.trace != nil {
		h.trace.addSegment(traceSegmentAlloc, b)
	}
	return n
}

// dropSegment hands an empty segment to the upstream, which gets it when Pool.mu is
// released.
func (h *heap) dropSegment(n int32) {
	h.unlist(n)
	s := &h.segs[n]
	base, units := h.RemoveSegment(n)
	b := s.block(base, uintptr(units)*unit)
	*s = poolSegment{}
	h.count.dropped(uint64(b.Size))
	h.boundCaches()
	if h.trace != nil {
		h.trace.addSegment(traceSegmentFree, b)
	}
	h.mu.drop(b)
	if h.closed && h.Counts().Segments == 0 {
		h.emptied()
	}
}

// emptyBytes returns the bytes of segments out of use: those that release could give back.
func (h *heap) emptyBytes() uint64 { return h.Counts().EmptyUnits * unit }

// boundCaches sets the default bound on cached bytes by those of the segments that are in use or
// could serve any request.
func (h *heap) boundCaches() { h.depot.Budget.Resize(int64(h.count.reserved - h.emptyLarge)) }

// freeBytes returns the bytes of free blocks, those of the depot included.
func (h *heap) freeBytes() uint64 { return uint64(h.depot.Bytes()) + h.Counts().FreeUnits*unit }

// release gives segments out of use back, oldest first, until at most keep bytes of
// them are left.
func (h *heap) release(keep uint64) (freed uint64) {
	before := h.emptyBytes()
	for h.emptyBytes() > keep {
		h.dropSegment(h.oldest - 1)
	}
	return before - h.emptyBytes()
}

// pay gives the oldest segments out of use back before a new one of so many bytes, if they have at
// least the bytes of the request together. So a pool does not grow beside memory that no request can
// use.
func (h *heap) pay(bytes, need uint64) {
	if empty := h.emptyBytes(); empty >= need {
		h.release(empty - min(empty, bytes))
	}
}

// retain gives the oldest segments out of use back while there are more bytes of them
// than [WithRetention] allows.
func (h *heap) retain() {
	if h.emptyBytes() > h.high {
		h.release(h.low)
	}
}

// decaySegments gives back a portion of the segments whose blocks have all been idle for so
// many ticks, and reports whether there are more.
func (h *heap) decaySegments(age uint32) (more bool) {
	for n := 0; h.oldest != 0 && h.clock-h.segs[h.oldest-1].idleSince >= age; n++ {
		if n == segmentPortion {
			return true
		}
		h.dropSegment(h.oldest - 1)
	}
	return false
}
