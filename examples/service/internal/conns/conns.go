// Package conns bounds the connections of a listener: in all, and of one address.
package conns

import (
	"net"
	"sync"
)

// Listen bounds the connections that a listener accepts: most are open at a time, and others
// wait in the system's queue; perAddress are of one address, and others are closed at once. Unix
// sockets have no bound by address. Its Close closes the listener, and leaves the connections.
func Listen(l net.Listener, most, perAddress int) net.Listener {
	return &listener{Listener: l, perAddress: perAddress, places: make(chan struct{}, most), done: make(chan struct{}), open: map[string]int{}}
}

type listener struct {
	net.Listener
	perAddress int
	places     chan struct{} // one for each open connection
	once       sync.Once
	done       chan struct{}

	mu   sync.Mutex
	open map[string]int // connections by address
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
		address := host(c.RemoteAddr())
		if l.enter(address) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
		}
		_ = c.Close()
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// enter counts a connection, and reports whether it may stay.
func (l *listener) enter(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if address != "" && l.open[address] >= l.perAddress {
		return false
	}
	l.open[address]++
	return true
}

func (l *listener) leave(address string) {
	l.mu.Lock()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
	l.mu.Unlock()
	<-l.places
}

// host is an address without its port; "" for Unix sockets.
func host(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP.String()
	}
	return ""
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
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
