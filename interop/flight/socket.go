package flight

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
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

// listener accepts so many connections at a time; one more waits until one is closed.
// netutil's does so too, but its connections hide what gRPC needs to read without
// holding a buffer while a connection is idle.
type listener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limited(l net.Listener, most int) *listener {
	return &listener{Listener: l, slots: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	widen(c)
	return accepted(c, sync.OnceFunc(func() { <-l.slots })), nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection that gives its slot back.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
