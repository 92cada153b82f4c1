package memmgr

// KeepsRoom reports whether the pool reserves memory for a waiter.
func KeepsRoom(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waitlist.reserved.of != nil
}

// TenantKeepsRoom reports whether a tenant reserves room below its limit for a waiter in the pool's
// line for which the pool reserves nothing.
func TenantKeepsRoom(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.waitlist.lines {
		if line.reserved.of != nil && line.reserved.of != p.waitlist.reserved.of {
			return true
		}
	}
	return false
}

// KeepsRoomForAnother reports whether the pool reserves memory for a waiter of another pool.
func KeepsRoomForAnother(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waitlist.reserved.remote()
}
