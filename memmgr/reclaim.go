package memmgr

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/syclobj"
)

// reclaimOwn frees blocks in caches of other packages ([AddCache]), blocks that C dropped, blocks whose device work is
// done or for which settleAll waits, and blocks whose pages are being returned, for a request that the upstream has refused. It visits no blocks
// in use. The poller of the waitlist takes the same steps for all waiters.
func (p *Pool) reclaimOwn() {
	p.collectDropped()
	settleAll()
	p.pending.CompleteSome(refusalLooks)
	p.purging.Await()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Retries++
}

// collectDropped frees blocks that C dropped. Foreign memory and memory of resources above a pool
// may belong to this pool. Another goroutine may be freeing blocks of the pool that C dropped
// before: collectDropped waits for it.
func (p *Pool) collectDropped() {
	emptyFronts()
	foreignCells.Drain()
	plainCells.Drain()
	p.cells.Sync()
}

// reclaimOthers makes other pools give up idle memory, those with the most first. They are the pools that use the
// memory that this one lacks: below each limit with too little room, or on the same device if all limits have enough.
// It stops when the room of the limit and the empty segments of this pool, whose caches it evicts, are enough together.
// It does nothing if all idle memory together is too little. It reports whether any memory was freed. No lock is held.
func (p *Pool) reclaimOthers(need uint64) (gave bool) {
	if !p.couldServe(need) {
		return false
	}
	var short []*Limit
	for _, l := range p.limits {
		room := l.budget.room()
		if room >= need {
			continue
		}
		if _, sum := p.otherPools(l, (*Pool).idle); room+p.idle()+sum < need {
			return false
		}
		short = append(short, l)
	}
	if short == nil {
		return p.takeIdle(nil, need) // the device refused
	}
	for _, l := range short {
		gave = p.takeIdle(l, need) || gave
	}
	return gave
}

// takeIdle is reclaimOthers for one limit, or for the device if it is nil. What a pool above another one gives up comes
// into that one, which is then asked too.
func (p *Pool) takeIdle(l *Limit, need uint64) (gave bool) {
	taken := uint64(0) // of the device, whose room is unknown
	missing := func() uint64 {
		if l != nil {
			taken = l.budget.room() + p.emptyBytes()
		}
		return need - min(need, taken)
	}
	if l != nil && missing() > 0 {
		gave = p.evictFor(need)
	}
	for more, rounds := true, 0; more && rounds < mostStacked; rounds++ {
		more = false
		others, _ := p.otherPools(l, (*Pool).idle)
		for _, o := range others {
			bytes := missing()
			if bytes == 0 {
				return gave
			}
			if o.pending.Unstalled.Load() != 0 {
				o.pending.CompleteSome(refusalLooks)
			}
			freed := o.yield(bytes)
			gave, more = gave || freed > 0, more || freed > 0 && o.poolBelow
			if !o.poolBelow {
				taken += freed
			}
		}
	}
	return gave
}

// emptyBytes returns the bytes of segments out of use.
func (p *Pool) emptyBytes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heap.EmptyBytes()
}

// evictFor evicts the own cached blocks for a request that takes memory of other pools too, unless that was in vain a
// moment ago. It reports whether segments became empty.
func (p *Pool) evictFor(need uint64) (helped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cached, empty := p.cachedBytes(), p.heap.EmptyBytes()
	if cached <= 0 {
		return false
	}
	p.evictAll(&p.reclaim.requests, need, uint64(cached)+p.heap.FreeBytes(), futileTime, func() bool {
		helped = p.heap.EmptyBytes() != empty || len(p.mu.dropped) > 0
		return helped
	})
	return helped
}

// idle estimates the bytes of segments that users do not have: free, cached or pending. It needs no lock.
func (p *Pool) idle() uint64 {
	used, _ := p.inUse()
	return uint64(max(0, int64(p.heap.Reserved())-used))
}

// otherPool is another pool, with bytes that it may give up.
type otherPool struct {
	*Pool
	bytes uint64
}

