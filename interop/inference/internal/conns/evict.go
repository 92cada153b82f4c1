// Package conns bounds the connections of a listener, in total and per client.
package conns

import (
	"container/list"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/usmbridge/usmbridge/interop/flight/admission"
)

// Limits are the bounds of an Evicting listener.
type Limits struct {
	Most     int // open connections
	PerGroup int // connections of one client (admission.Client)
	Reserve  int // connections beyond these bounds, which are for health probes
}

// Evicting is a listener whose Accept never waits for a place. When all places are taken, the
// connection that has been idle for the longest time is closed in favor of the new one. When no
// connection is idle, or the new one exceeds the bound of its group, the new connection gets a place
// of the reserve. There, too, the oldest idle connection makes room. A group has at most a quarter
// of the reserve.
//
// A connection is idle until Begin, and again after End.
type Evicting struct {
	net.Listener
	limits  Limits
	clients *Counter[netip.Prefix]

	mu      sync.Mutex
	open    int       // connections outside of the reserve
	idle    list.List // of *Conn; those of them that are idle, longest idle first
	reserve []*Conn   // connections in the reserve, oldest first
}

// Evict bounds the connections of a listener. Close closes the listener, but not its connections.
func Evict(l net.Listener, limits Limits) *Evicting {
	return &Evicting{Listener: l, limits: limits, clients: NewCounter[netip.Prefix](limits.PerGroup)}
}

// Accept implements net.Listener. Connections are *Conn.
func (l *Evicting) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: accepted, listener: l}
		if l.admit(c) {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// admit gives a connection a place.
func (l *Evicting) admit(c *Conn) bool {
	g := admission.Client(c.RemoteAddr()) // not valid for Unix sockets, which have no bound of their own
	leave := func() {
		if g.IsValid() {
			l.clients.Leave(g)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !g.IsValid() || l.clients.Enter(g) {
		if l.open >= l.limits.Most && l.idle.Len() > 0 {
			l.evict(l.idle.Front().Value.(*Conn)) //nolint:forcetypeassert // the list has no others
		}
		if l.open < l.limits.Most {
			c.leave = func() {
				leave()
				l.open--
				l.idle.Remove(c.element)
			}
			l.open++
			c.element = l.idle.PushBack(c)
			return true
		}
		leave()
	}
	ofGroup := func(other *Conn) bool { return g.IsValid() && admission.Client(other.RemoteAddr()) == g }
	idle := func(other *Conn) bool { return !other.busy }
	share := 0
	for _, other := range l.reserve {
		if ofGroup(other) {
			share++
		}
	}
	var victim int
	switch {
	case share >= max(l.limits.Reserve/4, 1):
		victim = slices.IndexFunc(l.reserve, func(other *Conn) bool { return ofGroup(other) && idle(other) })
	case len(l.reserve) >= l.limits.Reserve:
		victim = slices.IndexFunc(l.reserve, idle)
	default:
		return l.toReserve(c)
	}
	if victim < 0 {
		return false
	}
	l.evict(l.reserve[victim])
	return l.toReserve(c)
}

func (l *Evicting) toReserve(c *Conn) bool {
	c.reserved = true
	c.leave = func() { l.reserve = slices.DeleteFunc(l.reserve, func(other *Conn) bool { return other == c }) }
	l.reserve = append(l.reserve, c)
	return true
}

// evict closes a connection and frees its place. l.mu is held.
func (l *Evicting) evict(c *Conn) {
	c.detach()
	_ = c.Conn.Close()
}

// Conn is a connection of an Evicting listener.
type Conn struct {
	net.Conn
	listener *Evicting
	reserved bool

	// Guarded by listener.mu.
	leave   func()        // frees the place; nil when that was done
	element *list.Element // in listener.idle, while the connection is idle and not in the reserve
	busy    bool
}

// Reserved reports whether the connection has a place of the reserve.
func (c *Conn) Reserved() bool { return c.reserved }

// Begin marks the connection as busy: it is not evicted.
func (c *Conn) Begin() { c.set(true) }

// End marks the connection as idle.
func (c *Conn) End() { c.set(false) }

func (c *Conn) set(busy bool) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.busy == busy || c.leave == nil {
		return
	}
	c.busy = busy
	switch {
	case c.reserved:
	case busy:
		l.idle.Remove(c.element)
	default:
		c.element = l.idle.PushBack(c)
	}
}

// detach frees the place of a connection. The listener's mu is held.
func (c *Conn) detach() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.detach()
	return err
}

// CloseWrite lets the server end its half first, so that a client sees the last response.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
