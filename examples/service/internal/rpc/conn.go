package rpc

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// link is what a call can know of its connection: enough to end it.
type link struct {
	credentials.CommonAuthInfo
	conn net.Conn
}

// AuthType implements credentials.AuthInfo.
func (*link) AuthType() string { return "insecure" }

// linked are credentials that encrypt nothing and let calls see their connection.
type linked struct {
	credentials.TransportCredentials
}

func linkedCredentials() credentials.TransportCredentials {
	return linked{insecure.NewCredentials()}
}

// ServerHandshake implements credentials.TransportCredentials.
func (linked) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, &link{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, conn: c}, nil
}

// Clone implements credentials.TransportCredentials.
func (l linked) Clone() credentials.TransportCredentials { return l }

// cut ends the connection of a call, with all other calls of it.
func cut(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if l, ok := p.AuthInfo.(*link); ok {
			l.conn.Close()
		}
	}
}

// address is the part of a peer's address that stays from one connection to the next.
func address(a net.Addr) string {
	if a == nil {
		return ""
	}
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP.String()
	}
	return a.Network()
}

// listener accepts so many connections at a time, and so many of one address: one too many
// of an address is closed, one too many in all waits in the kernel's queue.
type listener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	per    *share
}

func limited(l net.Listener, most, each int) *listener {
	return &listener{Listener: l, slots: make(chan struct{}, most), closed: make(chan struct{}), per: newShare(each)}
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
		from := c.RemoteAddr()
		if from.Network() == "unix" {
			return &counted{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
		}
		of := address(from)
		if !l.per.enter(of) {
			c.Close()
			continue
		}
		return &counted{Conn: c, release: sync.OnceFunc(func() { l.per.leave(of); <-l.slots })}, nil
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
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// share counts what each of many holds, and lets nobody have more than so much. It knows
// those alone who hold something.
type share struct {
	each int
	mu   sync.Mutex
	held map[string]int
}

func newShare(each int) *share { return &share{each: each, held: map[string]int{}} }

func (s *share) enter(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who] >= s.each {
		return false
	}
	s.held[who]++
	return true
}

func (s *share) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who]--; s.held[who] == 0 {
		delete(s.held, who)
	}
}
