package admission

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	grpcpeer "google.golang.org/grpc/peer"
)

// Limits bound the connections of a listener.
type Limits struct {
	// Connections is the maximum number of open connections. Further connections wait until one is closed.
	Connections int
	// PerClient is the maximum number of connections of one client ([Client]). Further ones are
	// closed immediately. Unix sockets have no such bound.
	PerClient int
	// FirstCall, if not 0, makes connections provisional until [Confirm], and closes those that are
	// still provisional after this time. If a limit is reached, the oldest provisional connection is
	// closed for a new one, so that clients without authentication cannot block authenticated clients.
	FirstCall time.Duration
}

// listener is the result of Listen.
//
// golang.org/x/net/netutil has a bounded listener too, but its connections hide the method by which
// gRPC reads without holding a buffer while a connection is idle.
type listener struct {
	net.Listener
	limits  Limits
	evicted atomic.Bool // since the last call of Accept

	mu     sync.Mutex
	freed  sync.Cond // signaled when a connection or the listener is closed
	closed bool
	all    connSet
	groups map[netip.Prefix]*connSet
}

// connSet is the open connections of a listener, or those of one address group.
type connSet struct {
	open        int
	provisional list.List // of *counted, oldest first
}

// evictPause is the least time between two evictions. Clients that connect again as soon as they
// are evicted would otherwise evict a new connection before it could make its first call.
const evictPause = time.Millisecond

// Listen bounds the connections that l accepts. Close closes l, but not its connections.
func Listen(l net.Listener, limits Limits) net.Listener {
	n := &listener{Listener: l, limits: limits, groups: map[netip.Prefix]*connSet{}}
	n.freed.L = &n.mu
	return n
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if l.evicted.Swap(false) {
		time.Sleep(evictPause)
	}
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &counted{Conn: conn, listener: l, group: Client(conn.RemoteAddr())}
		if l.admit(c) {
			return accepted(c), nil
		}
		_ = conn.Close()
	}
}

// admit counts a new connection and evicts at most one other. It returns false if the client has
// reached PerClient or the listener is closed.
func (l *listener) admit(c *counted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.groups[c.group]
	if set == nil {
		set = &connSet{}
		l.groups[c.group] = set
	}
	set.open++ // before evict, which would delete an empty group
	if c.group.IsValid() && set.open > l.limits.PerClient && !l.evict(set) {
		set.open-- // not to 0
		return false
	}
	if l.all.open >= l.limits.Connections {
		l.evict(&l.all)
	}
	for l.all.open >= l.limits.Connections && !l.closed {
		l.freed.Wait()
	}
	l.all.open++
	c.open = true
	if l.closed {
		c.leave()
		return false
	}
	if l.limits.FirstCall > 0 {
		c.timer = time.AfterFunc(l.limits.FirstCall, c.expire)
		c.inAll, c.inGroup = l.all.provisional.PushBack(c), set.provisional.PushBack(c)
	}
	return true
}

// evict closes the oldest provisional connection of a set, and reports whether there was one. l.mu
// is held.
func (l *listener) evict(set *connSet) bool {
	oldest := set.provisional.Front()
	if oldest == nil {
		return false
	}
	oldest.Value.(*counted).evict() //nolint:forcetypeassert // the list has only this type
	l.evicted.Store(true)
	return true
}

// Close implements net.Listener.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.freed.Broadcast()
	return err
}

// counted is a connection that counts against the limits of a listener.
type counted struct {
	net.Conn
	listener  *listener
	group     netip.Prefix
	confirmed sync.Once

	// Guarded by listener.mu.
	open           bool
	timer          *time.Timer   // closes a provisional connection; nil if confirmed
	inAll, inGroup *list.Element // of the lists of provisional connections
}

// Close implements net.Conn.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.leave()
	return err
}

// evict stops counting a connection and closes it. gRPC detects this and calls Close. The caller
// holds listener.mu.
func (c *counted) evict() {
	c.leave()
	_ = c.Conn.Close()
}

// expire evicts a connection that is still provisional.
func (c *counted) expire() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.timer != nil {
		c.evict()
	}
}

// leave stops counting a connection, unless this was done before. The caller holds listener.mu.
func (c *counted) leave() {
	if !c.open {
		return
	}
	c.open = false
	c.unlist()
	l := c.listener
	l.all.open--
	if set := l.groups[c.group]; set.open > 1 {
		set.open--
	} else {
		delete(l.groups, c.group)
	}
	l.freed.Signal()
}

// unlist makes a connection no longer provisional. listener.mu is held.
func (c *counted) unlist() {
	if c.timer == nil {
		return
	}
	c.timer.Stop()
	c.timer = nil
	c.listener.all.provisional.Remove(c.inAll)
	c.listener.groups[c.group].provisional.Remove(c.inGroup)
}

// RemoteAddr implements net.Conn.
func (c *counted) RemoteAddr() net.Addr {
	if c.listener.limits.FirstCall == 0 {
		return c.Conn.RemoteAddr()
	}
	return peerAddr{c.Conn.RemoteAddr(), c}
}

// peerAddr is the peer address of a connection that is provisional at first. A call finds it in its
// peer.Peer, with TLS and without.
type peerAddr struct {
	net.Addr
	conn *counted
}

// Confirm marks the connection of a call as no longer provisional. ctx is the context of the call. Call
// it when the call has passed authentication.
func Confirm(ctx context.Context) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(peerAddr); ok {
			addr.conn.confirmed.Do(addr.conn.confirm)
		}
	}
}

func (c *counted) confirm() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.unlist()
}
