package memmgr

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// waitlist is the part of a pool that holds the requests that wait for memory, and the
// reservation for one of them. Pool.mu guards it; the atomic fields are read or set by other pools.
type waitlist struct {
	n       int         // waiters
	lines   []*waitLine // those with waiters
	own     waitLine    // of requests to the pool itself
	served  uint64      // bytes handed out while requests waited, ever
	virtual float64     // of the line served last; a new line starts there
	serving bool        // serveWaiters is running

	poller atomic.Pointer[waiter]
	asks   *waiter   // for which the poller is to ask the upstream, nil for none
	asked  time.Time // when the poller last asked other pools
	others uint64    // bytes that pools with the same limit or device had at that time

	budget  *sharedBudget // for whose room requests wait, nil for none
	least   atomic.Uint64 // bytes of the smallest of these requests
	offered atomic.Bool   // other pools have memory for one of them
	helps   bool          // the pool is pressed because requests of other pools wait

	reserved reservation
}

// waiter is a request that waits: for memory of its pool, or for room below the hard limit
// of its tenant. Pool.mu guards the former and Tenant.mu the latter, except for the channels.
type waiter struct {
	w     *want
	line  *waitLine     // nil for a waiter for room below the hard limit
	cell  *owner.Cell   // the block that the waiter was granted
	err   error         // why the wait ended without a block
	gone  atomic.Bool   // it waits no more
	ready chan struct{} // closed when cell or err is set, or the tenant was charged
	wake  chan struct{} // signals that the waiter became the poller, or is to poll now

	since    time.Time // when the wait began
	first    time.Time // when it became the first of its line; zero before
	attempts int       // reservations that it had

	servedBefore  uint64 // waitlist.served when it became the first
	grantedBefore uint64 // Tenant.granted at that time
	othersBefore  uint64 // sharedBudget.served at that time, or when the waitlist entered the budget
}

func newWaiter(w *want) *waiter {
	return &waiter{w: w, since: time.Now(), ready: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// patience returns how many bytes may go to other waiters while this one is first.
func (x *waiter) patience() uint64 { return 2*uint64(x.w.units)*unit + 1<<20 }

// await blocks until the waiter is ready or the context of its request ends. It reports
// whether the waiter is ready. Between, it calls poll, at intervals that double from
// shortWatch to longWatch. poll may change the interval.
func (x *waiter) await(poll func(interval time.Duration) time.Duration) bool {
	defer order.ReleaseLock()()
	interval := shortWatch
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-x.ready:
			return true
		case <-x.w.r.Context.Done():
			return false
		case <-x.wake:
			interval = shortWatch
		case <-timer.C:
			interval = min(2*interval, longWatch)
		}
		interval = poll(interval)
		timer.Reset(interval)
	}
}

// signal wakes the waiter's goroutine.
func (x *waiter) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// fail ends a wait with an error. The waiter has left its line.
func (x *waiter) fail(err error) {
	x.err = err
	close(x.ready)
}

// reservation is memory of a pool, or room below the hard limit of a tenant, that goes to
// one waiter only. The lock of the pool or of the tenant guards it.
type reservation struct {
	of      *waiter // nil if there is no reservation
	foreign bool    // of waits in another pool: only its fields w, since and gone are read here
	since   time.Time
	until   time.Time // when it expires; freed memory prolongs that of a pool
	pause   time.Time // no other reservation begins before

	blocks int    // in use in the closed segments of the pool, when the reservation was last prolonged
	free   uint64 // bytes that were free elsewhere at that time
}

// except reports whether there is a reservation for another waiter.
func (r *reservation) except(x *waiter) bool { return r.of != nil && r.of != x }

// waitLine holds the waiters for memory of one account.
type waitLine struct {
	waiters  []*waiter // in the order of arrival
	smallest *waiter   // the first of those with the smallest request
	over     bool      // the tenant is above its soft limit
	weight   uint64
	virtual  float64 // bytes served divided by weight: the line with the least is next. It does not wrap
	tenant   *Tenant // nil for the pool's own
}

// candidates iterates over the waiters that freed memory may serve: the first ones, [lookAhead] in
// all, and the one with the smallest request, so that many large requests do not stop a small one.
func (l *waitLine) candidates() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		smallest := l.smallest
		for _, x := range l.waiters[:min(lookAhead, len(l.waiters))] {
			if !yield(x) {
				return
			}
			if x == smallest {
				smallest = nil
			}
		}
		if smallest != nil {
			yield(smallest)
		}
	}
}

