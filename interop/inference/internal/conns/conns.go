// Package conns bounds the connections of a listener: in total, and per group of addresses.
package conns

import (
	"net"
	"sync"
)

// Listen bounds the connections that a listener accepts: at most most are open at a time, and
// further ones wait in the system's queue. At most perGroup belong to one address group (group);
// further ones are closed at once. Close closes the listener, but not its connections.
func Listen(l net.Listener, most, perGroup int) net.Listener {
	return &listener{Listener: l, limiter: newLimiter(perGroup), places: make(chan struct{}, most), done: make(chan struct{})}
}

type listener struct {
	net.Listener
	limiter *limiter
	places  chan struct{} // one for each open connection
	once    sync.Once
	done    chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		g := group(c.RemoteAddr())
		if l.limiter.enter(g) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.limiter.leave(g); <-l.places })}, nil
		}
		_ = c.Close()
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// CloseWrite lets the server end its half first, so that a client sees the last response.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
