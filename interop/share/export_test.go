package share

// Break ends a connection as if this process had died.
func Break(p *Peer) { p.fail(opError("connection", ErrDied, "by a test")) }

// ProtocolVersion is the version in a greeting.
const ProtocolVersion = protocolVersion

// BoardSlots is the number of handles that can be offered to a process at a time.
const BoardSlots = boardSlots

// Calls returns the number of requests that this end has sent.
func Calls(p *Peer) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastCall
}

// HasBoard reports whether this end has received a board of the maker.
func HasBoard(p *Peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claims != nil
}

// Scribble fills the maker's board with a word, as a hostile peer could.
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
