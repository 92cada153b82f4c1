package conns

import (
	"net"
	"net/netip"
	"sync"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
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

// group returns the address group of a client. A Unix socket has no group (the zero Prefix) and no
// bound: the permissions of its file decide which users can connect.
func group(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return oip.AddressGroup(t.AddrPort().Addr())
}
