package flight

import (
	"context"
	"net"
	"sync"
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

// listener accepts at most a number of connections at a time; a further one waits until one is
// closed. An address group that has its share gets no more: its connections are closed at once.
// golang.org/x/net/netutil has such a listener too, but its connections hide the method by which
// gRPC reads without holding a buffer while a connection is idle.
type listener struct {
	net.Listener
	limiter   *limiter
	firstCall time.Duration // provisional; 0 is no time limit
	slots     chan struct{}
	closed    chan struct{}
	once      sync.Once
}

func limited(l net.Listener, most, perGroup int, firstCall time.Duration) *listener {
	return &listener{Listener: l, limiter: newLimiter(perGroup), firstCall: firstCall, slots: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		g := group(c.RemoteAddr())
		if !l.limiter.enter(g) {
			_ = c.Close()
			continue
		}
		widen(c)
		leave := func() { l.limiter.leave(g); <-l.slots }
		addr := c.RemoteAddr()
		if l.firstCall > 0 {
			timer := time.AfterFunc(l.firstCall, func() { _ = c.Close() })
			free := leave
			leave = func() { timer.Stop(); free() }
			addr = provisional{addr, timer}
		}
		return accepted(counted{Conn: c, addr: addr, release: sync.OnceFunc(leave)}), nil
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection that gives its slot back.
type counted struct {
	net.Conn
	addr    net.Addr
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (c *counted) RemoteAddr() net.Addr { return c.addr }

// provisional is the peer address of a connection that is closed after some time, unless a call
// passes the tokens before. A call finds it in its peer.Peer, with TLS and without.
type provisional struct {
	net.Addr
	timer *time.Timer
}

// confirm keeps the connection of a call open.
func confirm(ctx context.Context) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(provisional); ok {
			addr.timer.Stop()
		}
	}
}
