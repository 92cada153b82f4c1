package memmgr

import "github.com/usmbridge/usmbridge/internal/diag"

// Stall makes everything that waits for the device count as waiting since ever, for
// tests that cannot wait so long.
func Stall(p *Pool) {
	p.mu.Lock()
	p.pending.late = p.pending.stamp
	p.mu.Unlock()
}

// Stalled returns how many blocks have been put aside because their work does not end.
func Stalled(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending.stalled.n
}

// BackgroundFailures returns how many failures of work that nobody waits for were told.
func BackgroundFailures() uint64 { return diag.Failures.Load() }

// ForgetStart makes memory of no pool that waits for a device count as waiting since
// ever.
func ForgetStart() {
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	for _, d := range keeper.waiting {
		d.since = d.since.Add(-stallTime)
	}
}

// Origins returns how many resources the package knows.
func Origins() int {
	origins.mu.Lock()
	defer origins.mu.Unlock()
	return origins.inUse
}

// OriginsOf returns how often the package knows a resource: as one that new memory is
// made of, and as those that memory of before its Close names.
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

// Shards returns how many processors have a front of their own in the pool.
func Shards(p *Pool) int { return p.countShards() }
