package memmgr

import (
	"slices"
	"time"
)

// Waiting for room below a tenant's hard limit. These requests stand in a queue of the
// tenant: they want no memory of the pool yet, and the pool is not pressed. Once there is
// room the tenant is charged, and the request goes on to the pool. If it must wait there for
// memory, the charge is given back, so that no request waits for room that is not used. The
// tenant is charged again when the pool has a block.

// tryCharge charges the account if the limit allows it, and if no reservation does, unless force is set.
func (t *Tenant) tryCharge(amount int64, force bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	reserved := t.reserved.of
	if !force {
		reserved = nil
	}
	if t.closed.Load() || uint64(amount) > t.roomFor(reserved) {
		return false
	}
	t.add(amount)
	return true
}

// add charges the account. t.mu is held.
func (t *Tenant) add(amount int64) {
	t.charged += uint64(amount)
	t.granted += uint64(amount)
}

// charge charges the account for a request. If no room can be found below the hard limit, a
// request with a context waits, and another one fails.
func (t *Tenant) charge(w *want) error {
	if uint64(w.amount) > t.hard {
		return t.refuse(w, errTenant)
	}
	ctx := w.r.Context
	t.mu.Lock()
	behind := len(t.queue) > 0 && ctx != nil
	t.mu.Unlock()
	if t.closed.Load() {
		return t.closedError()
	}
	switch {
	case !behind && t.findRoom(w):
		return nil
	case ctx == nil:
		return t.refuse(w, errTenant)
	case ctx.Err() != nil:
		return t.refuse(w, ctx.Err())
	}
	return t.await(w)
}

// findRoom charges the account for a request if there is room, or if it finds some: credit of the processors,
// blocks whose device work is done, memory that C dropped, and what OnOutOfMemory releases. A request without
// a context is not refused because of a reservation.
func (t *Tenant) findRoom(w *want) bool {
	p, force := t.pool, w.r.Context == nil
	if t.tryCharge(w.amount, false) || t.tighten() && t.tryCharge(w.amount, false) {
		return true
	}
	p.cells.Drain()
	if p.pending.Unstalled.Load() != 0 && p.pending.CompleteSome(refusalLooks) > 0 && t.tryCharge(w.amount, false) {
		return true
	}
	if p.settle(w.r.Context) && t.tryCharge(w.amount, false) {
		return true
	}
	p.collectDropped()
	return t.tryCharge(w.amount, force) ||
		p.options.onOOM != nil && p.options.onOOM(t.outOfMemory(w)) && t.tryCharge(w.amount, force)
}

// await waits for room below the hard limit, first come, first served. If the first request
// does not fit, the next few are tried. Requests of other accounts are not affected.
func (t *Tenant) await(request *want) error {
	start, w := now(), new(want)
	*w = *request
	defer func() { t.pool.account.Waits.Add(now()-start, 1) }()
	x := newWaiter(w)
	t.mu.Lock()
	if t.closed.Load() {
		t.mu.Unlock()
		return t.closedError()
	}
	t.queue = append(t.queue, x)
	t.mu.Unlock()
	t.tighten() // a processor may have got credit meanwhile
	t.mu.Lock()
	t.admit()
	t.mu.Unlock()
	ready := x.await(func(interval time.Duration) time.Duration {
		if !t.poll(x) {
			return 4 * longWatch
		}
		return interval
	})
	if !ready || x.err == nil && ended(w.r.Context) {
		return t.giveUp(x, w.r.Context.Err())
	}
	return x.err
}

// poll runs when a waiter of the queue wakes. The first of the queue completes pending blocks
// for all. poll reports whether the waiter is the first.
func (t *Tenant) poll(x *waiter) bool {
	t.mu.Lock()
	first := len(t.queue) > 0 && t.queue[0] == x
	t.mu.Unlock()
	if !first {
		return false
	}
	p := t.pool
	p.cells.Drain()
	if p.pending.Unstalled.Load() != 0 {
		p.pending.CompleteSome(refusalLooks)
	}
	settleForWaiters(p)
	t.mu.Lock()
	t.admit()
	t.mu.Unlock()
	return true
}

