package memmgr

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Waiting for memory. A request with a context that cannot be served waits in its pool
// until it is served or its context ends.
//
// Waiters stand in lines: one of the pool and one of each tenant. Each line is first come, first
// served. When memory is freed, the pool tries the lines in the order of their weighted service
// ([waitLine.virtual]), and in a line the oldest waiter, the next few behind it and the smallest
// request. So a large request that cannot be served does not block small ones.
//
// Small requests could take all freed memory. Therefore the pool reserves memory
// for a waiter that is first of its line when more than [waiter.patience] went to other
// requests, or when enough is free for it in pieces; see reservation.go.
//
// A request without a context never waits, and other requests do not wait for it: it takes
// free memory or is refused.
//
// While a request waits, the pool is pressed ([Pool.press]): the caches are empty, and each
// freed block goes to the heap, merges there and serves the lines. One waiter is the poller
// ([Pool.poll]): it completes blocks whose device work is done and asks other pools for
// memory. When it leaves, another waiter becomes the poller.
//
// [waitlist] is the part with the lines. The methods of Pool below connect it to the heap, to
// the tenants and to the upstream.

// waitsBehind reports whether a new request must queue before it is tried. p.mu is held.
func (p *Pool) waitsBehind(w *want) bool {
	if p.waitlist.n == 0 || !p.mayWait(w) {
		return false
	}
	return len(p.waitlist.lineOf(w).waiters) > 0 || p.yieldsFirst(w)
}

// yieldsFirst reports whether a request is served after all waiters of other accounts, because
// its tenant is above its soft limit. p.mu is held.
func (p *Pool) yieldsFirst(w *want) bool {
	return w.tenant != nil && p.waitlist.n > len(w.tenant.line.waiters) && w.tenant.overSoft()
}

// countServed counts bytes that a request got while others wait. p.mu is held.
func (p *Pool) countServed(bytes uint64) {
	if p.waitlist.n > 0 {
		p.waitlist.served += bytes
	}
	for _, l := range p.limits {
		if l.budget.waitsFor(&p.waitlist) {
			l.budget.served.Add(bytes)
		}
	}
}

// await waits until a request that was refused is served or its context ends. While the request waits for
// memory, its tenant is not charged: other requests of the tenant may use that room. p.mu is held on return if the
// request was served.
func (p *Pool) await(request *want, refusal error) (*owner.Cell, error) {
	start, w := now(), new(want) // only a request that waits needs a want on the Go heap
	*w = *request
	w.waits = true
	defer func() {
		request.owes = w.owes
		p.account.Waits.Add(now()-start, 1)
	}()
	if t := w.tenant; t != nil {
		t.suspendCharge(w)
		defer t.endSuspension()
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, p.closedError()
	}
	if w.tenant != nil && w.tenant.closed.Load() {
		p.mu.Unlock()
		return nil, w.tenant.closedError()
	}
	if p.waitlist.n == 0 {
		p.press(true)
	}
	x := p.waitlist.add(w)
	if refusal != nil && p.options.onOOM == nil { // else it was counted
		p.account.Retries++
	}
	if deviceReason(refusal) != nil {
		p.reclaim.refused.note(p.segmentNeed(w), refusal)
	}
	p.serveWaiters() // from memory that was freed since the last search
	if refusal != nil {
		p.waitlist.asked = time.Time{}
		p.waitlist.signalPoller() // it takes the steps that may free memory
	}
	p.mu.Unlock()
	returned := false
	defer func() {
		if !returned { // the upstream panicked
			_ = p.giveUp(x, context.Canceled)
		}
	}()
	ready := x.await(func(interval time.Duration) time.Duration { return p.poll(x, interval) })
	returned = true
	if !ready || x.err == nil && ended(w.r.Context) {
		return nil, p.giveUp(x, w.r.Context.Err())
	}
	if x.err == nil {
		p.mu.Lock()
	}
	return x.cell, x.err
}

// giveUp ends a wait whose context ended. A block that was granted at the last moment goes
// back.
func (p *Pool) giveUp(x *waiter, cause error) error {
	p.mu.Lock()
	if x.err != nil {
		p.mu.Unlock()
		return x.err
	}
	if x.gone.Load() {
		p.putBack(x.cell)
		x.cell = nil
		if t := x.w.tenant; t != nil && !x.w.owes {
			x.w.owes = true
			t.discharge(x.w.amount)
		}
	} else {
		p.leave(x)
	}
	p.serveWaiters()
	p.relax()
	if refusal := p.reclaim.refused.since(x.since); refusal != nil {
		cause = fmt.Errorf("%w; the last refusal: %w", cause, refusal)
	}
	p.mu.Unlock()
	return p.fail(x.w, cause)
}

