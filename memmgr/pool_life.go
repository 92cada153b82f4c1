package memmgr

import (
	"fmt"

	"github.com/usmbridge/usmbridge/memmgr/owner"
)

// tick completes what waits for the device, and lets memory go that has been
// idle for the time of [WithDecay]. It tells whether the pool was closed and the
// last of its memory is back.
func (p *Pool) tick() (ended bool) {
	p.origin.list.Drain()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks++
	if p.waiting.Load() != 0 {
		p.collect(-1)
	}
	if p.closed {
		return !p.leaked
	}
	if p.options.decay <= 0 || p.counters.reserved == 0 {
		return false
	}
	age := uint32(max(1, p.options.decay/tickTime))
	p.watchFront(age)
	p.decay(age)
	return false
}

// watchFront dissolves the caches when nobody has used them for a while.
func (p *Pool) watchFront(age uint32) {
	ops := uint64(0)
	cached := p.counters.depotBytes
	p.stopShards()
	for i := range p.shards {
		ops += p.shards[i].asked + p.shards[i].unasked
		cached += p.shards[i].cached()
	}
	p.resumeShards()
	ops += p.counters.asked + p.counters.unasked
	if ops != p.lastOps {
		p.lastOps, p.quiet = ops, 0
		return
	}
	p.quiet++
	if p.quiet >= age && cached > 0 {
		p.flush()
	}
}

// decay gives back the segments that have been empty for so many ticks.
func (p *Pool) decay(age uint32) {
	for at := 0; at < len(p.idle); {
		if p.ticks-p.idle[at].tick < age {
			at++
			continue
		}
		p.dropIdle(at)
	}
	if p.heap.Counts().EmptySegments == 0 {
		return
	}
	for _, n := range p.heap.EmptySegmentNumbers(nil) {
		if p.ticks-p.segs[n].emptyTick >= age {
			p.dropSegment(n)
		}
	}
}

// LeakError is what Close returns when buffers of the pool are still in use.
type LeakError struct {
	Pool    string
	Buffers []LiveBuffer
}

// Error counts them and tells of the first.
func (e *LeakError) Error() string {
	bytes := uint64(0)
	for _, b := range e.Buffers {
		bytes += b.Size
	}
	s := fmt.Sprintf("memmgr: pool %q was closed with %d buffers (%s) in use; they stay valid, and their memory goes back as they are released",
		e.Pool, len(e.Buffers), bytesText(bytes))
	if len(e.Buffers) > 0 && e.Buffers[0].Stack != "" {
		return s + "; the first was allocated at\n" + e.Buffers[0].Stack
	}
	return s
}

// Close waits for pending work, gives all idle memory back and ends the pool.
// Buffers in use stay valid; their memory goes back to the upstream as they are
// released, and Close returns a [*LeakError] that lists them. Allocate fails
// afterwards. Close may be called again.
func (p *Pool) Close() error {
	p.origin.list.Sync()
	p.awaitAll()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.flush()
	p.release(0)
	var live []LiveBuffer
	p.eachUsed(func(c *owner.Cell) { live = append(live, describe(c, int(c.Count()))) })
	// Beside the buffers in use there may be some that others release right now:
	// as long as a block is out, its cell comes home to this pool.
	lingers := p.heap.Counts().Segments > 0
	p.leaked = lingers
	if !lingers {
		p.origin.leave()
	}
	p.mu.Unlock()
	keeper.remove(p, lingers)
	origins.known.Delete(Resource(p))
	if len(live) > 0 {
		return &LeakError{Pool: p.options.name, Buffers: live}
	}
	return nil
}
