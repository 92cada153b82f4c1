package memmgr

import (
	"errors"
	"sort"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
	"github.com/usmbridge/usmbridge/memmgr/owner"
)

var (
	errTooLarge = errors.New("larger than any memory this pool could manage")
	errLimit    = errors.New("the limit is reached")
)

// errNoCells: memory was there, an owner for it was not.
var errNoCells = owner.ErrNoMemory

// growFor gets memory for a request that the pool could not serve: from its
// caches, from the upstream, and when that refuses by everything else there is.
func (p *Pool) growFor(w *want) (*owner.Cell, error) {
	if err := p.beginGrowth(w); err != nil {
		return nil, err
	}
	defer func() { <-p.growing }()
	p.mu.Lock()
	if !p.dedicated(w) {
		p.flush()
	}
	c := p.find(w)
	size, need := p.segmentFor(w)
	p.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := p.grow(w, size, need)
	if err == nil || !errors.Is(err, ErrOutOfMemory) {
		return c, err
	}
	return p.scrape(w, need, err)
}

// beginGrowth lets one goroutine at a time ask the upstream: the others find
// what it got.
func (p *Pool) beginGrowth(w *want) error {
	if ctx := w.r.Context; ctx != nil {
		select {
		case p.growing <- struct{}{}:
			return nil
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.outOfMemory(w, ctx.Err())
		}
	}
	p.growing <- struct{}{}
	return nil
}

// segmentFor returns the size of the next segment, and the least that serves
// the request. p.mu is held.
func (p *Pool) segmentFor(w *want) (size, need uintptr) {
	need = uintptr(w.units) * unit
	if p.dedicated(w) {
		need = roundUp(need, 4096)
		return need, need
	}
	// The alignment of a new segment is as asked, so none of it is lost.
	size = max(need, p.options.minSegment, uintptr(p.counters.reserved)/p.options.growth)
	return roundUp(size, 64<<10), roundUp(need, 4096)
}

// grow asks the upstream for a segment, for half of it when refused, down to
// what the request needs.
func (p *Pool) grow(w *want, size, need uintptr) (*owner.Cell, error) {
	for {
		c, err := p.ask(w, size)
		if err == nil || size <= need || !errors.Is(err, ErrOutOfMemory) {
			return c, err
		}
		size = max(roundUp(size/2, 4096), need)
	}
}