// leave takes a waiter out of its line and ends its reservations. p.mu is held.
func (p *Pool) leave(x *waiter) {
	p.waitlist.remove(x)
	if p.waitlist.reserved.of == x {
		p.endReservation()
	} else {
		x.endTenantReservation(time.Now())
	}
}

// grant ends a wait with a block. If the tenant has no room any more, it frees the block and
// reports false. p.mu is held.
func (p *Pool) grant(x *waiter, c *owner.Cell) bool {
	if t := x.w.tenant; t != nil && !t.chargeWaiter(x) {
		p.putBack(c)
		return false
	}
	p.countServed(c.Size)
	p.waitlist.count(x.line, c.Size)
	x.cell = c
	p.leave(x)
	close(x.ready)
	return true
}

// serveWaiters serves waiters from freed memory, and offers the rest to other pools. Before, it ends a reservation for
// a waiter of another pool that has left, or whose pool did not renew it. p.mu is held.
func (p *Pool) serveWaiters() {
	if r := &p.waitlist.reserved; r.foreign && (r.of.gone.Load() || time.Now().After(r.until)) {
		p.endReservation()
		p.relax()
	}
	if p.waitlist.n != 0 {
		p.serveLines()
	}
	p.helpOthers()
}

// helpOthers presses the pool while requests of other pools wait for room of a limit that bounds it too,
// and offers its empty segments to them. p.mu is held.
func (p *Pool) helpOthers() {
	l := &p.waitlist
	waits := false
	for _, limit := range p.limits {
		if !limit.budget.waitsFor(l) {
			continue
		}
		waits = true
		if empty := p.heap.EmptyBytes(); empty != 0 && (l.reserved.of == nil || l.reserved.foreign) {
			limit.budget.offer(l, empty)
		}
	}
	switch {
	case waits && !p.closed:
		l.helps = true
		p.press(true)
	case l.helps && !waits:
		l.helps = false
		p.relax()
	}
}

func (p *Pool) serveLines() {
	l := &p.waitlist
	if l.serving {
		return // serving frees memory itself
	}
	l.serving = true
	defer func() { l.serving = false }()
	for l.n > 0 && (p.serveReserved() || p.serveNext()) {
	}
	p.relax()
}

// relax ends the pressure when no request waits, here or in a pool that this one helps, and nothing is
// reserved. p.mu is held.
func (p *Pool) relax() {
	if l := &p.waitlist; l.n == 0 && l.reserved.of == nil && !l.helps && p.front.Pressed() && !p.closed {
		p.press(false)
	}
}

// serveNext serves one waiter and reports whether it could. p.mu is held.
func (p *Pool) serveNext() bool {
	p.waitlist.sort()
	for _, line := range p.waitlist.lines {
		if p.serveLine(line) {
			return true
		}
	}
	return false
}

// serveLine serves one waiter of a line and reports whether it could. p.mu is held.
func (p *Pool) serveLine(line *waitLine) bool {
	for x := range line.candidates() {
		if p.serveOne(x) {
			return true
		}
		p.considerGrowth(x)
	}
	return false
}

// considerGrowth wakes the poller to ask the upstream for a waiter, if that may have room. p.mu is held.
func (p *Pool) considerGrowth(x *waiter) {
	if l := &p.waitlist; l.asks == nil && p.mayGrow(x) && p.affords(x) {
		l.asks = x
		l.signalPoller()
	}
}

// affords reports whether the tenant of a waiter has room for it. p.mu is held.
func (p *Pool) affords(x *waiter) bool {
	t := x.w.tenant
	return t == nil || t.affords(x)
}

// serveOne serves a waiter from free memory and reports whether it could. p.mu is held.
func (p *Pool) serveOne(x *waiter) bool {
	if !p.affords(x) {
		return false
	}
	c := p.find(x.w)
	if c == nil {
		c = p.findAny(x.w)
	}
	return c != nil && p.grant(x, c)
}

// mayGrow reports whether the limits have room for a waiter, with the memory that the pool could
// give back and without the reservation of another waiter, and the upstream has not just refused
// as much. It returns false without a limit, because the room is unknown. p.mu is held.
func (p *Pool) mayGrow(x *waiter) bool {
	need, l := p.segmentNeed(x.w), &p.waitlist
	tight, room := p.limitRoom()
	if tight == nil || p.reclaim.refused.covers(need, time.Now()) {
		return false
	}
	if l.reserved.except(x) {
		return room >= need && room+p.heap.EmptyBytes() >= need+p.segmentNeed(l.reserved.of.w)
	}
	return room+p.heap.EmptyBytes() >= need
}

