package flight

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Connections of one client beyond its share are closed immediately, and other clients are served.
// All loopback addresses count as one client.
func TestConnectionsOfOneAddress(t *testing.T) {
	_, at := serve(t, ServerOptions{Memory: newPool(t), MaxConnections: 8}, Location{"grpc+tcp", "127.0.0.1:0"})
	held := make([]net.Conn, 2)
	for i := range held {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(i+1))}}).Dial("tcp", at.Address)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		held[i] = c
	}
	for _, c := range held {
		_, err := c.Read(make([]byte, 1))
		require.NoError(t, err, "gRPC's settings")
	}
	c, err := net.Dial("tcp", at.Address)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server closes it")
	require.NoError(t, held[0].Close())
	client := dial(t, at.String(), ClientOptions{})
	require.Eventually(t, func() bool { _, err := client.List(t.Context(), ""); return err == nil }, 30*time.Second, 10*time.Millisecond)
}

// A server at its connection limit serves the next client as soon as a connection is closed.
func TestServerWithOneConnection(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.MaxConnections = 1 })
	a := numbers(t, b.mine, 1000)
	defer a.Release()
	require.NoError(t, b.client.Put(t.Context(), "x", a))
	ended := make(chan error)
	second := dial(t, b.at.String(), ClientOptions{})
	go func() { ended <- second.Put(t.Context(), "y", a) }()
	require.NoError(t, b.client.Put(t.Context(), "x", a))
	require.Equal(t, []string{"x"}, b.server.Store().Names(""))
	require.NoError(t, b.client.Close())
	require.NoError(t, <-ended)
	require.Equal(t, []string{"x", "y"}, b.server.Store().Names(""))
}
