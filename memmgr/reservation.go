package memmgr

import (
	"slices"
	"time"
)

// Reserving memory for one waiter. Memory is freed in pieces, and small requests take each
// piece, so that a large request might wait without end. Therefore the pool closes the
// segments with the fewest blocks in use, as many as the request needs: they serve only the
// waiter and become empty, while other requests are served from the rest. Room below the
// limit is reserved too. If no memory is freed for a while, or after
// mostReserve, the reservation ends, and then all waiters are served for a time.
//
// Reserving in other pools. Pools can share a limit or a device, and a waiter may need more of it than
// its own pool has. Memory that is freed in the other pools would serve only their own requests.
// Therefore the poller of the waiter's pool makes the other pools reserve the missing bytes. They close
// segments for the waiter as for one of their own, do not grow into its room, and give up segments
// that become empty ([Pool.yield]).
//
// A pool reserves for one waiter at a time. A waiter of another pool replaces a younger one, and an own
// waiter a younger one of another pool. All pools follow this rule: of waiters in several pools the oldest
// gets memory from each, so that two never wait for each other. A reservation in another pool ends when the waiter
// leaves, and expires unless the poller renews it. The other pool notices that when it uses its lock. Each pool accesses
// only its own part, and no lock spans pools.

// considerReservations begins reservations for waiters while too much memory went to other requests, and
// ends expired ones. p.mu is held.
//
// The pool reserves nothing for a waiter whose tenant has no room for it: the waiter could not use the
// memory before the tenant releases other memory. For such a waiter the tenant reserves room.
func (p *Pool) considerReservations() {
	r, at := &p.waitlist.reserved, time.Now()
	changed := false
	var next *waiter // the one that has been the first of its line for longest
	for _, line := range p.waitlist.lines {
		changed = p.considerTenant(line) || changed
		x := line.waiters[0]
		if (next == nil || x.first.Before(next.first)) && (r.of == nil || r.foreign && x.since.Before(r.of.since)) &&
			!at.Before(r.pause) && p.affords(x) && p.needsReservation(x, at) {
			next = x
		}
	}
	if next != nil {
		if r.of != nil {
			p.endReservation()
		}
		p.beginReservation(next, at)
		changed = true // there may be enough already
	}
	if changed {
		p.serveWaiters()
	}
}

// considerTenant considers a reservation of room for the first waiter of a tenant's line, and reports whether one has
// ended. p.mu is held.
func (p *Pool) considerTenant(line *waitLine) (ended bool) {
	t := line.tenant
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ended = t.considerReservation(line.waiters[0]); ended {
		t.roomChanged()
	}
	return ended
}

// needsReservation reports whether too much memory went to other requests while the waiter was first of
// its line, or enough is free but in pieces, or the waiter needs memory of other pools. p.mu is held.
func (p *Pool) needsReservation(x *waiter, at time.Time) bool {
	l := &p.waitlist
	if l.served-x.servedBefore >= x.patience() {
		return true
	}
	// The bytes that pools served on their fast path, or that are not below the limit, are unknown.
	if (l.servedByOthers()-x.othersBefore >= x.patience() || at.Sub(x.first) >= shareTime) && p.needsOthers(x) {
		return true
	}
	_, room := p.limitRoom()
	free := uint64(p.heap.Depot.Bytes()) + p.heap.FreeBytes() + room
	return free >= uint64(x.w.least)*unit && at.Sub(x.first) >= fragmentedTime && l.served > x.servedBefore
}

// beginReservation reserves memory for a waiter. p.mu is held.
func (p *Pool) beginReservation(x *waiter, at time.Time) {
	r := &p.waitlist.reserved
	r.of, r.since, r.until = x, at, at.Add(x.reserveTime())
	x.attempts++
	if t := x.w.tenant; t != nil {
		t.mu.Lock()
		t.reserve(x, at, 2*mostReserve) // it ends with that of the pool
		t.mu.Unlock()
	}
	_, room := p.limitRoom()
	need := p.segmentNeed(x.w)
	p.heap.CloseSegments(need - min(room, need))
	r.blocks, r.free = p.reservedState()
	if p.needsOthers(x) {
		r.until = at.Add(longReserve)
		p.waitlist.asked = time.Time{} // the next poll asks other pools
	}
}

