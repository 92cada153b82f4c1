package memmgr

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

var errTooLarge = errors.New("larger than any memory this pool could manage")

// errNoRoom: a limit has less room than a request needs. The account follows.
var errNoRoom error = &OutOfMemoryError{Err: errLimit}

// errNoCells: memory was there, an owner for it was not.
var errNoCells = owner.ErrNoMemory

// maxSegment is the largest segment in bytes: 31 bits number its units, and on 32-bit
// systems it is at most half of the address space.
const maxSegment uintptr = min(1<<31*unit, math.MaxUint/2+1)

// growFor gets memory for a request that the pool could not serve from what it
// has: from its caches, from the upstream, and when that refuses by everything
// else there is ([Pool.scrape]). Then a request with a context waits.
func (p *Pool) growFor(w *want) (*owner.Cell, error) {
	for again := false; ; again = true {
		switch behind, yields := p.standsBehind(w); {
		case behind:
			return p.await(w)
		case yields:
			return nil, p.failed(w, errSoft)
		}
		c, err := p.extend(w)
		if err != nil && ranOut(err) && !ended(w.r.Context) {
			c, err = p.scrape(w, err)
		}
		if err == nil || !ranOut(err) {
			return c, err
		}
		over := ended(w.r.Context)
		if !over && !again && p.options.onOOM != nil && p.options.onOOM(p.refuse(w, err)) {
			continue
		}
		if !over && p.mayWait(w) {
			return p.await(w)
		}
		if over {
			err = w.r.Context.Err() // what ended the request
		}
		return nil, p.failed(w, err)
	}
}

var errSoft = errors.New("the tenant has more than its soft limit, and others wait")

// standsBehind tells whether a request has to stand in line, and whether it is
// refused because it cannot and others come first.
func (p *Pool) standsBehind(w *want) (behind, yields bool) {
	if w.r.Context == nil && w.tenant == nil {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// While room is kept for somebody, nobody else asks the upstream on its own.
	behind = p.waitsBehind(w) || w.r.Context != nil && p.waiters.hold.of != nil
	return behind, !behind && p.waiters.n > 0 && p.yieldsFirst(w)
}

// mayWait tells whether a request has a context to wait with, and memory could
// ever suffice for it.
func (p *Pool) mayWait(w *want) bool {
	need := uint64(w.units) * unit
	for _, l := range p.limits {
		if need > l.Bytes() {
			return false
		}
	}
	if d := p.deviceSized; d != nil && d.DeviceTotal() != 0 && need > d.DeviceTotal() {
		return false
	}
	return w.r.Context != nil
}

// beginGrowth lets one goroutine at a time ask the upstream: the others find
// what it got. It is held across that question alone.
func (p *Pool) beginGrowth(ctx context.Context) error {
	checkRank(rankGrowing)
	if ctx == nil {
		p.growing <- struct{}{}
		return nil
	}
	select {
	case p.growing <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.growing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended tells whether a request's context is over; nil never is.
func ended(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

func (p *Pool) endGrowth() { <-p.growing }

// extend serves a request from the caches, where that is possible, or from a new
// segment.
func (p *Pool) extend(w *want) (*owner.Cell, error) {
	if err := p.beginGrowth(w.r.Context); err != nil {
		return nil, err
	}
	defer p.endGrowth()
	p.mu.Lock()
	c := p.find(w) // others may have got it meanwhile
	if c == nil && !p.dedicated(w) {
		c = p.findInCaches(w, 0)
	}
	size, need := p.segmentFor(w)
	w.returns = p.mu.returns
	p.mu.Unlock()
	if c != nil {
		return c, nil
	}
	return p.grow(w, size, need)
}

// segmentNeed returns the size of the smallest segment that serves a request.
func (p *Pool) segmentNeed(w *want) uint64 { return uint64(roundUp(uintptr(w.units)*unit, 4096)) }

// segmentFor returns the size of the next segment, and the least that serves
// the request. p.mu is held.
func (p *Pool) segmentFor(w *want) (size, need uintptr) {
	need = uintptr(p.segmentNeed(w))
	if p.dedicated(w) {
		return need, need
	}
	// The alignment of a new segment is as asked, so none of it is lost. However
	// much is reserved, segments stay so small that they become empty again.
	growth := min(uintptr(p.counters.reserved)/p.options.growth, 2*p.options.large)
	size = max(need, p.options.minSegment, growth)
	// Whole multiples, so that requests like this one leave no rest.
	size = (roundUp(size, 64<<10) + need - 1) / need * need
	return min(size, maxSegment/need*need), need
}

// grow asks the upstream for a segment, for half of it when refused, down to
// what the request needs. A limit on the way is asked for its room first, so
// that a refusal costs one question at most.
func (p *Pool) grow(w *want, size, need uintptr) (*owner.Cell, error) {
	if tight, room := p.limitRoom(); tight != nil && room < uint64(size) {
		if room < uint64(need) {
			return nil, errNoRoom
		}
		size = max(uintptr(room)&^(4096-1), need)
	}
	for {
		c, err := p.ask(w, size)
		if err == nil || size <= need || !ranOut(err) || ended(w.r.Context) {
			return c, err
		}
		size = max(size/2/need*need, need)
	}
}

// limitRoom returns the tightest limit between the pool and its memory, and the
// bytes that it has left; nil when there is none.
func (p *Pool) limitRoom() (tight *Limit, room uint64) {
	for _, l := range p.limits {
		if r := l.budget.room(); l.bounds() && (tight == nil || r < room) {
			tight, room = l, r
		}
	}
	return tight, room
}

// limitsOf lists the limits whose room tells what a resource can still give: those
// on the way down through resources that pass each request on as it is. Behind others,
// such as a pool with memory of its own, nobody knows without asking.
func limitsOf(r Resource) (all []*Limit) {
	for {
		if l, ok := r.(*Limit); ok {
			all = append(all, l)
		}
		through, ok := r.(interface{ passesTo() Resource })
		if !ok {
			return all
		}
		r = through.passesTo()
	}
}

func (p *Pool) ask(w *want, size uintptr) (*owner.Cell, error) {
	start := time.Now()
	r := Request{Size: size, Align: max(unit, uintptr(w.align)*unit), Tag: "pool segment"}
	if !p.poolBelow { // else that would wait, with this pool's right to grow
		r.Context = w.r.Context
	}
	b, err := p.upstream.Allocate(r)
	p.upstreamCalls.add(time.Since(start), 1)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closed { // meanwhile
		p.mu.Unlock()
		p.upstream.Free(b)
		return nil, p.closedError()
	}
	defer p.mu.Unlock()
	p.futile = futileFlush{}
	b.Size = min(b.Size, maxSegment) &^ (unit - 1)
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

// ranOut tells whether memory, or the time to wait for it, ran out: an ended
// context counts, whether the upstream gave it a type or not.
func ranOut(err error) bool {
	return errors.Is(err, ErrOutOfMemory) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
