package memmgr

import (
	"math/bits"

	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
	"github.com/usmbridge/usmbridge/memmgr/owner"
)

// want is a request in the pool's own terms.
type want struct {
	r     *Request
	class int
	units uint32
	align uint32 // units
}

func (p *Pool) wanted(r *Request, units uintptr) want {
	w := want{r: r, class: noClass, units: uint32(units), align: uint32(max(r.Alignment()/unit, 1))}
	if units <= maxClassUnits && w.align == 1 {
		w.class = classOf(units)
		w.units = classUnits[w.class]
	}
	return w
}

// dedicated tells whether the request gets a segment of its own.
func (p *Pool) dedicated(w *want) bool {
	return w.class == noClass && uintptr(w.units)*unit >= p.options.large
}

// slowBuffer serves what the front could not.
func (p *Pool) slowBuffer(request Request) (Buffer, error) {
	if err := request.Check(); err != nil {
		return Buffer{}, err
	}
	units := max((request.Size+unit-1)/unit, p.minUnits)
	if units > 1<<31 || request.Alignment() > 1<<31*unit {
		return Buffer{}, &OutOfMemoryError{Request: request, Place: p.Place(), Rounded: uint64(units) * unit, Err: errTooLarge}
	}
	w := p.wanted(&request, units)
	if c := p.fromSpare(&w); c != nil {
		c.Requested = uint64(request.Size)
		b := Buffer{ref: c.Renew()}
		p.annotate(c, request.Tag, request.Queue)
		return b, nil
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Buffer{}, p.closedError()
	}
	c := p.find(&w)
	if c == nil {
		p.mu.Unlock()
		var err error
		if c, err = p.growFor(&w); err != nil {
			return Buffer{}, err
		}
		p.mu.Lock()
	}
	p.count(c, &w)
	stock := p.restock(&w)
	p.mu.Unlock()
	if stock.n != 0 {
		p.toFront(stock, w.class)
	}
	c.Requested = uint64(request.Size)
	b := Buffer{ref: c.Renew()}
	p.annotate(c, request.Tag, request.Queue)
	return b, nil
}

func (p *Pool) closedError() error {
	return &OpError{Op: "Pool.Allocate", Place: p.Place(), Kind: ErrClosed}
}

// find takes a block from what the pool has. p.mu is held.
func (p *Pool) find(w *want) *owner.Cell {
	if p.closed {
		return nil
	}
	if p.waiting.Load() != 0 {
		if c := p.sameQueue(w); c != nil {
			return c
		}
		p.collect(16)
	}
	if w.class != noClass {
		if c := p.popDepot(w.class); c != nil {
			return c
		}
	} else if p.dedicated(w) {
		return p.reuseIdle(w)
	}
	return p.carve(w)
}

// carve cuts a block out of a segment. p.mu is held.
func (p *Pool) carve(w *want) *owner.Cell {
	if p.dedicated(w) {
		return nil
	}
	i := p.heap.Alloc(w.units, w.align)
	if i < 0 {
		return nil
	}
	c := p.newCell(i, w.class)
	if c == nil {
		p.heap.Free(i)
	}
	return c
}

// newCell gives a block in use its owner cell; nil when there are no more cells.
// p.mu is held.
func (p *Pool) newCell(block int32, class int) *owner.Cell {
	c, err := owner.New(p.origin.list)
	if err != nil {
		return nil
	}
	c.Unref() // nobody has it yet
	c.Address, c.Size = p.heap.Address(block), uint64(p.heap.Size(block))
	c.Place = uintptr(p.origin.place)
	c.Resource = p.origin.index
	c.Block = uint32(block)
	c.Private = uint64(class)
	c.ResetFlags(p.origin.flags)
	p.heap.SetUser(block, c.Index())
	return c
}

// fromSpare serves a request from the spare magazine of the caller's processor.
func (p *Pool) fromSpare(w *want) *owner.Cell {
	if w.class == noClass || (w.r.Queue != nil && p.waiting.Load() != 0) {
		return nil
	}
	s := p.enter()
	if s == nil {
		return nil
	}
	defer s.leave()
	if !s.reload(w.class) {
		return nil
	}
	c := s.take(w.class)
	if !p.uncounted {
		s.countTake(w.class, uint64(w.r.Size))
	}
	return c
}

// restock takes a magazine along for the front, so that the next requests need
// no lock: one that is there, or a few blocks cut out now. p.mu is held.
func (p *Pool) restock(w *want) (m magazine) {
	if w.class == noClass {
		return m
	}
	if m = p.popMagazine(w.class); m.n != 0 {
		return m
	}
	for n := classBatch(w.class) - 1; n > 0; n-- {
		c := p.carve(w)
		if c == nil {
			break
		}
		m.push(c)
	}
	return m
}

func (m *magazine) push(c *owner.Cell) {
	c.Next = m.head
	m.head = owner.LinkTo(c)
	m.n++
}

// toFront puts blocks that nobody uses into the bin of the caller's shard.
func (p *Pool) toFront(m magazine, k int) {
	back := m
	if s := p.enter(); s != nil {
		back = s.stock(k, m, p.options.cacheLimit)
		s.leave()
	}
	if back.n != 0 {
		p.mu.Lock()
		p.spill(back, k)
		p.mu.Unlock()
	}
}

// toHeap dissolves a block: it merges with its neighbours. p.mu is held.
func (p *Pool) toHeap(c *owner.Cell) {
	block := int32(c.Block)
	owner.Recycle(c)
	seg := p.heap.Segment(block)
	if p.heap.Free(block) {
		p.segs[seg].emptyTick = p.ticks
		if p.closed {
			p.dropSegment(seg)
			p.last()
		}
	}
}

