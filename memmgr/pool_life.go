package memmgr

import (
	"fmt"

	"github.com/usmbridge/usmbridge/internal/owner"
)

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

// last ends the part of a closed pool in the tables, with its last segment. p.mu is
// held.
func (p *Pool) last() {
	if p.leaked {
		p.leaked = false
		p.origin.removePool()
	}
}
