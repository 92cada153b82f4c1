package memmgr

import (
	"cmp"
	"slices"
	"time"
)

// Keeping room for one who waits. What comes back to a pool comes in pieces, and
// others who want little take each of them, so that a large request might wait for
// ever. The pool then closes the segments of which least is in use, as many as the
// request needs: nothing is given out of them, so that they empty, while others are
// served from the rest. What the upstream has room for, and segments that become
// empty, are kept as well. The memory may never come back, so this ends: when nothing
// came back for a while, or when it took too long, and then everybody is served for a
// time.

// hold is what a pool keeps, for whom and how long; its lock guards it.
type hold struct {
	of     *waiter
	closed []int32 // segments
	blocks int     // in use in them, at the last look
	free   uint64  // outside of them, at the last look
	since  time.Time
	until  time.Time // when it ends unless something has come back
	open   time.Time // until when nothing is kept after it
}

// considerHold begins to keep room for one who has waited through enough, and ends
// what has taken its time. p.mu is held.
//
// The pool keeps nothing for one whose tenant has no room for it: what would be kept
// is of no use to it before others of that tenant are served, and they may wait as
// well. For that one its tenant keeps room.
func (p *Pool) considerHold() {
	h, at := &p.waiters.hold, time.Now()
	changed := false
	for _, line := range p.waiters.lines {
		if p.considerTenant(line, at) {
			changed = true
		}
	}
	if h.of == nil && !at.Before(h.open) {
		if x := p.waiters.oldest(func(x *waiter) bool { return p.affords(x) && p.deservesHold(x, at) }); x != nil {
			p.beginHold(x, at)
			changed = true // it may be there already
		}
	}
	if changed {
		p.roomMade()
	}
}

// oldest returns of those who are first of their lanes, and for whom f is true, the
// one that is so longest.
func (r *waitRoom) oldest(f func(*waiter) bool) (oldest *waiter) {
	for _, line := range r.lines {
		if x := line.oldest(f); x != nil && (oldest == nil || x.first.Before(oldest.first)) {
			oldest = x
		}
	}
	return oldest
}

func (l *waitLine) oldest(f func(*waiter) bool) (oldest *waiter) {
	for lane := range l.lanes {
		if x := l.lanes[lane].first; x != nil && (oldest == nil || x.first.Before(oldest.first)) && f(x) {
			oldest = x
		}
	}
	return oldest
}

// considerTenant begins to keep room of a tenant for one of those who wait in its
// line, when enough of it went to others, and ends that after holdTime. It tells
// whether it ended. p.mu is held.
func (p *Pool) considerTenant(line *waitLine, at time.Time) (ended bool) {
	switch {
	case line.tenant == nil:
	case line.keeps != nil:
		if line.keeps != p.waiters.hold.of && at.After(line.until) {
			p.keepOfTenant(line, nil, at)
			return true
		}
	case at.After(line.open):
		granted := line.tenant.grantedBytes()
		if x := line.oldest(func(x *waiter) bool { return !p.affords(x) && granted-x.granted >= x.patience() }); x != nil {
			p.keepOfTenant(line, x, at)
		}
	}
	return false
}

// keepOfTenant has a tenant keep room for one of its line, or for none any more: then
// everybody of it is served for a time. p.mu is held.
func (p *Pool) keepOfTenant(line *waitLine, x *waiter, at time.Time) {
	was := line.keeps
	if line.keeps = x; x != nil {
		line.until = at.Add(holdTime)
		line.tenant.keep(x.w.amount)
		return
	}
	if line.open = at; was.cell == nil {
		line.open, was.granted = at.Add(openTime), line.tenant.grantedBytes()
	}
	line.tenant.keep(0)
}

// deservesHold tells whether too much went past one who is first of its lane, or
// enough is free in pieces, or it waits for memory of other pools. p.mu is held.
func (p *Pool) deservesHold(x *waiter, at time.Time) bool {
	r := &p.waiters
	if r.served-x.served >= x.patience() {
		return true
	}
	if at.Sub(x.first) >= shareTime && p.mustClaim(x) {
		return true // what went past it elsewhere nobody knows
	}
	free := p.heap.freeBytes()
	if tight, room := p.limitRoom(); tight != nil {
		free += room
	}
	return free >= uint64(x.w.least)*unit && at.Sub(x.first) >= fragmentedTime && r.served > x.served
}

