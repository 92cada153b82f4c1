package conns

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeListener accepts connections that report arbitrary addresses.
type fakeListener struct {
	net.Listener
	queue chan net.Conn
}

func (l fakeListener) Accept() (net.Conn, error) { return <-l.queue, nil }

type from struct {
	net.Conn
	addr net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.addr }

// dial queues a connection from addr and returns the client's end.
func (l fakeListener) dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	require.NoError(t, client.SetDeadline(time.Now().Add(time.Minute)))
	var a net.Addr = &net.UnixAddr{Name: addr, Net: "unix"}
	if ip, err := netip.ParseAddr(addr); err == nil {
		a = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 1234))
	}
	l.queue <- from{server, a}
	return client
}

// closed waits until the server has closed a connection.
func closed(t *testing.T, client net.Conn) {
	t.Helper()
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func open(t *testing.T, client net.Conn) {
	t.Helper()
	require.NoError(t, client.SetReadDeadline(time.Unix(1, 0)))
	_, err := client.Read(make([]byte, 1))
	require.NotErrorIs(t, err, io.EOF)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
}

func accept(t *testing.T, l *Evicting) *Conn {
	t.Helper()
	c, err := l.Accept()
	require.NoError(t, err)
	return c.(*Conn)
}

// TestLongestIdleIsClosed checks that a full listener closes the connection that has been idle for
// the longest time.
func TestLongestIdleIsClosed(t *testing.T) {
	inner := fakeListener{queue: make(chan net.Conn, 16)}
	l := Evict(inner, Limits{Most: 3, PerGroup: 3, Reserve: 1})
	var clients []net.Conn
	var conns []*Conn
	for _, addr := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		clients = append(clients, inner.dial(t, addr))
		conns = append(conns, accept(t, l))
	}
	conns[0].Begin()
	conns[1].Begin()
	conns[1].End() // later than conns[2] became idle
	clients = append(clients, inner.dial(t, "192.0.2.4"))
	conns = append(conns, accept(t, l))
	closed(t, clients[2])
	open(t, clients[0])
	open(t, clients[1])
	conns[3].Begin()
	inner.dial(t, "192.0.2.5")
	require.False(t, accept(t, l).Reserved())
	closed(t, clients[1])
	require.NoError(t, conns[2].Close(), "of the server, which notices later")
	groups := map[netip.Prefix]bool{}
	for _, c := range l.conns {
		groups[c.group] = true
	}
	require.Len(t, l.conns, 3)
	require.Len(t, groups, 3)
}

// TestReserve checks that connections beyond the limits use the reserve, and that one group cannot
// use all of it.
func TestReserve(t *testing.T) {
	inner := fakeListener{queue: make(chan net.Conn, 16)}
	l := Evict(inner, Limits{Most: 1, PerGroup: 1, Reserve: 4})
	inner.dial(t, "192.0.2.1")
	served := accept(t, l)
	served.Begin()
	require.False(t, served.Reserved())
	var clients []net.Conn
	for range 2 { // the second takes the place of the first
		clients = append(clients, inner.dial(t, "192.0.2.1"))
		require.True(t, accept(t, l).Reserved())
	}
	closed(t, clients[0])
	var busy []*Conn
	for _, addr := range []string{"192.0.2.2", "192.0.2.3", "192.0.2.4"} {
		clients = append(clients, inner.dial(t, addr))
		c := accept(t, l)
		require.True(t, c.Reserved())
		c.Begin()
		busy = append(busy, c)
	}
	inner.dial(t, "192.0.2.5") // replaces the only idle connection
	c := accept(t, l)
	closed(t, clients[1])
	c.Begin()
	refused := inner.dial(t, "192.0.2.6")
	last := inner.dial(t, "192.0.2.7")
	accepted := make(chan *Conn)
	go func() {
		c, _ := l.Accept()
		c2, _ := c.(*Conn)
		accepted <- c2
	}()
	closed(t, refused) // all are busy
	closed(t, last)
	require.NoError(t, busy[0].Close())
	inner.dial(t, "192.0.2.8")
	require.True(t, (<-accepted).Reserved())
	require.NoError(t, served.Close())
	inner.dial(t, "192.0.2.9")
	require.False(t, accept(t, l).Reserved(), "the place is free")
}
