package memmgr

import (
	"context"
	"math/bits"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Waiting for memory. A request with a context that nothing can serve waits in
// its pool until it is served or its context ends.
//
// Those who wait stand in lines: one of the pool itself and one of each tenant.
// A line has a lane for each range of sizes, and each lane is first come, first
// served. Whenever memory comes back, the lines are asked in the order of their
// shares ([waitLine.virtual]), the lanes of a line in turns, and in a lane the oldest
// first. One who cannot be served is passed over: by other lanes, and by the next few
// of its own. So a large request that cannot be served never stops small ones.
//
// Small ones could take whatever comes back for ever, though. So when more than
// [waiter.patience] went to others while somebody was first of its lane, or when
// enough is free for it in pieces, the pool keeps room for that one ([Pool.hold]).
//
// A request without a context waits for nobody and nobody waits for it: it takes
// what is there, or is refused.
//
// While anybody waits the pool is pressed ([Pool.press]): the caches are empty,
// each release goes to the heap, merges there and serves the lines. One of those
// who wait is the lookout ([Pool.watch]): it completes blocks whose work on the
// device is over, asks other pools to give way, and starts over when it goes.

// waiter is a request that waits. p.mu guards it, but for the channels.
type waiter struct {
	w          *want
	line       *waitLine
	lane       int
	next, prev *waiter
	cell       *owner.Cell   // what it was given
	err        error         // why it waits no more
	ready      chan struct{} // closed when cell or err is set
	wake       chan struct{} // it is the lookout from now on, or is to ask the upstream
	grows      bool          // it is to ask the upstream

	since   time.Time // when it began to wait
	first   time.Time // when it became the first of its lane
	served  uint64    // what others had been given by then
	granted uint64    // and what its tenant had been charged with
	holds   int       // how often room was kept for it
	claimed bool      // of other pools as well
	claims  *waiter   // stands for that one, of another pool
	settled bool
}

// patience is how many bytes may go to others while one is first of its lane.
func (x *waiter) patience() uint64 { return 2*uint64(x.w.units)*unit + 1<<20 }

// waitLine holds those who wait on behalf of one account.
type waitLine struct {
	lanes   [lanes]struct{ first, last *waiter }
	n       int
	turn    int
	over    bool // its tenant is above the soft limit
	weight  uint64
	virtual uint64  // bytes served by weight: the line with the least is next
	tenant  *Tenant // nil for the pool's own

	keeps *waiter   // for whom its tenant's room is kept
	until time.Time // when that ends, unless the pool keeps room for it as well
	open  time.Time // until when none is kept after it
}

// waitRoom is what a pool knows of those who wait; p.mu guards it.
type waitRoom struct {
	n       int
	lines   []*waitLine // those with somebody in them
	own     waitLine    // of requests to the pool itself
	served  uint64      // bytes given out while somebody waited, ever
	virtual uint64      // of the line served last: newcomers start there
	lookout *waiter
	serving bool

	thorough bool // the lookout serves: everything is searched

	shares  uint64  // what other pools have of what this one shares with them, at the last look
	refusal refusal // of the upstream, the last
	hold    hold
}

// refusal is what the upstream refused a while ago: who wants as much or more does not
// ask again yet.
type refusal struct {
	need uint64
	at   time.Duration // see now
}

// covers tells whether a question for so much would be refused as well.
func (r *refusal) covers(need uint64) bool { return need >= r.need && now()-r.at < retryTime }

// note records a refusal, and keeps one of less that counts still.
func (r *refusal) note(need uint64) {
	if !r.covers(need) {
		*r = refusal{need, now()}
	}
}

// waitsBehind tells whether a request that comes has to stand in line before it is
// tried. p.mu is held.
func (p *Pool) waitsBehind(w *want) bool {
	r := &p.waiters
	if w.r.Context == nil || r.n == 0 && r.hold.of == nil {
		return false
	}
	if r.hold.of != nil && p.heap.dedicated(w) {
		return true // segments of their own are kept as well
	}
	line := p.lineOf(w)
	return line.lanes[laneOf(w)].first != nil || p.yieldsFirst(w)
}

// yieldsFirst tells whether a request comes after all others who wait, because its
// tenant has more than its soft limit. p.mu is held.
func (p *Pool) yieldsFirst(w *want) bool {
	return w.tenant != nil && p.waiters.n > w.tenant.line.n && w.tenant.overSoft()
}

func laneOf(w *want) int { return min(bits.Len32(w.units-1)/2, lanes-1) }

// lineOf returns the line that a request stands in.
func (p *Pool) lineOf(w *want) *waitLine {
	if w.tenant != nil {
		return &w.tenant.line
	}
	return &p.waiters.own
}

// findNow is find for a request that comes: what is free goes to those who were
// there before. p.mu is held.
func (p *Pool) findNow(w *want) *owner.Cell {
	if p.waitsBehind(w) || p.waiters.n > 0 && p.yieldsFirst(w) {
		return nil
	}
	c := p.find(w)
	if c != nil && p.waiters.n > 0 {
		p.waiters.served += c.Size
	}
	return c
}

// await waits until a request is served or its context ends.
func (p *Pool) await(w *want) (*owner.Cell, error) {
	start := now()
	defer func() { p.waits.add(now()-start, 1) }()
	if t := w.tenant; t != nil {
		t.owe(w)
		defer t.endOwing()
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, p.closedError()
	}
	if w.tenant != nil && w.tenant.isClosed() {
		p.mu.Unlock()
		return nil, w.tenant.closedError()
	}
	x := p.lineUp(w)
	defer p.endClaims(x)
	p.roomMade() // what came back since it was looked for
	p.mu.Unlock()
	ctx := w.r.Context
	timer := time.NewTimer(shortWatch)
	defer timer.Stop()
	pause := shortWatch
	for {
		select {
		case <-x.ready:
			return x.outcome(p, ctx)
		case <-ctx.Done():
			return nil, p.giveUp(x, ctx.Err())
		case <-x.wake:
			pause = shortWatch
		case <-timer.C:
			pause = min(2*pause, longWatch)
		}
		if p.attend(x) {
			pause = shortWatch
		}
		timer.Reset(p.pauseOf(x, pause))
	}
}

// outcome is what a waiter that is ready got. A grant that comes together with the
// end of the context goes back.
func (x *waiter) outcome(p *Pool, ctx context.Context) (*owner.Cell, error) {
	if x.err != nil || ctx.Err() == nil {
		return x.cell, x.err
	}
	return nil, p.giveUp(x, ctx.Err())
}

// giveUp ends a wait with the context: the place in line, or the grant that came
// at the last moment, goes to others.
func (p *Pool) giveUp(x *waiter, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.err != nil {
		return x.err
	}
	if x.settled {
		p.putBack(x.cell)
		x.cell = nil
		p.oweAgain(x.w)
	} else {
		p.leaveLine(x)
	}
	p.roomMade()
	p.relax()
	return p.fail(x.w, cause)
}

// oweAgain takes what a grant was charged with back. p.mu is held.
func (p *Pool) oweAgain(w *want) {
	if t := w.tenant; t != nil && !w.owes {
		w.owes = true
		t.discharge(w.amount)
	}
}

// lineUp puts a request at the end of its lane. p.mu is held.
func (p *Pool) lineUp(w *want) *waiter {
	r, line := &p.waiters, p.lineOf(w)
	x := &waiter{
		w: w, line: line, lane: laneOf(w), since: time.Now(),
		ready: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	if r.n == 0 {
		p.press(true)
	}
	if line.n == 0 {
		// It does not make up for the time when it wanted nothing.
		line.virtual = max(line.virtual, r.virtual)
		r.lines = append(r.lines, line)
	}
	r.n++
	line.n++
	lane := &line.lanes[x.lane]
	if x.prev = lane.last; x.prev == nil {
		lane.first = x
		r.comesFirst(x)
	} else {
		x.prev.next = x
	}
	lane.last = x
	if r.lookout == nil {
		r.lookout = x
	}
	return x
}

// comesFirst notes that a waiter became the first of its lane.
func (r *waitRoom) comesFirst(x *waiter) {
	x.first, x.served = time.Now(), r.served
	if t := x.line.tenant; t != nil {
		x.granted = t.grantedBytes()
	}
}

// leaveLine takes a waiter out; another one becomes the lookout. p.mu is held.
func (p *Pool) leaveLine(x *waiter) {
	r, line := &p.waiters, x.line
	lane := &line.lanes[x.lane]
	if x.prev != nil {
		x.prev.next = x.next
	} else if lane.first = x.next; x.next != nil {
		r.comesFirst(x.next)
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		lane.last = x.prev
	}
	x.settled = true
	r.n--
	if line.n--; line.n == 0 {
		for i, l := range r.lines {
			if l == line {
				r.lines = append(r.lines[:i], r.lines[i+1:]...)
				break
			}
		}
	}
	if r.hold.of == x {
		p.endHold()
	} else if line.keeps == x {
		p.keepOfTenant(line, nil, time.Now())
	}
	if r.lookout == x {
		if r.lookout = r.anybody(); r.lookout != nil {
			r.lookout.poke()
		}
	}
}

// anybody returns one of those who wait, nil when nobody does.
func (r *waitRoom) anybody() (any *waiter) {
	r.eachFirst(func(x *waiter) { any = x })
	return any
}

func (x *waiter) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// grant ends a wait with a block, unless its tenant has no room any more: then the block
// is free again. p.mu is held.
func (p *Pool) grant(x *waiter, c *owner.Cell) bool {
	r := &p.waiters
	if t := x.w.tenant; t != nil && !t.pay(x.w, x.line.keeps == x) {
		p.putBack(c)
		return false
	}
	r.served += c.Size
	x.line.virtual += c.Size << 16 / max(x.line.weight, 1)
	r.virtual = max(r.virtual, x.line.virtual)
	x.cell = c
	p.leaveLine(x)
	close(x.ready)
	return true
}

// roomMade serves those who wait for memory from what has come back. p.mu is held.
func (p *Pool) roomMade() {
	if p.waiters.n != 0 {
		p.serveLines()
	}
}

func (p *Pool) serveLines() {
	r := &p.waiters
	if r.serving {
		return // what serves makes room
	}
	r.serving = true
	defer func() { r.serving = false }()
	for r.n > 0 && (p.serveHeld() || p.serveNext()) {
	}
	p.relax()
}

// relax ends the pressure when nobody waits any more, here or for what is kept here.
// p.mu is held.
func (p *Pool) relax() {
	if p.waiters.n == 0 && p.waiters.hold.of == nil && p.front.pressed && !p.closed {
		p.press(false)
	}
}

// serveNext serves one of those who wait, and tells whether it could. p.mu is held.
func (p *Pool) serveNext() bool {
	lines := p.waiters.lines
	// The line with the least share first, of those above their soft limits last;
	// there are as many as tenants that wait.
	if len(lines) > 1 {
		for _, line := range lines {
			line.over = line.tenant.overSoft()
		}
	}
	for i := 1; i < len(lines); i++ {
		for k := i; k > 0 && lines[k].before(lines[k-1]); k-- {
			lines[k], lines[k-1] = lines[k-1], lines[k]
		}
	}
	for _, line := range lines {
		for range lanes {
			line.turn = (line.turn + 1) % lanes
			if p.serveLane(line.lanes[line.turn].first) {
				return true
			}
		}
	}
	return false
}

// before tells whether a line is served before another.
func (l *waitLine) before(o *waitLine) bool {
	if l.over != o.over {
		return o.over
	}
	return l.virtual < o.virtual
}

// serveLane tries the first of a lane and the next few. Where the upstream may have
// room for one of them, and nobody before it is about to ask, it is woken to do so.
// p.mu is held.
func (p *Pool) serveLane(first *waiter) bool {
	x, asks := first, true
	for range lookAhead {
		if x == nil {
			return false
		}
		if p.serveOne(x) {
			return true
		}
		if asks {
			p.considerGrowth(x)
		}
		asks = asks && !x.grows
		x = x.next
	}
	return false
}

// considerGrowth wakes one who waits to ask the upstream, if that may have room.
// p.mu is held.
func (p *Pool) considerGrowth(x *waiter) {
	if !x.grows && p.mayGrow(x) && p.affords(x) {
		x.grows = true
		x.poke()
	}
}

// affords tells whether the tenant of one who waits has room for it. p.mu is held.
func (p *Pool) affords(x *waiter) bool {
	t := x.w.tenant
	return t == nil || t.affords(x.w, x.line.keeps == x)
}

// serveOne serves one who waits from what is free, and tells whether it could. p.mu
// is held.
func (p *Pool) serveOne(x *waiter) bool {
	if !p.affords(x) {
		return false
	}
	c := p.findFor(x)
	return c != nil && p.grant(x, c)
}

// findFor looks for a block for one who waits, in what is free. p.mu is held.
func (p *Pool) findFor(x *waiter) *owner.Cell {
	w := x.w
	if w.r.Queue != nil && p.pending.unstalled.Load() != 0 {
		if c := p.sameQueue(w); c != nil {
			return c
		}
	}
	r := &p.waiters
	if p.heap.freeBytes() < uint64(w.least)*unit {
		return nil
	}
	if r.keepsFromIt(x) && p.heap.dedicated(w) {
		return p.heap.carveAny(w) // segments of their own are kept as well
	}
	if c := p.findFree(w); c != nil {
		return c
	}
	if r.hold.of == x {
		if c := p.heap.takeReserved(w); c != nil {
			return c
		}
	}
	if c := p.heap.carveAny(w); c != nil {
		return c
	}
	if (r.thorough || r.hold.of == x) && p.heap.openIdle(w) {
		return p.heap.carveAny(w)
	}
	return nil
}

// mayGrow tells whether the limits have room for one who waits, with what the pool
// could give back and without what it keeps for another, and the upstream has not just
// refused as much; without a limit nobody knows. p.mu is held.
func (p *Pool) mayGrow(x *waiter) bool {
	need, r := p.segmentNeed(x.w), &p.waiters
	tight, room := p.limitRoom()
	if tight == nil || r.refusal.covers(need) {
		return false
	}
	if r.keepsFromIt(x) {
		return room >= need && room+p.heap.spare() >= need+p.segmentNeed(r.hold.of.w)
	}
	return room+p.heap.spare() >= need
}

// keepsFromIt tells whether room is kept for another.
func (r *waitRoom) keepsFromIt(x *waiter) bool { return r.hold.of != nil && r.hold.of != x }

// claimsAll tells whether another one is to have all that an upstream of whose room
// nobody knows has left, because room is kept for it in several pools.
func (r *waitRoom) claimsAll(x *waiter) bool {
	return r.keepsFromIt(x) && (r.hold.of.claimed || r.hold.of.claims != nil)
}

// attend is what a waiter does when it wakes: it asks the upstream when it is to,
// and looks around when it is the lookout. It tells whether that served anybody.
func (p *Pool) attend(x *waiter) (progress bool) {
	p.mu.Lock()
	grows, lookout, settled, before := x.grows, p.waiters.lookout == x, x.settled, p.waiters.n
	x.grows = false
	p.mu.Unlock()
	if settled {
		return false
	}
	if lookout {
		grows = p.watch(x) || grows
	}
	if grows {
		p.growInLine(x)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiters.n < before
}

// pauseOf is how long a waiter sleeps: only the lookout wakes by itself.
func (p *Pool) pauseOf(x *waiter, pause time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters.lookout != x {
		return time.Hour
	}
	if h := &p.waiters.hold; h.of != nil { // the others go on as soon as that ends
		pause = min(pause, max(time.Until(h.until), shortWatch))
	}
	return pause
}

// watch is the lookout's round. It tells whether the upstream is worth another
// question.
func (p *Pool) watch(x *waiter) (ask bool) {
	p.origin.list.Drain()
	p.pending.completeSome(refusalLooks)
	due := false
	need := p.segmentNeed(x.w)
	p.mu.Lock()
	if at := time.Now(); at.Sub(p.asked) >= askAgain {
		p.asked, due = at, true
	}
	p.waiters.eachFirst(func(first *waiter) { need = max(need, p.segmentNeed(first.w)) })
	p.mu.Unlock()
	if due {
		p.claimElsewhere()
		p.collectDropped()
		if !p.reclaimOthers(need) {
			p.reclaimOthers(p.segmentNeed(x.w)) // enough for this one, perhaps
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters.thorough = true
	p.roomMade()
	p.waiters.thorough = false
	p.considerHold()
	if tight, _ := p.limitRoom(); due && tight == nil {
		p.waiters.eachFirst(p.askBlindly)
	}
	ask, x.grows = x.grows && !x.settled, false
	return ask
}

// eachFirst calls f for the first of each lane.
func (r *waitRoom) eachFirst(f func(*waiter)) {
	for _, line := range r.lines {
		for lane := range line.lanes {
			if x := line.lanes[lane].first; x != nil {
				f(x)
			}
		}
	}
}

// askBlindly has the first of a lane ask an upstream of whose room nobody knows, and
// of the next few the one that wants least: where the first is too large, that one may
// not be. p.mu is held.
func (p *Pool) askBlindly(first *waiter) {
	least, x := first, first.next
	for i := 1; i < lookAhead && x != nil; i, x = i+1, x.next {
		if x.w.units < least.w.units {
			least = x
		}
	}
	for _, x := range [...]*waiter{first, least} {
		x.grows = true
		x.poke()
	}
}

// growInLine asks the upstream on behalf of one who waits; what it gives serves
// the others too.
func (p *Pool) growInLine(x *waiter) {
	if p.beginGrowth(x.w.r.Context) != nil {
		return
	}
	defer p.endGrowth()
	p.mu.Lock()
	size, need := p.segmentFor(x.w)
	tight, room := p.limitRoom()
	if x.settled || !p.affords(x) || tight == nil && p.waiters.claimsAll(x) || p.waiters.refusal.covers(uint64(need)) {
		p.mu.Unlock()
		return
	}
	if (tight == nil || room < uint64(need)) && p.heap.spare() > 0 && !p.waiters.keepsFromIt(x) {
		p.heap.release(0)
	}
	p.mu.Unlock()
	c, err := p.grow(x.w, size, need)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil && !x.settled:
		p.grant(x, c)
	case err == nil:
		p.putBack(c)
	case !x.settled && !ranOut(err):
		x.err = err
		p.leaveLine(x)
		close(x.ready)
	default:
		p.waiters.refusal.note(uint64(need))
	}
	p.roomMade()
	p.relax()
}

// putBack takes a block back that was found for one who is gone. p.mu is held.
func (p *Pool) putBack(c *owner.Cell) {
	if p.pending.working(c) {
		p.pending.add(c)
		return
	}
	p.complete(c)
}

// endWaits tells all who wait that the pool was closed. p.mu is held.
func (p *Pool) endWaits() {
	for len(p.waiters.lines) > 0 {
		p.endLine(p.waiters.lines[0], p.closedError())
	}
	p.eachTenant(func(t *Tenant) { t.endQueue(p.closedError()) })
	if p.waiters.hold.of != nil { // for another pool
		p.endHold()
	}
}

// endLine sends everybody in a line away. p.mu is held.
func (p *Pool) endLine(line *waitLine, cause error) {
	for lane := range line.lanes {
		for x := line.lanes[lane].first; x != nil; x = line.lanes[lane].first {
			x.err = cause
			p.leaveLine(x)
			close(x.ready)
		}
	}
	p.relax()
}
