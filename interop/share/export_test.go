package share

// Break ends a connection as the end of this process would.
func Break(p *Peer) { p.fail(opError("connection", ErrDied, "by a test")) }

// Waiting reports whether somebody waits for an answer or a gift.
func Waiting(p *Peer) bool { return p.hasWaiters() }

// ProtocolVersion is what a greeting tells.
const ProtocolVersion = protocolVersion

// BoardSlots is how many handles are offered to a process at a time.
const BoardSlots = boardSlots

// Calls tells how many questions this end asked.
func Calls(p *Peer) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastCall
}

// HasBoard reports whether the maker's board is seen here.
func HasBoard(p *Peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claims != nil
}

// Scribble writes a word all over the maker's board, as a process that keeps to no rules can.
func Scribble(p *Peer, word uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.claims.words {
		p.claims.words[i].Store(word)
	}
}

// Reported returns the number of releases that a connection has reported by messages.
func Reported(p *Peer) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reported
}