// otherPools lists the other open pools whose memory counts in a limit, or is on the same device if the limit is nil,
// and for which f returns bytes, those with the most first. It returns the sum too.
func (p *Pool) otherPools(l *Limit, f func(*Pool) uint64) (all []otherPool, sum uint64) {
	for _, q := range keeper.open() {
		if q == p || l == nil && q.device != p.device || l != nil && !slices.Contains(q.budgets, l.budget) {
			continue
		}
		if n := f(q); n > 0 {
			all, sum = append(all, otherPool{q, n}), sum+n
		}
	}
	slices.SortFunc(all, func(a, b otherPool) int { return cmp.Compare(b.bytes, a.bytes) })
	return all, sum
}

// deviceOf names the device whose memory a place takes. Host USM and all memory of a CPU are
// memory of the host.
func deviceOf(place *syclobj.Place) string {
	if place == nil || place.Kind() == syclobj.USMHost || strings.Contains(place.FilterString(), ":cpu:") {
		place = syclobj.HostPlace()
	}
	return place.FilterString()
}

// yield gives up to so many bytes back for another pool: first segments without blocks in
// use, then those that become so when the cached blocks are evicted.
func (p *Pool) yield(bytes uint64) (freed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	had := p.heap.Reserved()
	release := func() bool {
		empty := p.heap.EmptyBytes()
		p.heap.Release(empty - min(empty, bytes-min(freed, bytes)))
		before := freed
		freed = had - p.heap.Reserved() // an eviction frees segments too: see WithRetention
		return freed != before
	}
	release()
	if freed < bytes && p.cachedBytes() > 0 {
		p.evictAll(&p.reclaim.others, 0, 0, barrenTime, release)
	}
	if freed < bytes {
		p.mu.awaitReturned() // segments that other goroutines are giving back
	}
	return freed
}

// reclaim is the part of a pool that limits how often it looks for memory in vain. Pool.mu
// guards it.
type reclaim struct {
	// Evictions of all cached blocks for requests of the pool, and for other pools. They stop
	// every processor.
	requests, others vainLimit
	refused          refusals
}

// refusals are those of the upstream to waiters. They ask it less and less often, because another
// process may use the device for long.
type refusals struct {
	vainLimit
	pause time.Duration // between the last two questions
	freed uint64        // upstreamFrees at the last one
	at    time.Time     // of the last one
	err   error         // its reason, see deviceReason
}

// upstreamFrees counts how often pools gave segments back, and how often unified shared memory
// was freed.
var upstreamFrees atomic.Uint64

// covers reports whether a question would be in vain again. If memory was freed since, that is
// so only for retryTime.
func (r *refusals) covers(need uint64, at time.Time) bool {
	if r.freed != upstreamFrees.Load() {
		at = at.Add(r.pause - retryTime)
	}
	return r.vainLimit.covers(need, 0, at)
}

// note records a refusal.
func (r *refusals) note(need uint64, err error) {
	freed := upstreamFrees.Load()
	r.pause = min(2*r.pause, longRetry)
	if r.pause == 0 || freed != r.freed {
		r.pause = retryTime
	}
	r.freed, r.at, r.err = freed, time.Now(), deviceReason(err)
	r.vainLimit.note(need, 0, r.at, r.pause)
}

// since returns the reason of a refusal since a time, or nil.
func (r *refusals) since(at time.Time) error {
	if r.at.Before(at) {
		return nil
	}
	return r.err
}

