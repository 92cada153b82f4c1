package memmgr

import (
	"cmp"
	"slices"
	"time"
)

// Keeping room in several pools. One who waits may want more than its own pool has
// below the limit, or on the device, that it shares with others: then what they get
// back goes on to their own requests, and the one who waits starves, although its pool
// keeps for it whatever it has. So that pool, while it keeps room, claims what it lacks
// of the others. They close segments for it as for one of their own, do not grow into
// its room meanwhile, and give up what has become empty ([Pool.yield]).
//
// A pool keeps room for one at a time. Of several who claim it, and its own, the one
// that has waited longest has it; all pools decide so, so that it gets what it needs
// from each of them, and nobody waits for one who waits for it. A claim is renewed by
// whoever looks after the claiming pool, and ends by itself: no pool knows of more than
// its own part, and no lock is held across pools.

// keeps is how much a pool has for the one for whom it keeps room, when all of that has
// come back. p.mu is held.
func (p *Pool) keeps() uint64 {
	has := p.heap.idleBytes
	for _, n := range p.waiters.hold.closed {
		if p.heap.Closed(n) { // else it went back, and the number may be another's
			_, size := p.heap.SegmentBase(n)
			has += uint64(size)
		}
	}
	return has
}

// mustClaim tells whether one wants more than its pool has and could ask for, whatever
// comes back to it, and other pools have it. p.mu is held.
func (p *Pool) mustClaim(x *waiter) bool {
	need, has, others := p.segmentNeed(x.w), p.heap.count.reserved, p.waiters.shares
	tight, room := p.limitRoom()
	if tight == nil { // nobody knows what the device has left
		return has < need && others != 0
	}
	return has+room < need && has+room+others >= need
}

// lacks is how much that and the room below the limit are too little. p.mu is held.
func (p *Pool) lacks(x *waiter) uint64 {
	has, need := p.keeps(), p.segmentNeed(x.w)
	if tight, room := p.limitRoom(); tight != nil {
		has += room
	}
	return need - min(has, need)
}

// sharer is another pool below the same limit, or on the same device.
type sharer struct {
	pool  *Pool
	bytes uint64 // that it has of that
}

// sharers lists them, those with the most memory first.
func (p *Pool) sharers() (all []sharer, bytes uint64) {
	tight, _ := p.limitRoom()
	for _, q := range keeper.open() {
		if q != p && (tight != nil && q.countsIn(tight.budget) || tight == nil && q.Place() == p.Place()) {
			n := uint64(max(0, q.heap.count.now.Load()))
			all, bytes = append(all, sharer{q, n}), bytes+n
		}
	}
	slices.SortFunc(all, func(a, b sharer) int { return cmp.Compare(b.bytes, a.bytes) })
	return all, bytes
}

// claimElsewhere has other pools keep what this one lacks for the one for whom it keeps
// room. p.mu is not held.
func (p *Pool) claimElsewhere() {
	others, bytes := p.sharers()
	p.mu.Lock()
	p.waiters.shares = bytes
	x := p.waiters.hold.of
	if x == nil || x.claims != nil || !p.mustClaim(x) {
		p.mu.Unlock()
		return
	}
	lacks, need := p.lacks(x), p.segmentNeed(x.w)
	x.claimed = true
	p.mu.Unlock()
	for _, o := range others {
		if lacks == 0 {
			break
		}
		lacks -= min(lacks, o.pool.keepFor(x, need, lacks))
	}
	p.mu.Lock()
	settled := x.settled
	p.mu.Unlock()
	if settled { // meanwhile, and it has looked for claims already
		p.endClaims(x)
	}
}

// keepFor keeps so much room for one who waits in another pool and needs more, or goes
// on with it, unless it keeps room for one who has waited longer. It returns how much
// that is. No lock is held.
func (p *Pool) keepFor(x *waiter, need, lacks uint64) (kept uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, at := &p.waiters.hold, time.Now()
	if p.closed {
		return 0
	}
	if h.of != nil && h.of.claims != x {
		if !x.since.Before(h.of.since) {
			return 0
		}
		p.endHold()
	}
	if h.of == nil {
		w := &want{class: noClass, units: uint32(need / unit), align: 1}
		h.of, h.since = &waiter{w: w, line: &waitLine{}, since: x.since, claims: x}, at
		p.press(true)
		p.heap.Want(0)
	}
	h.until = at.Add(claimTime)
	kept = p.keeps()
	for _, n := range p.emptiest() {
		if kept >= lacks {
			break
		}
		if p.heap.Closed(n) {
			continue
		}
		_, size := p.heap.SegmentBase(n)
		kept += uint64(size)
		p.heap.Close(n)
		h.closed = append(h.closed, n)
	}
	p.roomMade() // for those from whom room was kept until now
	return kept
}

// endClaims ends what other pools keep for one who waits no more. No lock is held.
func (p *Pool) endClaims(x *waiter) {
	p.mu.Lock()
	claimed := x.claimed
	p.mu.Unlock()
	if !claimed {
		return
	}
	for _, q := range keeper.open() {
		if q != p {
			q.endClaim(func(of *waiter) bool { return of.claims == x })
		}
	}
}

// endClaim ends what the pool keeps for one who waits in another, if f tells so.
func (p *Pool) endClaim(f func(of *waiter) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.waiters.hold.of; of != nil && of.claims != nil && f(of) {
		p.endHold()
		p.roomMade()
		p.relax()
	}
}

// expireClaim ends it when nobody renews it.
func (p *Pool) expireClaim() {
	p.endClaim(func(*waiter) bool { return time.Now().After(p.waiters.hold.until) })
}