// beginHold closes the segments that empty soonest, for one who waits. p.mu is held.
func (p *Pool) beginHold(x *waiter, at time.Time) {
	h := &p.waiters.hold
	h.of, h.since = x, at
	h.until = at.Add(x.holdTime())
	x.holds++
	kept := p.heap.idleBytes
	if tight, room := p.limitRoom(); tight != nil {
		kept += room
	}
	if x.line.tenant != nil {
		p.keepOfTenant(x.line, x, at)
	}
	p.heap.Want(x.w.least)
	for _, n := range p.emptiest() {
		if kept >= p.segmentNeed(x.w) {
			break
		}
		_, size := p.heap.SegmentBase(n)
		kept += uint64(size)
		p.heap.Close(n)
		h.closed = append(h.closed, n)
	}
	h.blocks, h.free = p.keptNow()
	if p.mustClaim(x) {
		h.until = at.Add(longHold)
		p.asked = time.Time{}
	}
}

// emptiest lists the ordinary segments, those with the fewest blocks in use for their
// size first. p.mu is held.
func (p *Pool) emptiest() []int32 {
	type place struct {
		n     int32
		share float64
	}
	var places []place
	for n := range p.heap.SegmentNumbers() {
		if used, units := p.heap.Used(n); units != 0 && !p.heap.segs[n].dedicated {
			places = append(places, place{n, float64(used) / float64(units)})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.share, b.share) })
	all := make([]int32, len(places))
	for i, at := range places {
		all[i] = at.n
	}
	return all
}

// keptNow returns how many blocks are in use in closed segments, and what else could
// serve who waits. p.mu is held.
func (p *Pool) keptNow() (blocks int, free uint64) {
	for _, n := range p.waiters.hold.closed {
		used, _ := p.heap.Used(n)
		blocks += int(used)
	}
	free = p.heap.spare()
	if tight, room := p.limitRoom(); tight != nil {
		free += room
	}
	return blocks, free
}

// holdTime is how long nothing may come back before room is kept no longer.
func (x *waiter) holdTime() time.Duration { return min(holdTime<<min(x.holds, 8), longHold) }

// serveHeld serves the one for whom room is kept, and tells whether it could. When
// the time is over and nothing has come back, that ends. p.mu is held.
func (p *Pool) serveHeld() bool {
	h := &p.waiters.hold
	x := h.of
	if x == nil {
		return false
	}
	if x.claims != nil {
		if time.Now().After(h.until) {
			p.endHold()
		}
		return false
	}
	if at := time.Now(); at.After(h.until) {
		blocks, free := p.keptNow()
		if blocks >= h.blocks && free <= h.free || at.Sub(h.since) > mostHold {
			p.endHold()
			return false
		}
		h.blocks, h.free, h.until = blocks, free, at.Add(x.holdTime())
	}
	if p.serveOne(x) {
		return true
	}
	p.considerGrowth(x)
	return false
}

// opensHold ends a hold for a request that cannot wait, before that is refused, if one
// of the closed segments has a block for it. p.mu is held.
func (p *Pool) opensHold(w *want) bool {
	h := &p.waiters.hold
	if h.of == nil || w.r.Context != nil {
		return false
	}
	if !p.heap.ClosedFits(w.least, h.closed) {
		return false
	}
	p.endHold()
	p.relax()
	return true
}

// endHold opens what was closed. p.mu is held.
func (p *Pool) endHold() {
	h := &p.waiters.hold
	at := time.Now()
	if h.open = at; h.of.cell == nil && h.of.claims == nil {
		h.open = at.Add(openShare * min(at.Sub(h.since), longHold))
	}
	h.of.first, h.of.served = at, p.waiters.served
	if line := h.of.line; line.keeps != nil {
		p.keepOfTenant(line, nil, at)
	}
	h.of = nil
	p.heap.Want(0)
	for _, n := range h.closed {
		p.heap.Open(n)
	}
	h.closed = h.closed[:0]
}
