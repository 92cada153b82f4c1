package flight

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A server at its connection limit serves the next client as soon as a connection is closed.
func TestServerWithOneConnection(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.MaxConnections = 1 })
	a := numbers(t, b.mine, 1000)
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
