// Package conns bounds the open connections of a listener.
package conns

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/mem"
)

type listener struct {
	net.Listener
	places chan struct{} // one for each open connection
	closed chan struct{}
	once   sync.Once
}

// Limit returns a listener that accepts no further connection while as many as most are open: the next
// clients wait in the kernel's queue. (The connections of netutil.LimitListener hide CloseWrite, which
// net/http uses, and the readiness that saves gRPC a read buffer for each idle connection.)
func Limit(l net.Listener, most int) net.Listener {
	return &listener{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	leave := sync.OnceFunc(func() { <-l.places })
	c, err := l.Listener.Accept()
	if err != nil {
		leave()
		return nil, err
	}
	return &conn{c.(stream), leave}, nil //nolint:forcetypeassert // of TCP and Unix sockets
}

// Close implements net.Listener. Open connections stay open.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// stream is what TCP and Unix sockets have. net/http ends its half with CloseWrite, so that a client sees
// the last response.
type stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

type conn struct {
	stream
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.stream.Close()
}

// ReadOnReady gets a buffer from the pool when there are bytes to read. gRPC's transport calls it.
func (c *conn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		buf = pool.Get(size)
		n, failed = syscall.Read(int(fd), *buf)
		if failed != nil || n == 0 {
			pool.Put(buf)
			buf, n = nil, 0
		}
		return !errors.Is(failed, syscall.EAGAIN)
	})
	if err = errors.Join(err, failed); err == nil && n == 0 {
		err = io.EOF
	}
	return buf, n, err
}
