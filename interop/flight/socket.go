package flight

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// How much goes through a system call, in bytes. gRPC's frames have 16 KiB, and what a
// transfer over a socket of this machine costs beside its copies is each call, and each
// time that one side wakes the other: with gRPC's own 32 KiB a get took 2.2 to 2.5 times
// the processor time of a plain copy, in the same runs with these 1.5 to 1.7 times. More
// gains nothing that could be measured.
const (
	// ioBuffer is what gRPC reads and writes at a time. It holds such buffers only while
	// bytes are under way.
	ioBuffer = 256 << 10
	// socketBuffer is what the kernel is asked to hold for a unix socket; it gives what
	// net.core.wmem_max lets it. TCP sizes its own.
	socketBuffer = 512 << 10
)

// widen asks for room in a unix socket; where the kernel has none to give, it is slower.
func widen(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(socketBuffer)
		_ = u.SetReadBuffer(socketBuffer)
	}
}

// wideCredentials are those of a client, whose sockets it widens.
type wideCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (w wideCredentials) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	widen(c)
	return w.TransportCredentials.ClientHandshake(ctx, authority, c)
}

// Clone implements credentials.TransportCredentials.
func (w wideCredentials) Clone() credentials.TransportCredentials {
	return wideCredentials{w.TransportCredentials.Clone()}
}

// listener bounds the open connections that Accept returned. When all places are taken, the next
// connection waits until one is closed. When an address group has its share, further connections of
// the group are closed at once.
//
// With a time for the first call, connections are provisional until a call has passed the tokens
// (confirm). When there is no place for a new connection, the oldest provisional one is closed in
// its favor, so that clients without a token cannot keep out a client that has one.
//
// golang.org/x/net/netutil has a bounded listener too, but its connections hide the method by which
// gRPC reads without holding a buffer while a connection is idle.
type listener struct {
	net.Listener
	most, perGroup int
	firstCall      time.Duration // after which a provisional connection is closed; 0: none is provisional
	evicted        atomic.Bool   // since the last call of Accept

	mu     sync.Mutex
	freed  sync.Cond // a place, or the listener was closed
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

func limited(l net.Listener, most, perGroup int, firstCall time.Duration) *listener {
	limited := &listener{Listener: l, most: most, perGroup: perGroup, firstCall: firstCall, groups: map[netip.Prefix]*connSet{}}
	limited.freed.L = &limited.mu
	return limited
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
		c := &counted{Conn: conn, listener: l, group: group(conn.RemoteAddr())}
		if l.admit(c) {
			widen(conn)
			return accepted(c), nil
		}
		_ = conn.Close()
	}
}

// admit gives a connection a place, for which it evicts at most one other. It returns false if the
// group has its share, or the listener was closed.
func (l *listener) admit(c *counted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.groups[c.group]
	if set == nil {
		set = &connSet{}
		l.groups[c.group] = set
	}
	set.open++ // before evict, which would delete an empty group
	if c.group.IsValid() && set.open > l.perGroup && !l.evict(set) {
		set.open-- // not to 0
		return false
	}
	if l.all.open >= l.most {
		l.evict(&l.all)
	}
	for l.all.open >= l.most && !l.closed {
		l.freed.Wait()
	}
	l.all.open++
	c.open = true
	if l.closed {
		c.leave()
		return false
	}
	if l.firstCall > 0 {
		c.timer = time.AfterFunc(l.firstCall, c.expire)
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
	oldest.Value.(*counted).evict() //nolint:forcetypeassert // the list has no others
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

// counted is a connection that has a place of a listener.
type counted struct {
	net.Conn
	listener  *listener
	group     netip.Prefix
	confirmed sync.Once

	// Guarded by listener.mu.
	open           bool
	timer          *time.Timer   // closes a provisional connection; nil for others
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

// evict frees the place of a connection and closes it. gRPC notices and closes it again. listener.mu
// is held.
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

// leave frees the place of a connection, unless that was done before. listener.mu is held.
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
	if c.listener.firstCall == 0 {
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

// confirm marks the connection of a call as no longer provisional.
func confirm(ctx context.Context) {
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
