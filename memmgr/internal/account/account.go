package account

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/histogram"
)

// Gauge is a quantity with its peak. Safe for concurrent use.
type Gauge struct {
	now, peak atomic.Int64
}

// Now returns the present value.
func (g *Gauge) Now() int64 { return g.now.Load() }

// Peak returns the largest value that was seen.
func (g *Gauge) Peak() int64 { return g.peak.Load() }

func (g *Gauge) add(d int64) {
	if now := g.now.Add(d); d > 0 {
		g.raise(now)
	}
}

// raise lifts the peak to a value, if it is higher.
func (g *Gauge) raise(seen int64) {
	for {
		peak := g.peak.Load()
		if seen <= peak || g.peak.CompareAndSwap(peak, seen) {
			return
		}
	}
}

// Account counts the memory of a pool.
type Account struct {
	Bytes, Blocks, Asked Gauge // in use: bytes of blocks, blocks, requested bytes
	// Peaks of the blocks in use together with those that have device work pending. Only RaiseActive raises them,
	// and only above the peaks of Bytes and Blocks.
	active, activeBlocks Gauge

	Slow, Upstream, Waits histogram.Histogram // requests that no shard served, calls for segments, waits for memory
	Tagged                TagUse              // without the blocks of tenants

	Retries, Failures int64 // searches after a refusal of the upstream, failed requests; guarded by the lock

	// The lock guards the following. They count only requests that no shard served.
	allocs, frees          [block.NumClasses + 1]uint64 // by class
	large, unlarge         uint64                       // bytes of blocks without a class, allocated and freed
	requested, unrequested uint64                       // requested bytes, allocated and freed
	locked                 uint64                       // requests that found the lock free
	unpublished            front.Change                 // not yet in Blocks and Asked
	peakBlocks, peakAsked  int64                        // peaks that are not yet in Blocks and Asked
}

// Publish adds a change to the gauges. It needs no lock.
func (a *Account) Publish(c front.Change) {
	a.Bytes.add(c.Bytes)
	a.Blocks.add(c.Blocks)
	a.Asked.add(c.Asked)
}

// publishOne is Publish for one block. It updates at once only the gauge of bytes; PublishRest does the rest. The lock
// is held.
func (a *Account) publishOne(bytes, blocks, asked int64) {
	o := &a.unpublished
	a.Bytes.add(bytes)
	o.Blocks += blocks
	o.Asked += asked
	if blocks > 0 {
		a.peakBlocks = max(a.peakBlocks, a.Blocks.Now()+o.Blocks)
		a.peakAsked = max(a.peakAsked, a.Asked.Now()+o.Asked)
	}
}

// PublishRest publishes what Count and Uncount left. The lock is held.
func (a *Account) PublishRest() {
	a.Blocks.raise(a.peakBlocks)
	a.Asked.raise(a.peakAsked)
	a.peakBlocks, a.peakAsked = 0, 0
	a.Blocks.add(a.unpublished.Blocks)
	a.Asked.add(a.unpublished.Asked)
	a.unpublished = front.Change{}
}

// Count counts a block of class k that goes to a user. The lock is held.
func (a *Account) Count(c *owner.Cell, k int, requested uintptr) {
	a.allocs[k]++
	a.requested += uint64(requested)
	if k >= block.NoClass {
		a.large += c.Size
	}
	a.publishOne(int64(c.Size), 1, int64(requested))
}

// Uncount counts a block of class k that a user freed. The lock is held.
func (a *Account) Uncount(c *owner.Cell, k int) {
	a.frees[k]++
	a.unrequested += c.Requested
	if k >= block.NoClass {
		a.unlarge += c.Size
	}
	a.publishOne(-int64(c.Size), -1, -int64(c.Requested))
}

// Counted returns how many blocks of class k were counted. The lock is held.
func (a *Account) Counted(k int) uint64 { return a.allocs[k] }

// Totals are the sums of an account and of the shards, ever, and the bytes that the shards cache.
type Totals struct {
	front.Usage
	Cached int64
}

// Collect publishes the counts of all shards and returns the totals. The lock is held, and the shards are stopped.
func (a *Account) Collect(f *front.Front) (t Totals) {
	a.PublishRest()
	allocs, frees := a.allocs, a.frees
	t.Asked, t.Unasked = a.requested, a.unrequested
	for s := range f.Shards() {
		t.Cached += s.Cached()
		a.Publish(s.TakeChange())
		asked, unasked := s.Requested()
		t.Asked, t.Unasked = t.Asked+asked, t.Unasked+unasked
		for k := range block.NumClasses {
			got, released := s.Uses(k)
			allocs[k], frees[k] = allocs[k]+got, frees[k]+released
		}
	}
	t.Taken, t.Given = a.large, a.unlarge
	for k := range allocs {
		t.Allocs += allocs[k]
		t.Frees += frees[k]
		if k < block.NumClasses {
			t.Taken += allocs[k] * uint64(block.ClassBytes[k])
			t.Given += frees[k] * uint64(block.ClassBytes[k])
		}
	}
	return t
}

// RaiseActive raises the peaks of the blocks in use together with these pending ones, and returns them.
func (a *Account) RaiseActive(blocks, bytes uint64) (peakBlocks, peakBytes int64) {
	a.activeBlocks.raise(a.Blocks.Now() + int64(blocks))
	a.active.raise(a.Bytes.Now() + int64(bytes))
	return max(a.activeBlocks.Peak(), a.Blocks.Peak()), max(a.active.Peak(), a.Bytes.Peak())
}

// ResetPeaks sets the peaks to the present values.
func (a *Account) ResetPeaks() {
	for _, g := range []*Gauge{&a.Bytes, &a.Blocks, &a.Asked} {
		g.peak.Store(g.Now())
	}
	a.active.peak.Store(0) // RaiseActive raises these two
	a.activeBlocks.peak.Store(0)
}

// Sample is how many requests that find the lock free and a block one timed request stands for, because reading the
// clock twice costs a tenth of such a request. Measure: random and million of membench.
const Sample = 64

// Sampled counts a request that found the lock free, and reports whether it is timed. The lock is held.
func (a *Account) Sampled() bool {
	a.locked++
	return a.locked%Sample == 0
}

// Quick estimates how many of so many allocations the front served: those that no timed request stands for.
func (a *Account) Quick(allocations int64) int64 {
	return max(0, allocations-a.Slow.Total())
}
