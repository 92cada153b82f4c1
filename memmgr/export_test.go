package memmgr

import (
	"math"
	"time"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
)

// Tick runs one tick of the keeper for the pool.
func (p *Pool) Tick() (ended bool) { return p.tick() }

// Press begins or ends the pressed mode.
func (p *Pool) Press(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.press(on)
}

// EvictInVain evicts all cached blocks for a request of any size, which takes so long and does not help.
func (p *Pool) EvictInVain(long time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evictAll(&p.reclaim.requests, 0, math.MaxUint64, futileTime, func() bool {
		time.Sleep(long)
		return false
	})
}

// BudgetLeft returns the unused bytes of the cache bound.
func (p *Pool) BudgetLeft() int64 { return p.front.Budget.Left() }

// Inside returns the cell, as Cell does, but does not mark it as shown to C.
func (b Buffer) Inside() *owner.Cell { return b.ref.Cell() }

// ResidentBytes is sysmem.Resident.
func ResidentBytes(address, size uintptr) uintptr { return sysmem.Resident(address, size) }

// Untended removes the pool from the keeper, so that only Tick advances its clock.
func (p *Pool) Untended() { keeper.remove(p, false) }

// TickTime is the time between two ticks.
const TickTime = tickTime

// HoldQueues locks the table of queues until the returned function is called.
func HoldQueues() (let func()) { return order.HoldQueues() }

// HoldGrowth lets no request ask the upstream until the returned function is called.
func (p *Pool) HoldGrowth() (let func()) {
	p.growing <- struct{}{}
	return p.endGrowth
}

// StacksRecorded returns the depth of the stacks that are recorded.
func StacksRecorded() int { return int(stacks.Depth.Load()) }

// ClearPending removes the pending event of a buffer whose work is known to be complete.
func (b Buffer) ClearPending() {
	c := b.live("ClearPending")
	c.HoldPending()
	event := c.SwapPending(0)
	c.LetPending()
	if event != 0 {
		order.System.ReleaseEvent(event)
	}
}

// DefaultPools returns the number of default pools.
func DefaultPools() int {
	defaults.mu.Lock()
	defer defaults.mu.Unlock()
	return len(defaults.m)
}

// Stall makes all pending blocks count as waiting for longer than stallTime.
func Stall(p *Pool) {
	p.mu.Lock()
	p.pending.Stall()
	p.mu.Unlock()
}

// Stalled returns the number of stalled blocks.
func Stalled(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, now := p.pending.Stalled()
	return now
}

// Unstalled returns the number of blocks that a request without the lock takes as pending.
func Unstalled(p *Pool) int { return int(p.pending.Unstalled.Load()) }

// BackgroundFailures returns the number of reported failures of work in the background.
func BackgroundFailures() uint64 { return diag.Failures.Load() }

// ForgetStart makes unpooled memory that waits for a device count as waiting for longer than
// stallTime.
func ForgetStart() { keeper.frees.Stall() }

// Origins returns the number of records of memory of resources that are not pools.
func Origins() int { return countRecords(func(r Resource) bool { return r != nil }) }

// OriginsOf returns the number of records of memory of a resource.
func OriginsOf(r Resource) int { return countRecords(func(of Resource) bool { return of == r }) }

func countRecords(is func(Resource) bool) (n int) {
	for i := range records {
		chunk := records[i].Load()
		if chunk == nil {
			continue
		}
		for k := range chunk {
			if r := &chunk[k]; r.place.Load() != nil && is(r.resource) {
				n++
			}
		}
	}
	return n
}

// Shards returns the number of shards of the pool.
func Shards(p *Pool) int { return p.front.Len() }

// PoolReserves reports whether the pool reserves memory for a waiter.
func PoolReserves(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waitlist.reserved.of != nil
}

// TenantReserves reports whether a tenant reserves room below its limit for a waiter in the pool's
// line for which the pool reserves nothing.
func TenantReserves(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.waitlist.lines {
		if t := line.tenant; t != nil {
			t.mu.Lock()
			of := t.reserved.of
			t.mu.Unlock()
			if of != nil && of != p.waitlist.reserved.of {
				return true
			}
		}
	}
	return false
}

// ReservesForAnotherPool reports whether the pool reserves memory for a waiter of another pool.
func ReservesForAnotherPool(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waitlist.reserved.foreign
}

// WithoutKeeper calls f while no goroutine ticks pools that f makes, so that f can run in virtual time.
// No pool is made or closed elsewhere meanwhile.
func WithoutKeeper(f func()) {
	// The reaper of owner cells starts with the first one, and stays outside of virtual time.
	b, err := New(Host(), Request{Size: 1})
	if err != nil {
		panic(err)
	}
	b.Release()
	old := keeper
	defer func() { keeper = old }()
	keeper = newKeeper()
	keeper.stopped = true
	f()
}

// ServeInTurns serves blocks of so many bytes, n in all, to lines of these weights, and calls f with the bytes that each
// line got so far.
func ServeInTurns(bytes uint64, n int, weights []uint64, f func(served []float64)) {
	l, served := waitlist{}, make([]float64, len(weights))
	lines := make([]waitLine, len(weights))
	for i, weight := range weights {
		lines[i].weight = weight
		l.lines = append(l.lines, &lines[i])
	}
	for range n {
		l.sort()
		next := l.lines[0]
		l.count(next, bytes)
		for i := range lines {
			if next == &lines[i] {
				served[i] += float64(bytes)
			}
		}
		f(served)
	}
}
