package memmgr

import "github.com/usmbridge/usmbridge/internal/diag"

// Stall makes all pending blocks count as waiting for longer than stallTime.
func Stall(p *Pool) {
	p.mu.Lock()
	p.pending.late = p.pending.stamp
	p.mu.Unlock()
}

// Stalled returns the number of stalled blocks.
func Stalled(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending.stalled.n
}

// Unstalled returns the number of blocks that a request without the lock takes as pending.
func Unstalled(p *Pool) int { return int(p.pending.unstalled.Load()) }

// BackgroundFailures returns the number of reported failures of work in the background.
func BackgroundFailures() uint64 { return diag.Failures.Load() }

// ForgetStart makes unpooled memory that waits for a device count as waiting for longer than
// stallTime.
func ForgetStart() {
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	keeper.late = keeper.stamp
}

// Origins returns the number of registered resources.
func Origins() int {
	origins.mu.Lock()
	defer origins.mu.Unlock()
	return origins.inUse
}

// OriginsOf returns the number of origins of a resource: the one for new memory, and those of memory
// that was allocated before the resource was closed.
func OriginsOf(r Resource) (n int) {
	origins.mu.Lock()
	last := origins.next[1]
	origins.mu.Unlock()
	latest := findOrigin(resourceKey(r))
	if latest != nil {
		n = 1
	}
	for i := range last {
		chunk := origins.chunks[i/originChunk].Load()
		if chunk == nil {
			continue
		}
		if o := chunk[i%originChunk].Load(); o != nil && o != latest && o.current() == r {
			n++
		}
	}
	return n
}

// Shards returns the number of shards of the pool.
func Shards(p *Pool) int { return p.front.countShards() }