// last ends a closed pool's part in the tables with its last block. p.mu is
// held.
func (p *Pool) last() {
	if p.leaked && p.heap.Counts().Segments == 0 {
		p.leaked = false
		p.origin.leave()
	}
}

// flush dissolves every block that front and depot keep. p.mu is held.
func (p *Pool) flush() {
	p.stopShards()
	for i := range p.shards {
		s := &p.shards[i]
		for k := range s.bins {
			for s.bins[k].blocks() != 0 {
				p.dissolveAll(s.unstock(k, p.options.cacheLimit))
			}
		}
	}
	p.resumeShards()
	if p.counters.depotBytes == 0 {
		return
	}
	for k := range p.depot {
		for m := p.popMagazine(k); m.n != 0; m = p.popMagazine(k) {
			p.dissolveAll(m)
		}
	}
}

// addSegment takes over upstream memory. p.mu is held.
func (p *Pool) addSegment(b Block, dedicated bool) int32 {
	units := uint32(b.Size / unit)
	var n, block int32
	if dedicated {
		block = p.heap.AddUsed(b.Address, units)
		n = p.heap.Segment(block)
	} else {
		n, block = p.heap.AddSegment(b.Address, units), -1
	}
	for int(n) >= len(p.segs) {
		p.segs = append(p.segs, poolSegment{})
	}
	p.segs[n] = poolSegment{
		cookie: b.Cookie, requested: b.Requested, emptyTick: p.ticks,
		align: uint8(bits.TrailingZeros64(uint64(b.Align))), dedicated: dedicated,
	}
	p.counters.segmentAdded(uint64(b.Size))
	if p.trace != nil {
		p.trace.addSegment(traceSegmentAlloc, b)
	}
	return block
}

// dropSegment gives an empty segment back. p.mu is held.
func (p *Pool) dropSegment(n int32) {
	base, units := p.heap.RemoveSegment(n)
	p.freeSegment(n, base, units)
}

func (p *Pool) freeSegment(n int32, base uintptr, units uint32) {
	b := p.segs[n].block(base, uintptr(units)*unit)
	p.segs[n] = poolSegment{}
	p.counters.segmentDropped(uint64(b.Size))
	if p.trace != nil {
		p.trace.addSegment(traceSegmentFree, b)
	}
	p.upstream.Free(b)
}

// reuseIdle takes a dedicated segment out of use that wastes at most an eighth.
// p.mu is held.
func (p *Pool) reuseIdle(w *want) *owner.Cell {
	best := -1
	need, align := uintptr(w.units)*unit, uintptr(w.align)*unit
	for at := range p.idle {
		size := p.idle[at].size
		if size < need || size-need > need/8 || p.idle[at].address%align != 0 {
			continue
		}
		if best < 0 || size < p.idle[best].size {
			best = at
		}
	}
	if best < 0 {
		return nil
	}
	return p.takeIdle(best)
}

// takeIdle takes one off the list. p.mu is held.
func (p *Pool) takeIdle(at int) *owner.Cell {
	s := p.idle[at]
	p.idle = append(p.idle[:at], p.idle[at+1:]...)
	p.counters.idleBytes -= uint64(s.size)
	return s.cell
}

// maxIdle bounds the search for an idle segment.
const maxIdle = 32

// retire keeps a dedicated segment for reuse, and lets the oldest go while more
// than a sixteenth of what is reserved is idle in this way. p.mu is held.
func (p *Pool) retire(c *owner.Cell) {
	p.idle = append(p.idle, idleSegment{c, c.Address, uintptr(c.Size), p.ticks})
	p.counters.idleBytes += c.Size
	for len(p.idle) > 0 && (p.closed || len(p.idle) > maxIdle || p.counters.idleBytes > p.counters.reserved/16) {
		p.dropIdle(0)
	}
	p.last()
}

func (p *Pool) dropIdle(at int) (freed uint64) {
	freed = uint64(p.idle[at].size)
	c := p.takeIdle(at)
	block := int32(c.Block)
	owner.Recycle(c)
	n := p.heap.Segment(block)
	base, units := p.heap.RemoveUsed(block)
	p.freeSegment(n, base, units)
	return freed
}

// dissolve ends a block that has no class. p.mu is held.
func (p *Pool) dissolve(c *owner.Cell) {
	if c.Private == ownSegment {
		p.retire(c)
		return
	}
	p.toHeap(c)
}

// release gives empty segments and idle ones back until at most keep bytes of
// them are left. p.mu is held.
func (p *Pool) release(keep uint64) (freed uint64) {
	for len(p.idle) > 0 && p.spare() > keep {
		freed += p.dropIdle(0)
	}
	for _, n := range p.heap.EmptySegmentNumbers(nil) {
		if p.spare() <= keep {
			break
		}
		_, size := p.heap.SegmentBase(n)
		freed += uint64(size)
		p.dropSegment(n)
	}
	return freed
}

// spare is what release could give back. p.mu is held.
func (p *Pool) spare() uint64 {
	return p.counters.idleBytes + p.heap.Counts().EmptyUnits*tlsf.Unit
}

// Trim implements [Trimmer]: the caches dissolve, and empty segments go back to
// the upstream until at most keep bytes of them are left.
func (p *Pool) Trim(keep uint64) (freed uint64) {
	p.origin.list.Drain()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collect(-1)
	p.flush()
	return p.release(keep)
}
