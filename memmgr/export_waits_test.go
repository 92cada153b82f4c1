package memmgr

// KeepsRoom tells whether the pool keeps room for one who waits.
func KeepsRoom(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiters.hold.of != nil
}
