package memmgr

import (
	"cmp"
	"slices"
	"time"
)

// Pools under one limit, or on one device, give way to each other: before a request
// of one is refused, the others give back what they keep idle.

// idleBytes is how much a pool could give up, as well as can be told without its lock:
// what it has from its upstream less what users hold.
func (p *Pool) idleBytes() uint64 {
	used, _ := p.inUse()
	return uint64(max(0, p.heap.count.now.Load()-used))
}

// othersGiveWay has other pools give up idle memory for a request of so many bytes,
// those with the most first, until there is enough together with what the limit has
// left and this pool could give back itself. Where a limit refused, only the pools
// below it can help. It reports whether anything went back. No lock is held.
func (p *Pool) othersGiveWay(need uint64) (gave bool) {
	tight, room := p.limitRoom()
	if tight == nil || room >= need {
		tight, room = nil, 0 // the device refused
	} else {
		p.mu.Lock()
		room += p.heap.spare()
		p.mu.Unlock()
		if room >= need {
			return false // nobody else has to
		}
	}
	type keeps struct {
		pool  *Pool
		bytes uint64
	}
	var others []keeps
	sum, missing := uint64(0), need-room
	for _, q := range keeper.open() {
		if q == p || (tight != nil && !q.countsIn(tight.budget)) {
			continue
		}
		if n := q.idleBytes(); n > 0 {
			others, sum = append(others, keeps{q, n}), sum+n
		}
	}
	if tight != nil && sum < missing {
		return false
	}
	slices.SortFunc(others, func(a, b keeps) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, o := range others {
		freed := o.pool.yield(missing)
		gave = gave || freed > 0
		if freed >= missing {
			break
		}
		missing -= freed
	}
	return gave
}

// countsIn tells whether a pool's memory counts in a budget.
func (p *Pool) countsIn(b *limitBudget) bool {
	return slices.ContainsFunc(p.limits, func(l *Limit) bool { return l.budget == b })
}

// barrenTime is how long a pool's caches are left alone after they were dissolved
// for others and nothing became empty; longer when that took long.
const barrenTime = 10 * time.Millisecond

// yield gives up so many bytes of what is out of use, for another pool: as much as
// is there, first what lies in whole segments, then what the caches hold.
func (p *Pool) yield(bytes uint64) (freed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	spare := p.heap.spare()
	freed = p.heap.release(spare - min(spare, bytes))
	if freed >= bytes || p.cachedBytes() <= 0 {
		return freed
	}
	start := time.Now()
	if start.Before(p.barren) {
		return freed
	}
	p.flush()
	spare = p.heap.spare()
	more := p.heap.release(spare - min(spare, bytes-freed))
	if more == 0 {
		end := time.Now()
		p.barren = end.Add(max(barrenTime, futileShare*end.Sub(start)))
	}
	return freed + more
}
