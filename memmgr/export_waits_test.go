package memmgr

// KeepsRoom tells whether the pool keeps room for one who waits.
func KeepsRoom(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiters.hold.of != nil
}

// TenantKeepsRoom tells whether a tenant keeps room for one who waits in the pool's line,
// for whom the pool does not.
func TenantKeepsRoom(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.waiters.lines {
		if line.keeps != nil && line.keeps != p.waiters.hold.of {
			return true
		}
	}
	return false
}

// KeepsRoomForAnother tells whether the pool keeps room for one who waits in another.
func KeepsRoomForAnother(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiters.hold.of != nil && p.waiters.hold.of.claims != nil
}
