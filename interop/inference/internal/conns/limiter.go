package conns

import (
	"net"
	"net/netip"
	"sync"
)

// limiter bounds how many connections each address group has.
type limiter struct {
	most int
	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newLimiter(most int) *limiter { return &limiter{most: most, open: map[netip.Prefix]int{}} }

// enter counts a connection, and reports whether its group may have it. The caller calls leave when
// the connection is closed.
func (l *limiter) enter(g netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.IsValid() && l.open[g] >= l.most {
		return false
	}
	l.open[g]++
	return true
}

func (l *limiter) leave(g netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[g]--; l.open[g] == 0 {
		delete(l.open, g)
	}
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// group returns the addresses that one client can be expected to have: an IPv4 address, the /64 of
// an IPv6 address, or all loopback addresses, because each local process can use any of them. An
// IPv4-mapped IPv6 address is an IPv4 address. A Unix socket has no group (the zero Prefix) and no
// bound: the permissions of its file decide who may connect.
func group(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := t.AddrPort().Addr().Unmap()
	bits := 32
	switch {
	case addr.IsLoopback():
		return loopback
	case addr.Is6():
		bits = 64
	}
	g, _ := addr.WithZone("").Prefix(bits)
	return g
}
