package share

// Break ends a connection as the end of this process would.
func Break(p *Peer) { p.fail(opError("connection", ErrDied, "by a test")) }

// Waiting reports whether somebody waits for an answer or a gift.
func Waiting(p *Peer) bool { return p.somebodyWaits() }