// poll is one round of the poller: it completes pending blocks, asks other pools and the upstream, and serves the
// waiters. It returns how long the waiter sleeps: only the poller wakes by itself.
func (p *Pool) poll(x *waiter, interval time.Duration) time.Duration {
	l, at := &p.waitlist, time.Now()
	if l.poller.Load() != x {
		return time.Hour
	}
	p.cells.Drain()
	p.pending.CompleteSome(refusalLooks)
	tight, _ := p.limitRoom()
	var most, least uint64
	p.mu.Lock()
	before := l.n
	if before > 0 && tight != nil {
		l.waitFor(tight.budget)
	}
	sinceAsked := at.Sub(l.asked)
	asksOthers := sinceAsked >= askAgain || sinceAsked >= shortWatch && l.offered.Swap(false)
	if asksOthers {
		l.asked = at
	}
	for _, line := range l.lines {
		for _, y := range []*waiter{line.waiters[0], line.smallest} {
			if need := p.segmentNeed(y.w); p.affords(y) {
				most = max(most, need)
				least = min(cmp.Or(least, need), need)
			}
		}
	}
	p.mu.Unlock()
	gave := false
	if asksOthers && most != 0 {
		p.reserveElsewhere()
		p.collectDropped()
		settleForWaiters(keeper.all()...)
		gave = p.reclaimOthers(most) || least != most && p.reclaimOthers(least)
	}
	p.mu.Lock()
	if sinceAsked >= askAgain && (gave || p.reclaim.refused.err != nil && p.heap.EmptyBytes() > 0) {
		p.reclaim.refused.vainLimit = vainLimit{} // the upstream has more memory than at its refusal, or gets some
	}
	p.serveWaiters()
	p.considerReservations()
	var growing []*waiter
	if l.asks != nil {
		growing = append(growing, l.asks)
	}
	if asksOthers && tight == nil {
		for _, line := range l.lines { // of unknown room: the smallest may fit where the first does not
			growing = append(growing, line.waiters[0], line.smallest)
		}
	}
	p.mu.Unlock()
	for _, y := range growing {
		if x.gone.Load() || ended(x.w.r.Context) {
			break // the next poller asks
		}
		p.growFor(y, x.w.r.Context)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.n < before || l.asked.IsZero() {
		return shortWatch
	}
	return interval
}

// growFor asks the upstream on behalf of a waiter, until the context of the poller ends. The segment serves other
// waiters too. If a request is asking, growFor does nothing: the request wakes the poller when it has its answer.
func (p *Pool) growFor(x *waiter, ctx context.Context) {
	select {
	case p.growing <- struct{}{}:
	default:
		return
	}
	defer func() { <-p.growing }()
	p.mu.Lock()
	l := &p.waitlist
	if l.asks == x {
		l.asks = nil
	}
	w := *x.w
	w.r.Context = ctx
	size, need := p.segmentFor(&w)
	tight, room := p.limitRoom()
	if x.gone.Load() || !p.affords(x) || p.reclaim.refused.covers(uint64(need), time.Now()) {
		p.mu.Unlock()
		return
	}
	if (tight == nil || room < uint64(need) || p.reclaim.refused.err != nil) && !l.reserved.except(x) {
		p.heap.Release(0)
	}
	p.mu.Unlock()
	c, err := p.grow(&w, size, need)
	if err != nil {
		p.mu.Lock()
		// A limit that the pool does not see counts its idle segments too.
		if ranOut(err) && !ended(ctx) && !l.reserved.except(x) && p.heap.Release(0) != 0 {
			p.mu.awaitReturned()
			p.mu.Unlock()
			if c, err = p.grow(&w, need, need); err != nil {
				p.mu.Lock()
			}
		}
	}
	defer p.mu.Unlock()
	switch {
	case err == nil && !x.gone.Load():
		p.grant(x, c)
	case err == nil:
		p.putBack(c)
	case ended(ctx): // the question ended without an answer
	case !x.gone.Load() && !ranOut(err):
		p.leave(x)
		x.fail(err)
	default:
		p.reclaim.refused.note(uint64(need), err)
	}
	p.serveWaiters()
	p.relax()
}

// putBack frees a block that no waiter took. p.mu is held.
func (p *Pool) putBack(c *owner.Cell) {
	if p.pending.Working(c) {
		p.pending.Add(c)
		return
	}
	p.complete(c)
}

// endWaits ends all waits of a pool that closes. p.mu is held.
func (p *Pool) endWaits() {
	for len(p.waitlist.lines) > 0 {
		p.endLine(p.waitlist.lines[0], p.closedError())
	}
	p.eachTenant(func(t *Tenant) { t.endQueue(p.closedError()) })
	if p.waitlist.reserved.of != nil { // for a waiter of another pool
		p.endReservation()
	}
}

// endLine ends all waits of a line. p.mu is held.
func (p *Pool) endLine(line *waitLine, cause error) {
	for len(line.waiters) > 0 {
		x := line.waiters[0]
		p.leave(x)
		x.fail(cause)
	}
	p.relax()
}