// findSmallest finds the smallest request after that of a waiter which left the line at an index.
func (l *waitLine) findSmallest(left *waiter, at int) {
	l.smallest = nil
	// Those before it are larger than it, and those behind are not smaller: of equal requests the next one is found
	// immediately.
	for _, x := range l.waiters[at:] {
		if x.w.units == left.w.units {
			l.smallest = x
			return
		}
	}
	for _, x := range l.waiters {
		if l.smallest == nil || x.w.units < l.smallest.w.units {
			l.smallest = x
		}
	}
}

// lineOf returns the line of a request's account.
func (l *waitlist) lineOf(w *want) *waitLine {
	if w.tenant != nil {
		return &w.tenant.line
	}
	return &l.own
}

// add puts a request at the end of its line.
func (l *waitlist) add(w *want) *waiter {
	x := newWaiter(w)
	line := l.lineOf(w)
	x.line = line
	if len(line.waiters) == 0 {
		// A line does not make up for the time when it had no waiters.
		line.virtual = max(line.virtual, l.virtual)
		l.lines = append(l.lines, line)
	}
	l.n++
	if line.waiters = append(line.waiters, x); len(line.waiters) == 1 {
		l.becameFirst(x)
	}
	if line.smallest == nil || w.units < line.smallest.w.units {
		line.smallest = x
	}
	l.poller.CompareAndSwap(nil, x)
	l.setLeast()
	return x
}

// setLeast updates least.
func (l *waitlist) setLeast() {
	least := uint64(math.MaxUint64)
	for _, line := range l.lines {
		least = min(least, uint64(line.smallest.w.units)*unit)
	}
	l.least.Store(least)
}

// waitFor enters the budget of a limit, and leaves the one before; nil is none.
func (l *waitlist) waitFor(b *sharedBudget) {
	if l.budget == b {
		return
	}
	if l.budget != nil {
		l.budget.leave(l)
	}
	if l.budget = b; b != nil {
		b.enter(l)
	}
	for _, line := range l.lines {
		line.waiters[0].othersBefore = l.servedByOthers()
	}
}

// servedByOthers returns the bytes that other pools below the same limit served while requests waited.
func (l *waitlist) servedByOthers() uint64 {
	if l.budget == nil {
		return 0
	}
	return l.budget.served.Load()
}

// signalPoller wakes the poller, also from another pool.
func (l *waitlist) signalPoller() {
	if x := l.poller.Load(); x != nil {
		x.signal()
	}
}

// becameFirst notes that a waiter became the first of its line.
func (l *waitlist) becameFirst(x *waiter) {
	x.first, x.servedBefore, x.othersBefore = time.Now(), l.served, l.servedByOthers()
	if t := x.line.tenant; t != nil {
		t.mu.Lock()
		x.grantedBefore = t.granted
		t.mu.Unlock()
	}
}

// oldest returns the waiter that has waited for longest. There is one.
func (l *waitlist) oldest() *waiter {
	x := l.lines[0].waiters[0]
	for _, line := range l.lines[1:] {
		if y := line.waiters[0]; y.since.Before(x.since) {
			x = y
		}
	}
	return x
}

// remove takes a waiter out of its line. If it was the poller, the oldest waiter becomes it: requests that came later
// and end soon could otherwise follow each other as the poller, and end each question to a slow upstream.
// The caller ends its reservations.
func (l *waitlist) remove(x *waiter) {
	line := x.line
	at := slices.Index(line.waiters, x)
	line.waiters = slices.Delete(line.waiters, at, at+1)
	if line.smallest == x {
		line.findSmallest(x, at)
	}
	x.gone.Store(true)
	l.n--
	if len(line.waiters) == 0 {
		l.lines = slices.DeleteFunc(l.lines, func(other *waitLine) bool { return other == line })
	} else if at == 0 {
		l.becameFirst(line.waiters[0])
	}
	if l.asks == x {
		l.asks = nil
	}
	l.setLeast()
	switch {
	case l.n == 0:
		l.poller.Store(nil)
		l.waitFor(nil)
	case l.poller.Load() == x:
		l.poller.Store(l.oldest())
		l.signalPoller()
	}
}

// count adds the bytes of a block to those that a line was served.
func (l *waitlist) count(line *waitLine, bytes uint64) {
	line.virtual += float64(bytes) / float64(max(line.weight, 1))
	l.virtual = max(l.virtual, line.virtual)
}

// sort orders the lines: those of tenants above their soft limit last, and then by the
// least weighted service. There is one for each tenant with waiters.
func (l *waitlist) sort() {
	if len(l.lines) < 2 {
		return
	}
	for _, line := range l.lines {
		line.over = line.tenant.overSoft()
	}
	slices.SortStableFunc(l.lines, func(a, b *waitLine) int {
		switch {
		case a.over == b.over:
			return cmp.Compare(a.virtual, b.virtual)
		case b.over:
			return -1
		}
		return 1
	})
}
