package memmgr

import (
	"context"
	"slices"
	"time"
)

// Waiting for room below a tenant's hard limit, in a queue of the tenant's own: those
// who wait here want nothing of the pool yet. Who has to stand in the pool's line then
// gives back what it was charged with, so that nobody waits for room that is not used,
// and is charged again when the pool has a block for it.

// tenantWaiter is a request that waits for room below the hard limit.
type tenantWaiter struct {
	need  uint64
	asked uint64
	since time.Time
	err   error
	ready chan struct{} // closed when it was charged, or err is set
	done  bool
	first uint64 // what had been granted when it became the first; 0: it is not
}

// tryCharge charges the account, if the limit allows it.
func (t *Tenant) tryCharge(amount int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || uint64(amount) > t.room() {
		return false
	}
	t.charged += uint64(amount)
	t.granted += uint64(amount)
	return true
}

// charge takes bytes of the account: what lies unused on the processors, what
// the device is done with, what others can let go of; then it waits, or refuses.
func (t *Tenant) charge(w *want, amount int64) error {
	if uint64(amount) > t.hard {
		return t.refuse(w, errTenant)
	}
	ctx := w.r.Context
	t.mu.Lock()
	closed, behind := t.closed, len(t.queue) > 0 && ctx != nil
	t.mu.Unlock()
	if closed {
		return t.closedError()
	}
	p := t.pool
	if !behind {
		for _, help := range []func() bool{
			func() bool { return true },
			t.tighten,
			func() bool {
				p.origin.list.Drain()
				return p.pending.unstalled.Load() != 0 && p.pending.completeSome(refusalLooks) > 0
			},
			func() bool { drainCells(); p.origin.list.Drain(); return true },
			func() bool { return p.options.onOOM != nil && p.options.onOOM(t.refuse(w, errTenant)) },
		} {
			if help() && t.tryCharge(amount) {
				return nil
			}
		}
	}
	switch {
	case ctx == nil:
		return t.refuse(w, errTenant)
	case ctx.Err() != nil:
		return t.refuse(w, ctx.Err())
	}
	return t.await(w, amount)
}

// await waits for room below the hard limit, first come, first served. A request
// that does not fit is passed over by some behind it, as in the pool's lines. Nobody
// else is held up: the pool knows of the request when there is room for it.
func (t *Tenant) await(w *want, amount int64) error {
	start := now()
	defer func() { t.pool.waits.add(now()-start, 1) }()
	x := &tenantWaiter{need: uint64(amount), asked: uint64(w.r.Size), since: time.Now(), ready: make(chan struct{})}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return t.closedError()
	}
	t.queue = append(t.queue, x)
	t.mu.Unlock()
	t.tighten() // somebody may have been credited since
	t.mu.Lock()
	t.admit()
	t.mu.Unlock()
	ctx, pause := w.r.Context, shortWatch
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-x.ready:
			if x.err == nil && ctx.Err() != nil {
				t.discharge(amount)
				return t.refuse(w, ctx.Err())
			}
			return x.err
		case <-ctx.Done():
			return t.giveUp(w, x, ctx)
		case <-timer.C:
		}
		pause = min(2*pause, longWatch)
		if !t.look(x) {
			pause = longWatch * 4
		}
		timer.Reset(pause)
	}
}

// look is what one who waits does now and then; it tells whether it is the one who
// is to do it often. That is the first.
func (t *Tenant) look(x *tenantWaiter) bool {
	t.mu.Lock()
	first := len(t.queue) > 0 && t.queue[0] == x
	t.mu.Unlock()
	if !first {
		return false
	}
	p := t.pool
	p.origin.list.Drain()
	if p.pending.unstalled.Load() != 0 {
		p.pending.completeSome(refusalLooks)
	}
	t.mu.Lock()
	t.admit()
	t.mu.Unlock()
	return true
}

// giveUp ends a wait with its context: the place in the queue, or what was charged
// at the last moment, goes to others.
func (t *Tenant) giveUp(w *want, x *tenantWaiter, ctx context.Context) error {
	t.mu.Lock()
	if x.err != nil {
		t.mu.Unlock()
		return x.err
	}
	back := int64(0)
	if x.done {
		back = int64(x.need)
	} else {
		t.queue = slices.DeleteFunc(t.queue, func(y *tenantWaiter) bool { return y == x })
	}
	t.mu.Unlock()
	if t.discharge(back) {
		t.pool.tell()
	}
	return t.refuse(w, ctx.Err())
}

// owe takes what a request is charged with off the account while it stands in the
// pool's line.
func (t *Tenant) owe(w *want) {
	t.mu.Lock()
	t.owing++
	t.mu.Unlock()
	t.tighten() // later, what lies on the processors could be missing
	w.owes = true
	t.discharge(w.amount)
}

// endOwing ends owe: the request stands in line no more.
func (t *Tenant) endOwing() {
	t.mu.Lock()
	t.owing--
	t.mu.Unlock()
	t.discharge(0) // those who wait for nothing else than that
}

// affords tells whether the account has room for a request in the pool's line, which
// may be the one that room is kept for.
func (t *Tenant) affords(w *want, held bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roomInLine(held) >= uint64(w.amount)
}

func (t *Tenant) roomInLine(held bool) uint64 {
	if held {
		return t.hard - min(t.charged, t.hard)
	}
	return t.room()
}

// pay charges the account with a request that leaves the pool's line, if there is
// room.
func (t *Tenant) pay(w *want, held bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.roomInLine(held) < uint64(w.amount) {
		return false
	}
	t.charged += uint64(w.amount)
	t.granted += uint64(w.amount)
	w.owes = false
	return true
}

// keep keeps room for one in the pool's line, 0 for none.
func (t *Tenant) keep(amount int64) {
	t.mu.Lock()
	t.kept = uint64(amount)
	t.mu.Unlock()
	t.discharge(0)
}

// grantedBytes is what the account was charged with, ever, without what went through
// the credit of processors: there is none while anybody waits.
func (t *Tenant) grantedBytes() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.granted
}

// tell tells those in the pool's line that an account has more room. The pool's lock
// is not held.
func (p *Pool) tell() {
	p.mu.Lock()
	p.roomMade()
	p.mu.Unlock()
}

// admit charges those in the queue for whom there is room. t.mu is held.
func (t *Tenant) admit() {
	for at := 0; at < min(len(t.queue), lookAhead); {
		x := t.queue[at]
		if at == 0 && x.first == 0 {
			x.first, t.held = t.granted+1, time.Time{}
		}
		if x.need > t.room() {
			if at == 0 && t.keepsFor(x) {
				return
			}
			at++
			continue
		}
		t.charged += x.need
		t.granted += x.need
		t.queue = slices.Delete(t.queue, at, at+1)
		x.done = true
		close(x.ready)
	}
}

// keepsFor tells whether what comes back is kept for the first, because enough went
// past it. t.mu is held.
func (t *Tenant) keepsFor(x *tenantWaiter) bool {
	at := time.Now()
	if at.Before(t.open) || t.granted+1-x.first < 2*x.need+1<<20 {
		return false
	}
	if t.held.IsZero() {
		t.held = at
	}
	if at.Sub(t.held) < holdTime {
		return true
	}
	x.first, t.held, t.open = t.granted+1, time.Time{}, at.Add(openTime)
	return false
}

// queued returns how many wait for room below the hard limit.
func (t *Tenant) queued() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.queue))
}

// endQueue ends the account, and sends everybody in the queue away.
func (t *Tenant) endQueue(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, x := range t.queue {
		x.err = cause
		close(x.ready)
	}
	t.queue = nil
}
