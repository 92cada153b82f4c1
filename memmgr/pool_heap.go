package memmgr

import (
	"math"
	"math/bits"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// want is a request in the pool's own terms.
type want struct {
	r     Request // a copy: a pointer would keep requests on the Go heap
	class int
	units uint32
	align uint32 // units

	tenant  *Tenant // on whose account, nil for the pool's own
	amount  int64   // that it is charged with
	owes    bool    // it gave that back to stand in line
	returns uint64  // of the lock, when the upstream was asked
}

func (p *Pool) wanted(r *Request, units uintptr) want {
	w := want{r: *r, class: noClass, units: uint32(units), align: uint32(max(r.Alignment()/unit, 1))}
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
	w, err := p.wantFor(&request)
	if err != nil {
		return Buffer{}, err
	}
	return p.serve(&w)
}

// kept returns a copy on the Go heap, for those who may wait: a request that the pool
// serves at once takes nothing from it.
func (w *want) kept() *want {
	k := *w
	return &k
}

// wantFor checks a request and puts it in the pool's terms.
func (p *Pool) wantFor(r *Request) (want, error) {
	if err := r.Check(); err != nil {
		return want{}, err
	}
	units := max((r.Size+unit-1)/unit, p.minUnits)
	if units > maxSegment/unit || r.Alignment() > maxSegment {
		return want{}, &OutOfMemoryError{Request: *r, Place: p.Place(), Rounded: uint64(units) * unit, Err: errTooLarge}
	}
	return p.wanted(r, units), nil
}

// handOver makes a block that was found the buffer of a request.
func (p *Pool) handOver(c *owner.Cell, w *want) Buffer {
	c.Requested = uint64(w.r.Size)
	if w.tenant != nil {
		w.tenant.mark(c)
	}
	setState(c, stateInUse)
	b := Buffer{ref: c.Renew()}
	p.annotate(c, w.r.Tag, w.r.Queue)
	return b
}

// serve gives a request a block: of the processor's spare ones, of the pool, of the
// upstream.
func (p *Pool) serve(w *want) (Buffer, error) {
	if c := p.fromSpare(w); c != nil {
		return p.handOver(c, w), nil
	}
	since, stands := p.lockTimed()
	if p.closed {
		p.mu.Unlock()
		return Buffer{}, p.closedError()
	}
	p.addShards()
	c := p.findNow(w)
	if c == nil {
		p.mu.Unlock()
		var err error
		since, stands = now(), 1
		k := w.kept()
		if c, err = p.growFor(k); err != nil {
			w.owes = k.owes
			p.slow.add(now()-since, stands)
			return Buffer{}, err
		}
		p.mu.Lock()
	}
	p.count(c, w)
	stock := p.restock(w)
	p.mu.Unlock()
	if stock.n != 0 {
		p.toFront(stock, w.class)
	}
	b := p.handOver(c, w)
	if stands != 0 {
		p.slow.add(now()-since, stands)
	}
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
		p.collectNow(16)
	}
	return p.findFree(w)
}

