// Package admission bounds the open connections of a server. Package flight uses it for its own server:
//
//	err := s.Serve(admission.Limit(l, 1024))
package admission

import (
	"net"
	"sync"
	"syscall"
)

type listener struct {
	net.Listener
	places chan struct{} // one for each open connection
	closed chan struct{}
	once   sync.Once
}

// Limit returns a listener that accepts no further connection while as many as most are open: the next
// clients wait in the kernel's queue. l accepts TCP or Unix sockets. Close closes l; open connections stay
// open. It is safe for concurrent use.
//
// The connections of netutil.LimitListener of golang.org/x/net hide CloseWrite, which net/http uses, and
// the readiness by which gRPC holds no read buffer for an idle connection.
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

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// stream is what TCP and Unix sockets have.
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