func (p *Pool) ask(w *want, size uintptr) (*owner.Cell, error) {
	b, err := p.upstream.Allocate(Request{
		Size: size, Align: max(unit, uintptr(w.align)*unit), Tag: "pool segment", Context: w.r.Context,
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // meanwhile
		p.upstream.Free(b)
		return nil, p.closedError()
	}
	b.Size &^= unit - 1
	block := p.addSegment(b, p.dedicated(w))
	var c *owner.Cell
	if block < 0 {
		c = p.find(w)
	} else if c = p.newCell(block, ownSegment); c == nil {
		n := p.heap.Segment(block)
		base, units := p.heap.RemoveUsed(block)
		p.freeSegment(n, base, units)
	}
	if c == nil {
		return nil, p.outOfMemory(w, errNoCells)
	}
	return c, nil
}

// scrape is the order of what is tried when the upstream is out of memory.
func (p *Pool) scrape(w *want, need uintptr, cause error) (*owner.Cell, error) {
	for round := 0; ; round++ {
		for _, step := range []func(){
			p.collectAll,
			p.awaitAll,
			p.dissolveCaches,
			p.reclaim,
		} {
			step()
			if c := p.retry(w); c != nil {
				return c, nil
			}
		}
		p.mu.Lock()
		p.release(0)
		p.mu.Unlock()
		c, err := p.ask(w, need)
		if err == nil || !errors.Is(err, ErrOutOfMemory) {
			return c, err
		}
		p.mu.Lock()
		failure := p.outOfMemory(w, cause)
		if round > 0 || p.options.onOOM == nil {
			p.counters.ooms++
			if p.trace != nil {
				p.trace.addOOM(uint64(need))
			}
			p.mu.Unlock()
			return nil, failure
		}
		p.mu.Unlock()
		if !p.options.onOOM(failure) {
			round++ // tell the counters, and fail
		}
	}
}

// retry looks again after a step has made room.
func (p *Pool) retry(w *want) *owner.Cell {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counters.retries++
	return p.find(w)
}

func (p *Pool) collectAll() {
	p.origin.list.Drain()
	p.mu.Lock()
	p.collect(-1)
	p.mu.Unlock()
}

func (p *Pool) dissolveCaches() {
	p.mu.Lock()
	p.flush()
	p.mu.Unlock()
}

func (p *Pool) reclaim() {
	runReclaimers()
	p.collectAll()
	p.dissolveCaches()
}

// reclaimers free memory that others hold without need.
var reclaimers struct {
	mu  sync.Mutex
	all map[int]func()
	n   int
}

// AddReclaimer registers a function that every pool calls when it is out of
// memory, so that owners elsewhere can let go: a list of objects of another
// runtime to be released, a cache. It may run on any goroutine, at any depth of
// an allocation, and must not allocate from a pool. The result unregisters it.
func AddReclaimer(f func()) (remove func()) {
	reclaimers.mu.Lock()
	defer reclaimers.mu.Unlock()
	if reclaimers.all == nil {
		reclaimers.all = map[int]func(){}
	}
	reclaimers.n++
	id := reclaimers.n
	reclaimers.all[id] = f
	return func() {
		reclaimers.mu.Lock()
		defer reclaimers.mu.Unlock()
		delete(reclaimers.all, id)
	}
}

func runReclaimers() {
	reclaimers.mu.Lock()
	all := make([]func(), 0, len(reclaimers.all))
	for _, f := range reclaimers.all {
		all = append(all, f)
	}
	reclaimers.mu.Unlock()
	for _, f := range all {
		f()
	}
	wrapped.list().Drain()
}

// outOfMemory gives the whole account of a failure. p.mu is held.
func (p *Pool) outOfMemory(w *want, cause error) *OutOfMemoryError {
	e := &OutOfMemoryError{
		Request: *w.r, Place: p.Place(), Rounded: uint64(w.units) * unit,
		LargestFree: uint64(p.heap.Largest()),
		Reserved:    p.counters.reserved,
		Pending:     p.pending.bytes + p.counters.returnedBytes,
		Holders:     p.holders(8),
		Err:         cause,
	}
	for _, h := range e.Holders {
		e.Allocated += h.Bytes
	}
	e.Allocated = p.liveBytes()
	if l, ok := As[*Limit](p.upstream); ok {
		e.Limit = l.Bytes()
	}
	if d, ok := As[deviceSized](p.upstream); ok {
		e.DeviceTotal = d.DeviceTotal()
	}
	return e
}

// eachUsed calls f for the cells of this pool that users hold. p.mu is held.
func (p *Pool) eachUsed(f func(*owner.Cell)) {
	p.heap.Walk(func(int32, uintptr, uintptr) {}, func(b tlsf.Piece) {
		if b.Free || b.User == 0 {
			return
		}
		if c := owner.At(b.User); c.Count() > 0 {
			f(c)
		}
	})
}

func (p *Pool) liveBytes() (n uint64) {
	p.eachUsed(func(c *owner.Cell) { n += c.Size })
	return n
}

// holders sums what users hold by tag, biggest first. p.mu is held.
func (p *Pool) holders(most int) []Holder {
	sums := make([]Holder, tagCount())
	p.eachUsed(func(c *owner.Cell) {
		if int(c.Tag) < len(sums) {
			sums[c.Tag].Bytes += c.Size
			sums[c.Tag].Count++
		}
	})
	var all []Holder
	for tag, s := range sums {
		if s.Count > 0 {
			s.Tag = tagName(uint32(tag))
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Bytes > all[j].Bytes })
	return all[:min(most, len(all))]
}