// giveUp ends a wait in the queue whose context ended. A charge at the last moment is given
// back.
func (t *Tenant) giveUp(x *waiter, cause error) error {
	t.mu.Lock()
	if x.err != nil {
		t.mu.Unlock()
		return x.err
	}
	back := int64(0)
	if x.gone.Load() {
		back = x.w.amount
	} else {
		t.dequeue(x)
	}
	t.mu.Unlock()
	if t.discharge(back) {
		t.pool.serveTenant()
	}
	return t.refuse(x.w, cause)
}

// suspendCharge gives the charge of a request back while it waits for memory.
func (t *Tenant) suspendCharge(w *want) {
	t.mu.Lock()
	t.waiting++
	t.mu.Unlock()
	t.tighten() // from now on no processor gets credit, so the room is exact
	w.owes = true
	t.discharge(w.amount)
}

// endSuspension notes that a request waits for memory no more.
func (t *Tenant) endSuspension() {
	t.mu.Lock()
	t.waiting--
	t.mu.Unlock()
	t.discharge(0) // may allow credit again
}

// affords reports whether the account has room for a waiter for memory. Pool.mu is held.
func (t *Tenant) affords(x *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roomFor(x) >= uint64(x.w.amount)
}

// chargeWaiter charges the account for a waiter that the pool has a block for, if there is
// room. Pool.mu is held.
func (t *Tenant) chargeWaiter(x *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.roomFor(x) < uint64(x.w.amount) {
		return false
	}
	t.add(x.w.amount)
	x.w.owes = false
	return true
}

// considerReservation reserves room for a waiter for which there is too little, once too much went to other requests
// of the tenant. It ends an expired reservation and reports that. The waiter is the first that waits for room, or for
// memory. t.mu is held.
func (t *Tenant) considerReservation(x *waiter) (ended bool) {
	r, at := &t.reserved, time.Now()
	switch {
	case r.of != nil:
		if ended = !at.Before(r.until); ended {
			t.endReservation(at)
		}
	case !at.Before(r.pause) && t.roomFor(x) < uint64(x.w.amount) && t.granted-x.grantedBefore >= x.patience():
		t.reserve(x, at, reserveTime)
	}
	return ended
}

// reserve reserves room for a waiter. t.mu is held.
func (t *Tenant) reserve(x *waiter, at time.Time, most time.Duration) {
	r := &t.reserved
	r.of, r.since, r.until = x, at, at.Add(most)
}

// endReservation ends a reservation of room in vain: then all waiters of the tenant are
// served for a time. t.mu is held.
func (t *Tenant) endReservation(at time.Time) {
	r := &t.reserved
	r.pause, r.of.grantedBefore = at.Add(tenantPause), t.granted
	r.of = nil
}

// endTenantReservation ends the reservation of room for a waiter for memory. Pool.mu is held.
func (x *waiter) endTenantReservation(at time.Time) {
	t := x.w.tenant
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.reserved.of != x:
		return
	case x.cell != nil:
		t.reserved.of = nil
	default:
		t.endReservation(at)
	}
	t.roomChanged()
}

// serveTenant serves waiters after an account got more room.
func (p *Pool) serveTenant() {
	p.mu.Lock()
	p.serveWaiters()
	p.mu.Unlock()
}

// admit charges requests of the queue for which there is room. t.mu is held.
func (t *Tenant) admit() {
	for at := 0; at < min(len(t.queue), lookAhead); {
		x := t.queue[at]
		if at == 0 && x.first.IsZero() {
			x.first, x.grantedBefore = time.Now(), t.granted
		}
		if uint64(x.w.amount) > t.roomFor(x) {
			if at == 0 && t.considerReservation(x) {
				continue // there is more room
			}
			if at == 0 && t.reserved.of == x {
				return
			}
			at++
			continue
		}
		t.add(x.w.amount)
		t.dequeue(x)
		x.gone.Store(true)
		close(x.ready)
	}
}

// dequeue takes a waiter out of the queue and ends the reservation for it. t.mu is held.
func (t *Tenant) dequeue(x *waiter) {
	t.queue = slices.DeleteFunc(t.queue, func(y *waiter) bool { return y == x })
	if t.reserved.of == x {
		t.reserved.of = nil
	}
}

// queued returns how many requests wait for room below the hard limit.
func (t *Tenant) queued() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.queue))
}

// endQueue closes the account and ends all waits in the queue.
func (t *Tenant) endQueue(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed.Store(true)
	for _, x := range t.queue {
		x.fail(cause)
	}
	t.queue = nil
}
