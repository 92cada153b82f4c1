package memmgr

import (
	"fmt"
	"math"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// tick completes what waits for the device, and lets memory go that has been
// idle for the time of [WithDecay]. It tells whether the pool was closed and the
// last of its memory is back.
func (p *Pool) tick() (ended bool) {
	p.origin.list.Drain()
	p.tickPending()
	p.expireClaim()
	age := p.decayTicks()
	if p.options.decay > 0 {
		p.purging.tick(age / p.heapTick())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return !p.leaked
	}
	if p.heap.count.reserved == 0 {
		return false
	}
	p.setBound()
	if p.options.decay <= 0 {
		return false
	}
	p.decayCaches(age)
	for p.heap.dissolveCold(coldPortion) {
		p.breathe(1)
	}
	for !p.closed && p.heap.decaySegments(age) {
		p.breathe(1)
	}
	p.roomMade()
	return false
}

// decayTicks is the time of [WithDecay], or 17 years: of more the count would begin anew.
func (p *Pool) decayTicks() uint32 {
	return uint32(min(max(1, p.options.decay/tickTime), math.MaxInt32))
}

// heapTick is how many ticks the heap counts as one: of 1<<16 it loses count.
func (p *Pool) heapTick() uint32 { return p.decayTicks()>>15 + 1 }

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
	if len(e.Buffers) > 0 && len(e.Buffers[0].Stack) > 0 {
		return s + "; the first was allocated at\n" + e.Buffers[0].Stack.String()
	}
	return s
}

// Close waits for pending work, gives all idle memory back and ends the pool.
// Buffers in use stay valid; their memory goes back to the upstream as they are
// released, and Close returns a [*LeakError] that lists them. Allocate fails
// afterwards. Close may be called again.
func (p *Pool) Close() error {
	emptyFronts()
	p.origin.list.Sync()
	p.awaitAll()
	p.purging.mu.Lock() // so that every free block is there
	defer p.purging.mu.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed, p.front.closed, p.heap.closed, p.heap.depot.off = true, true, true, true
	p.endWaits()
	p.flush()
	p.heap.release(0)
	var live []LiveBuffer
	p.eachUsed(func(c *owner.Cell) { live = append(live, describe(c, int(c.Count()))) })
	// Beside the buffers in use there may be some that others release right now:
	// as long as a block is out, its cell comes home to this pool.
	lingers := p.heap.Counts().Segments > 0
	p.leaked = lingers
	if !lingers {
		p.origin.removePool()
	}
	p.mu.awaitReturned()
	p.mu.Unlock()
	keeper.remove(p, lingers)
	if len(live) > 0 {
		return &LeakError{Pool: p.options.name, Buffers: live}
	}
	return nil
}
