package memmgr

import (
	"errors"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// What a pool does before it refuses a request, in this order, and what it tells
// then. Nothing here looks at live blocks, and nothing stops the processors
// unless the caches hold enough to serve the request: a refusal that nothing can
// help costs microseconds, whatever is live.

// scrape tries everything beside the upstream, which has just refused for the
// given cause: blocks whose work is done, the caches and empty segments, and what
// others hold without need.
func (p *Pool) scrape(w *want, cause error) (*owner.Cell, error) {
	emptyFronts()
	drainCells()
	p.origin.list.Drain()
	if c, err := p.scrapeOwn(w, cause); err == nil || !ranOut(err) {
		return c, err
	}
	if p.othersGiveWay(p.segmentNeed(w)) {
		p.releaseFor(p.segmentNeed(w))
		if c, err := p.askLeast(w); err == nil || !ranOut(err) {
			return c, err
		}
	}
	return nil, cause
}

// releaseFor gives this pool's own part of the room back that a limit lacks for a
// segment, if that is enough together with what others gave.
func (p *Pool) releaseFor(need uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tight, room := p.limitRoom(); tight != nil && room < need && room+p.heap.spare() >= need {
		p.heap.release(0)
	}
}

// askLeast asks the upstream for as little as serves the request.
func (p *Pool) askLeast(w *want) (*owner.Cell, error) {
	if err := p.beginGrowth(w.r.Context); err != nil {
		return nil, err
	}
	defer p.endGrowth()
	need := uintptr(p.segmentNeed(w))
	return p.grow(w, need, need)
}

// scrapeOwn gives up what this pool keeps without need, as far as that can serve
// the request, and asks the upstream again when segments went back. It returns
// the cause when nothing helped.
func (p *Pool) scrapeOwn(w *want, cause error) (*owner.Cell, error) {
	p.completeSome(refusalLooks)
	p.purging.await()
	p.mu.Lock()
	need := p.segmentNeed(w)
	room := need - 1 // it was refused: that much at most
	if tight, left := p.limitRoom(); tight != nil {
		room = min(room, left)
	}
	p.counters.retries++
	c := p.find(w)
	if c == nil && p.opensHold(w) {
		c = p.heap.carveAny(w)
	}
	if c == nil {
		c = p.findInCaches(w, room)
	}
	if c == nil {
		c = p.heap.carveAny(w)
	}
	if c == nil && p.heap.openIdle(w) {
		c = p.heap.carveAny(w)
	}
	released := uint64(0)
	if c == nil && p.heap.spare()+room >= need {
		released = p.heap.release(0)
	}
	if c == nil && (p.mu.awaitReturned() || p.mu.returns != w.returns) {
		released++ // by others, who had not told the upstream when it was asked
	}
	w.returns = p.mu.returns
	p.mu.Unlock()
	if c != nil {
		return c, nil
	}
	if released == 0 {
		return nil, cause
	}
	return p.askLeast(w)
}

// refusalLooks is how many pending blocks a refusal looks at in vain; the keeper
// looks at the others.
const refusalLooks = 64

// futileFlush remembers a dissolution of the caches that served nobody: it is not
// repeated for a request of that size or more while no more memory is free than
// then, for some time, because it stops every processor.
type futileFlush struct {
	need, free uint64
	until      time.Time
}

// A futile flush is repeated after futileTime, or later when it took long.
const (
	futileTime  = time.Millisecond
	futileShare = 20 // of the time at most one part goes to futile flushes
)

// findInCaches dissolves the caches and looks again, if what is free in front,
// depot and heap together with so much room could serve the request. p.mu is held.
func (p *Pool) findInCaches(w *want, room uint64) *owner.Cell {
	cached := p.cachedBytes()
	if cached <= 0 {
		return nil
	}
	need := uint64(w.least) * unit
	free := uint64(cached) + p.heap.Counts().FreeUnits*unit
	if free+room < need {
		return nil
	}
	start := time.Now()
	f := &p.futile
	if need >= f.need && free <= f.free && start.Before(f.until) {
		return nil
	}
	p.flush()
	c := p.find(w)
	if c == nil {
		end := time.Now()
		*f = futileFlush{need, free, end.Add(max(futileTime, futileShare*end.Sub(start)))}
	}
	return c
}

// cachedBytes is what front and depot hold, as well as can be told without
// stopping anybody. p.mu is held.
func (p *Pool) cachedBytes() int64 {
	return p.heap.depot.bytes + p.cached()
}

// inUse is what users hold, as well as can be told without stopping anybody: exact
// while nobody allocates or releases.
func (p *Pool) inUse() (bytes, blocks int64) {
	bytes, blocks = p.unpublished()
	return bytes + p.published.bytes.now.Load(), blocks + p.published.blocks.now.Load()
}

// drainCells takes back what C code dropped of wrapped memory and of resources
// above a pool, whose memory may belong to this pool.
func drainCells() {
	wrapped.list().Drain()
	plainCells().Drain()
}

// refuse is outOfMemory for callers without the lock.
func (p *Pool) refuse(w *want, cause error) *OutOfMemoryError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outOfMemory(w, cause)
}

// failed counts a request that fails for good, and makes its error.
func (p *Pool) failed(w *want, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(w, cause)
}

// fail is failed for callers with the lock.
func (p *Pool) fail(w *want, cause error) *OutOfMemoryError {
	p.counters.ooms++
	if p.trace != nil {
		p.trace.addOOM(uint64(w.units) * unit)
	}
	return p.outOfMemory(w, cause)
}

// outOfMemory gives the whole account of a failure. p.mu is held.
func (p *Pool) outOfMemory(w *want, cause error) *OutOfMemoryError {
	p.settleLarge()
	bytes, blocks := p.inUse()
	e := &OutOfMemoryError{
		Request: w.r, Place: p.Place(), Rounded: uint64(w.units) * unit,
		LargestFree: uint64(p.heap.Largest()),
		Allocated:   uint64(max(bytes, 0)),
		Reserved:    p.heap.count.reserved,
		Pending:     p.pending.bytes + p.counters.returnedBytes,
		Holders:     p.holders(bytes, blocks),
		Err:         reasonOf(cause),
	}
	if w.tenant != nil {
		e.Tenant = w.tenant.name
	}
	if tight, _ := p.limitRoom(); tight != nil {
		e.Limit = tight.Bytes()
	} else if l, ok := As[*Limit](p.upstream); ok && l.bounds() {
		e.Limit = l.Bytes()
	}
	if p.deviceSized != nil {
		e.DeviceTotal = p.deviceSized.DeviceTotal()
	}
	return e
}

// holders lists the biggest holders by tenant and tag, of so much in all.
func (p *Pool) holders(bytes, blocks int64) (all []Holder) {
	p.eachTenant(func(t *Tenant) {
		b, n := t.inUse()
		all = append(all, t.tagged.holders(t.name, b, n)...)
		bytes, blocks = bytes-b, blocks-n
	})
	return biggest(append(all, p.tagged.holders("", bytes, blocks)...))
}

// reasonOf passes over an account of a limit or of this pool, so that one account
// tells it all.
func reasonOf(cause error) error {
	var oom *OutOfMemoryError
	if errors.As(cause, &oom) && (errors.Is(oom.Err, errLimit) || oom.Reserved != 0) {
		return oom.Err
	}
	return cause
}