// deviceReason returns the reason of a refusal without the figures of the resources that passed it
// on; nil for that of a limit, and for the end of a context.
func deviceReason(err error) error {
	for oom := (*OutOfMemoryError)(nil); errors.As(err, &oom); {
		err = oom.Err
	}
	if errors.Is(err, errLimit) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// vainLimit is a recent attempt in vain.
type vainLimit struct {
	need, free uint64
	until      time.Time
}

// covers reports whether an attempt would be in vain again: for a need as large or larger,
// unless more memory is free.
func (l *vainLimit) covers(need, free uint64, at time.Time) bool {
	return need >= l.need && free <= l.free && at.Before(l.until)
}

// note records an attempt in vain that began at start.
func (l *vainLimit) note(need, free uint64, start time.Time, pause time.Duration) {
	end := time.Now()
	*l = vainLimit{need, free, end.Add(max(pause, min(futileShare*end.Sub(start), mostFutile)))}
}

// evictAll evicts all cached blocks, unless that was in vain a moment ago, and calls use,
// which reports whether it helped. p.mu is held.
func (p *Pool) evictAll(l *vainLimit, need, free uint64, pause time.Duration, use func() bool) {
	start := time.Now()
	if l.covers(need, free, start) {
		return
	}
	p.flush()
	if !use() {
		l.note(need, free, start, pause)
	}
}

// cachedBytes estimates the bytes that front and depot cache, without stopping the
// shards. p.mu is held.
func (p *Pool) cachedBytes() int64 { return p.heap.Depot.Bytes() + p.front.Cached() }

// flush frees every block that front and depot cache. p.mu is held.
func (p *Pool) flush() {
	p.heap.DissolveStack(p.front.Drain())
	p.heap.Flush()
}

// press turns the pressed mode on or off. The pool is pressed while a request waits for
// memory. Then nothing is cached: each freed block goes to the heap at once, and
// [Pool.serveWaiters] is called. p.mu is held.
func (p *Pool) press(on bool) {
	if p.front.Pressed() == on {
		return
	}
	p.heap.Depot.Off = on || p.closed
	p.heap.DissolveStack(p.front.Press(on))
	p.heap.Flush()
}

// Trim evicts all cached blocks, and gives segments without blocks
// in use back to the upstream until at most keep bytes of them are left. If the upstream is
// a [Discarder], it also gives back whole pages of free blocks in the other segments.
func (p *Pool) Trim(keep uint64) (freed uint64) {
	p.collectDropped()
	p.settle(context.Background())
	p.pending.CompleteAll()
	freed = p.trimSegments(keep)
	return freed + p.purging.All(keep)
}

// trimSegments is the part of Trim for whole segments. It holds purging.Mu, because a block
// that is being purged keeps its segment in use. A call of the upstream may panic.
func (p *Pool) trimSegments(keep uint64) (freed uint64) {
	p.purging.Mu.Lock()
	defer p.purging.Mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	return p.heap.Release(keep)
}

// tick collects blocks whose device work is done, and returns memory that has been idle for
// the time of [WithDecay]. It reports whether the pool is closed and all its memory is back.
func (p *Pool) tick() (ended bool) {
	p.cells.Drain()
	p.mu.Lock()
	due := p.heap.Tick()
	p.serveWaiters()
	p.mu.Unlock()
	p.pending.Tick()
	ended = p.decay(due)
	if due {
		p.purging.Tick()
	}
	return ended
}

// decay returns the memory that is idle for the time of [WithDecay]: cached blocks are freed, if they are due for
// a look, and segments without blocks in use go back to the upstream. It does so in portions, between which it
// releases the lock. It reports whether the pool is closed and all its memory is back.
func (p *Pool) decay(due bool) (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return !p.leaked
	}
	if p.heap.Reserved() == 0 || !p.heap.Decays() {
		return false
	}
	if due {
		p.heap.AgeCaches(&p.front)
	}
	for p.heap.DecayCold() {
		p.pending.Breathe(1)
	}
	for !p.closed && p.heap.DecaySegments() {
		p.pending.Breathe(1)
	}
	p.serveWaiters()
	return false
}

// fronts are the caches that [AddCache] registers: *func() to nothing.
var fronts sync.Map

// AddCache registers a cache that another package keeps in front of the pools: unused blocks that
// count as in use in their pool. give must free these blocks. It is called before a pool returns its
// counters or a snapshot, is trimmed or closed, and when a request finds no memory. It may be called
// on any goroutine and concurrently; no pool is locked meanwhile. give must be quick and must not
// allocate from a pool. remove ends the registration.
func AddCache(give func()) (remove func()) {
	fronts.Store(&give, nil)
	return func() { fronts.Delete(&give) }
}

// emptyFronts calls give of all registered caches. The freed blocks are then in lists that
// must be drained. No lock is held.
func emptyFronts() {
	fronts.Range(func(give, _ any) bool {
		(*give.(*func()))()
		return true
	})
}
