//go:build cgo && linux

package pymodule

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/syclobj"
)

// sharingServer returns a server to attach to. It checks that no connection is left after the
// test.
func sharingServer(t *testing.T) *share.Server {
	t.Helper()
	if state.rt == nil {
		rt := testenv.Must(syclobj.Open(syclobj.HostOnly()))(t)
		state.rt = rt
		t.Cleanup(func() {
			state.rt = nil
			require.NoError(t, rt.Close())
		})
	}
	// Connections that end count until the server has noticed. A quarter of the limit is more than all
	// connections of a test.
	s := testenv.Must(share.Listen(context.Background(), "", share.Options{MaxPeers: 4096}))(t)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		trimShared()
		require.Empty(t, sharing.connections)
	})
	return s
}

// TestTrimLeavesUsedConnections checks that concurrent trimming does not break queries.
func TestTrimLeavesUsedConnections(t *testing.T) {
	s := sharingServer(t)
	var querying, trimming sync.WaitGroup
	var stop atomic.Bool
	for range 2 {
		trimming.Go(func() {
			for !stop.Load() {
				trimShared()
			}
		})
		querying.Go(func() {
			for range 100 {
				_, err := published(context.Background(), s.Address())
				if err != nil {
					t.Errorf("names: %v", err)
				}
			}
		})
		querying.Go(func() {
			for range 100 {
				a, _, err := connect(context.Background(), s.Address(), nil)
				if err != nil {
					t.Errorf("connection: %v", err)
					continue
				}
				release(a)
				_, err = attach(context.Background(), s.Address(), "missing")
				if kindOf(err) != kindKey {
					t.Errorf("attach: %v", err)
				}
			}
		})
	}
	querying.Wait()
	stop.Store(true)
	trimming.Wait()
}

// TestConnectionIsReplacedOnce checks that all callers of connect with the same former
// connection get the same replacement, and that the users of the former one can still use it.
func TestConnectionIsReplacedOnce(t *testing.T) {
	ctx, s := context.Background(), sharingServer(t)
	one, isNew, err := connect(ctx, s.Address(), nil)
	require.NoError(t, err)
	require.True(t, isNew)
	two, isNew, err := connect(ctx, s.Address(), one)
	require.NoError(t, err)
	require.True(t, isNew)
	require.NotSame(t, one, two)
	require.NoError(t, testenv.ErrorOf(one.peer.Names(ctx)), "a used connection was closed")
	three, isNew, err := connect(ctx, s.Address(), one)
	require.NoError(t, err)
	require.False(t, isNew)
	require.Same(t, two, three)
	release(two)
	trimShared()
	require.NoError(t, testenv.ErrorOf(three.peer.Names(ctx)), "a used connection was closed")
	release(one)
	release(three)
	require.ErrorIs(t, testenv.ErrorOf(one.peer.Names(ctx)), share.ErrClosed)
}

// TestTrimForgetsLostConnections checks that trimming removes the connection of a closed server.
func TestTrimForgetsLostConnections(t *testing.T) {
	s := sharingServer(t)
	a, _, err := connect(context.Background(), s.Address(), nil)
	require.NoError(t, err)
	release(a)
	require.NoError(t, s.Close())
	<-a.peer.Done()
	trimShared()
	require.Empty(t, sharing.connections)
}