// reservedState returns how many blocks are in use in closed segments, and the bytes that are
// free elsewhere. p.mu is held.
func (p *Pool) reservedState() (blocks int, free uint64) {
	_, room := p.limitRoom()
	return p.heap.ClosedBlocks(), p.heap.EmptyBytes() + room
}

// reserveTime returns how long a reservation lasts while no memory is freed.
func (x *waiter) reserveTime() time.Duration {
	return min(reserveTime<<min(x.attempts, 8), longReserve)
}

// serveReserved serves the waiter of the reservation and reports whether it could. It ends an expired
// reservation, and extends one for which memory was freed. p.mu is held.
func (p *Pool) serveReserved() bool {
	r := &p.waitlist.reserved
	x := r.of
	if x == nil || r.foreign {
		return false
	}
	if at := time.Now(); at.After(r.until) {
		blocks, free := p.reservedState()
		if blocks >= r.blocks && free <= r.free || at.Sub(r.since) > mostReserve {
			p.endReservation()
			return false
		}
		r.blocks, r.free, r.until = blocks, free, at.Add(x.reserveTime())
	}
	if p.serveOne(x) {
		return true
	}
	p.considerGrowth(x)
	return false
}

// endReservation opens the closed segments. p.mu is held.
func (p *Pool) endReservation() {
	r, at := &p.waitlist.reserved, time.Now()
	x := r.of
	r.pause = at
	if !r.foreign {
		if x.cell == nil {
			r.pause = at.Add(pauseShare * min(at.Sub(r.since), longReserve))
		}
		x.first, x.servedBefore = at, p.waitlist.served
		x.endTenantReservation(at)
	}
	r.of, r.foreign = nil, false
	p.heap.OpenSegments()
}

// needsOthers reports whether a waiter needs more than its pool has and can get from upstream, and other
// pools have enough. p.mu is held.
func (p *Pool) needsOthers(x *waiter) bool {
	need, has, others := p.segmentNeed(x.w), p.heap.Reserved(), p.waitlist.others
	tight, room := p.limitRoom()
	if tight == nil { // the room of the device is unknown
		return has < need && others != 0
	}
	return has+room < need && has+room+others >= need
}

// reserveElsewhere makes other pools reserve the bytes that this pool lacks for its reservation, or renew
// such a reservation. No lock is held.
func (p *Pool) reserveElsewhere() {
	tight, room := p.limitRoom()
	sharers, bytes := p.otherPools(tight, func(q *Pool) uint64 {
		if tight != nil && !slices.ContainsFunc(q.limits, func(l *Limit) bool { return l.budget == tight.budget }) {
			return 0 // the memory is that of a pool below it
		}
		return q.heap.Reserved()
	})
	p.mu.Lock()
	r := &p.waitlist.reserved
	p.waitlist.others = bytes
	x := r.of
	if x == nil || r.foreign || !p.needsOthers(x) {
		p.mu.Unlock()
		return
	}
	need := p.segmentNeed(x.w)
	missing := need - min(p.heap.ClosedBytes()+room, need)
	p.mu.Unlock()
	for _, s := range sharers {
		if missing == 0 {
			break
		}
		missing -= min(missing, s.reserveForAnother(x, missing))
	}
}

// reserveForAnother reserves the missing bytes for a waiter of another pool, or renews the reservation,
// unless the pool already reserves for an older waiter. It returns the bytes that it has reserved. No
// lock is held.
func (p *Pool) reserveForAnother(x *waiter, missing uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, at := &p.waitlist.reserved, time.Now()
	if p.closed {
		return 0
	}
	if r.of != nil && r.of != x {
		if !x.since.Before(r.of.since) {
			return 0
		}
		p.endReservation()
	}
	if r.of == nil {
		r.of, r.since, r.foreign = x, at, true
		p.press(true)
	}
	r.until = at.Add(remoteTime)
	has := p.heap.CloseSegments(missing)
	p.serveWaiters() // an earlier reservation may have delayed them
	return has
}
