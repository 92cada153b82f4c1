package rest

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server returns a server of HTTP/1 for the handler, whose times and sizes fit it: slow headers
// and idle connections are cut off, bodies are the handler's affair. The caller serves and ends
// it; Listen bounds its connections.
func (h *Handler) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: h.o.Grace,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),
		// An asterisk is no path of the protocol's.
		DisableGeneralOptionsHandler: true,
	}
}

// Connections bound the connections of a listener. What is 0 is a default.
type Connections struct {
	Most       int // that are open; 1024. Others wait in the system's queue.
	PerAddress int // of one address, half of Most; others are closed at once. Unix sockets have none.
}

// Listen bounds the connections that a listener accepts. Its Close closes the listener, and
// leaves the connections.
func Listen(l net.Listener, c Connections) net.Listener {
	if c.Most <= 0 {
		c.Most = 1024
	}
	if c.PerAddress <= 0 {
		c.PerAddress = max(c.Most/2, 1)
	}
	return &listener{Listener: l, bounds: c, places: make(chan struct{}, c.Most), done: make(chan struct{}), open: map[string]int{}}
}

type listener struct {
	net.Listener
	bounds Connections
	places chan struct{} // one for each open connection
	once   sync.Once
	done   chan struct{}

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
		address := addressOf(c.RemoteAddr().String())
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
	if address != local && l.open[address] >= l.bounds.PerAddress {
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
