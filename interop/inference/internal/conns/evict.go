// Package conns bounds the connections of a listener, in total and per client.
package conns

import (
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
// of the reserve. There, too, the connection that has been idle for the longest time makes room. A
// group has at most a quarter of the reserve.
//
// A connection is idle until Begin, and again after End.
type Evicting struct {
	net.Listener
	limits Limits

	mu    sync.Mutex
	conns []*Conn // longest idle first; the order of busy connections has no meaning
}

// Evict bounds the connections of a listener. Close closes the listener, but not its connections.
func Evict(l net.Listener, limits Limits) *Evicting { return &Evicting{Listener: l, limits: limits} }

// Accept implements net.Listener. Connections are *Conn.
func (l *Evicting) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: accepted, listener: l, group: admission.Client(accepted.RemoteAddr())}
		if l.admit(c) {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// admit gives a connection a place, or reports that there is none.
func (l *Evicting) admit(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, ofGroup := l.count(c, false)
	if ofGroup.n < l.limits.PerGroup && (all.n < l.limits.Most || all.evict()) {
		l.conns = append(l.conns, c)
		return true
	}
	c.reserved = true
	all, ofGroup = l.count(c, true)
	if full := ofGroup.n >= max(l.limits.Reserve/4, 1); full && !ofGroup.evict() ||
		!full && all.n >= l.limits.Reserve && !all.evict() {
		return false
	}
	l.conns = append(l.conns, c)
	return true
}

// tally is a number of connections, and the one of them that has been idle for the longest time.
type tally struct {
	n    int
	idle *Conn // nil if all are busy
}

func (t *tally) add(c *Conn) {
	t.n++
	if t.idle == nil && !c.busy {
		t.idle = c
	}
}

// evict closes the idle connection, and reports whether there is one. The listener's mu is held.
func (t *tally) evict() bool {
	if t.idle == nil {
		return false
	}
	t.idle.leave()
	_ = t.idle.Conn.Close()
	return true
}

// count counts the connections in the reserve, or those outside of it, and those of them with the group
// of c. Unix sockets have no group and no bound of their own. l.mu is held.
func (l *Evicting) count(c *Conn, reserved bool) (all, ofGroup tally) {
	for _, other := range l.conns {
		if other.reserved != reserved {
			continue
		}
		all.add(other)
		if c.group.IsValid() && other.group == c.group {
			ofGroup.add(other)
		}
	}
	return all, ofGroup
}

// Conn is a connection of an Evicting listener.
type Conn struct {
	net.Conn
	listener *Evicting
	group    netip.Prefix // not valid for Unix sockets
	reserved bool
	busy     bool // guarded by listener.mu
}

// Reserved reports whether the connection has a place of the reserve.
func (c *Conn) Reserved() bool { return c.reserved }

// Begin marks the connection as busy: it is not evicted.
func (c *Conn) Begin() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.busy = true
}

// End marks the connection as idle.
func (c *Conn) End() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.busy && c.leave() {
		c.busy = false
		l.conns = append(l.conns, c)
	}
}

// leave frees the place of a connection, and reports whether it had one. The listener's mu is held.
func (c *Conn) leave() bool {
	i := slices.Index(c.listener.conns, c)
	if i >= 0 {
		c.listener.conns = slices.Delete(c.listener.conns, i, i+1)
	}
	return i >= 0
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.leave()
	return err
}

// CloseWrite lets the server end its half first, so that a client sees the last response.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