// findFree takes a block from what nobody uses. p.mu is held.
func (p *Pool) findFree(w *want) *owner.Cell {
	if w.class != noClass {
		if c := p.popDepot(w.class); c != nil {
			return c
		}
	} else if p.dedicated(w) {
		return p.reuseIdle(w)
	}
	if w.units > coarseUnits {
		p.gather(w.units)
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

// carveAny is carve as the last resort, once the caches are dissolved: of any free
// block that holds the request, however large or small it is, with neither the
// rounding of the size classes nor the bound of the search for an aligned place.
// p.mu is held.
func (p *Pool) carveAny(w *want) *owner.Cell {
	units := p.leastUnits(w)
	i := p.heap.Alloc(units, w.align)
	if i < 0 && w.align > 1 {
		i = p.heap.AllocLying(units, w.align, -1)
	}
	if i < 0 {
		return nil
	}
	class := noClass
	if units == w.units {
		class = w.class
	}
	c := p.newCell(i, class)
	if c == nil {
		p.heap.Free(i)
	}
	return c
}

// leastUnits is what serves a request without the rounding of the size classes.
func (p *Pool) leastUnits(w *want) uint32 { return uint32(max((w.r.Size+unit-1)/unit, p.minUnits)) }

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
	setState(c, stateInHand)
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
	s.countTake(w.class, uint64(w.r.Size))
	return c
}

// restock takes a magazine along for the front, so that the next requests need
// no lock: one that is there, or a few blocks cut out now, with their bytes of the
// budget. p.mu is held.
func (p *Pool) restock(w *want) (m magazine) {
	if w.class == noClass || p.pressed {
		return m
	}
	if m = p.popMagazine(w.class); m.n != 0 {
		return m
	}
	size, most := classBytes[w.class], int64(classBatch(w.class)-1)
	granted := p.budget.take(min(size, size*most), size*(most-1))
	for n := granted / size; n > 0; n-- {
		c := p.carve(w)
		if c == nil {
			break
		}
		m.push(c)
	}
	p.budget.give(granted - m.bytes(w.class))
	return m
}

func (m *magazine) push(c *owner.Cell) {
	setState(c, stateCached)
	c.Next = m.head
	m.head = owner.LinkTo(c)
	m.n++
}

// bytes returns the size of all blocks together.
func (m *magazine) bytes(k int) int64 { return classBytes[k] * int64(m.n) }

// toFront puts blocks that nobody uses into the bin of the caller's shard.
func (p *Pool) toFront(m magazine, k int) {
	back := m
	if s := p.enter(); s != nil {
		back = s.stock(k, m)
		// Who takes more than it gives back would hoard the bytes of what it took.
		p.lower(s, s.slack()-m.bytes(k)-peakStep)
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
	setState(c, stateFree)
	owner.Recycle(c)
	seg := p.heap.Segment(block)
	p.freed(seg, p.heap.Free(block))
}

// freed notes that a block of a segment went back to the heap, and that the
// segment is empty now. p.mu is held.
func (p *Pool) freed(seg int32, empty bool) {
	if !empty {
		return
	}
	p.segs[seg].emptyTick = p.ticks
	if p.closed {
		p.dropSegment(seg)
		p.last()
		return
	}
	p.retain()
}

// last ends a closed pool's part in the tables with its last block. p.mu is
// held.
func (p *Pool) last() {
	if p.leaked && p.heap.Counts().Segments == 0 {
		p.leaked = false
		p.origin.removePool()
	}
}

// flush dissolves every block that front and depot keep. p.mu is held.
func (p *Pool) flush() {
	p.stopShards()
	for s := range p.allShards() {
		p.dissolveBins(s)
	}
	p.resumeShards()
	p.dissolveCold(math.MaxInt)
	if p.counters.depotBytes == 0 {
		return
	}
	for k := range p.depot {
		for m := p.popMagazine(k); m.n != 0; m = p.popMagazine(k) {
			p.dissolveAll(m)
			p.budget.give(m.bytes(k))
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
		n, block = p.heap.AddSegment(b.Address, units, p.untouched(b.Address, b.Size)), -1
	}
	for int(n) >= len(p.segs) {
		p.segs = append(p.segs, poolSegment{})
	}
	p.segs[n] = poolSegment{
		cookie: b.Cookie, requested: b.Requested, emptyTick: p.ticks,
		align: uint8(bits.TrailingZeros64(uint64(b.Align))), dedicated: dedicated,
	}
	p.counters.segmentAdded(uint64(b.Size))
	p.noteOrdinary()
	p.raiseBound()
	if p.trace != nil {
		p.trace.addSegment(traceSegmentAlloc, b)
	}
	return block
}

// dropSegment gives an empty segment back, when the lock is let go. p.mu is held.
func (p *Pool) dropSegment(n int32) {
	base, units := p.heap.RemoveSegment(n)
	p.freeSegment(n, base, units)
}

func (p *Pool) freeSegment(n int32, base uintptr, units uint32) {
	b := p.segs[n].block(base, uintptr(units)*unit)
	p.segs[n] = poolSegment{}
	p.counters.segmentDropped(uint64(b.Size))
	p.noteOrdinary()
	if p.trace != nil {
		p.trace.addSegment(traceSegmentFree, b)
	}
	p.mu.drop(b)
}

// dissolve ends a block that has no class. p.mu is held.
func (p *Pool) dissolve(c *owner.Cell) {
	if c.Private == ownSegment {
		p.retire(c)
		return
	}
	p.toHeap(c)
}
