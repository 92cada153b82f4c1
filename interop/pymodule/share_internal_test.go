//go:build cgo && linux

package pymodule

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/syclobj"
)

// sharingServer is a server that this process attaches by; no connection is left after the
// test.
func sharingServer(t *testing.T) *share.Server {
	t.Helper()
	if state.rt == nil {
		rt, err := syclobj.Open(syclobj.HostOnly())
		require.NoError(t, err)
		state.rt = rt
		t.Cleanup(func() {
			state.rt = nil
			require.NoError(t, rt.Close())
		})
	}
	s, err := share.Listen(context.Background(), "", share.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		trimShared()
		require.Empty(t, sharing.attached)
	})
	return s
}

// TestTrimLeavesUsedConnections: trimming, connections that are replaced, and questions at
// the same time disturb each other in nothing.
func TestTrimLeavesUsedConnections(t *testing.T) {
	s := sharingServer(t)
	var asking, trimming sync.WaitGroup
	var over atomic.Bool
	for range 2 {
		trimming.Go(func() {
			for !over.Load() {
				trimShared()
			}
		})
		asking.Go(func() {
			for range 100 {
				_, err := published(context.Background(), s.Address())
				if err != nil {
					t.Errorf("names: %v", err)
				}
			}
		})
		asking.Go(func() {
			for range 100 {
				a, _, err := connection(context.Background(), s.Address(), nil)
				if err != nil {
					t.Errorf("connection: %v", err)
					continue
				}
				done(a)
				_, err = attach(context.Background(), s.Address(), "missing")
				if kindOf(err) != kindKey {
					t.Errorf("attach: %v", err)
				}
			}
		})
	}
	asking.Wait()
	over.Store(true)
	trimming.Wait()
}

// TestConnectionIsReplacedOnce: who asks for another connection than the one it had gets what
// stands in its place by now, and who uses the former one keeps it.
func TestConnectionIsReplacedOnce(t *testing.T) {
	ctx, s := context.Background(), sharingServer(t)
	one, isNew, err := connection(ctx, s.Address(), nil)
	require.NoError(t, err)
	require.True(t, isNew)
	two, isNew, err := connection(ctx, s.Address(), one)
	require.NoError(t, err)
	require.True(t, isNew)
	require.NotSame(t, one, two)
	_, err = one.peer.Names(ctx)
	require.NoError(t, err, "it is used")
	three, isNew, err := connection(ctx, s.Address(), one)
	require.NoError(t, err)
	require.False(t, isNew)
	require.Same(t, two, three)
	done(two)
	trimShared()
	_, err = three.peer.Names(ctx)
	require.NoError(t, err, "it is used")
	done(one)
	done(three)
	_, err = one.peer.Names(ctx)
	require.ErrorIs(t, err, share.ErrClosed)
}

// TestTrimForgetsLostConnections: a server that ended leaves nothing in the table.
func TestTrimForgetsLostConnections(t *testing.T) {
	s := sharingServer(t)
	a, _, err := connection(context.Background(), s.Address(), nil)
	require.NoError(t, err)
	done(a)
	require.NoError(t, s.Close())
	<-a.peer.Done()
	trimShared()
	require.Empty(t, sharing.attached)
}

// A context with a time ends as those of package context do, whoever asks first.
func TestWithin(t *testing.T) {
	ctx, cancel := within(int64(time.Hour))
	at, ok := ctx.Deadline()
	require.True(t, ok)
	require.False(t, at.IsZero())
	require.NoError(t, ctx.Err())
	under, stop := context.WithCancel(ctx)
	defer stop()
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	<-under.Done()
	<-ctx.Done()
	cancel()

	ctx, cancel = within(int64(time.Hour))
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled, "nobody waited")
	<-ctx.Done()

	ctx, cancel = within(0)
	defer cancel()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	<-ctx.Done()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)

	ctx, cancel = within(int64(time.Millisecond))
	defer cancel()
	<-ctx.Done()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)

	ctx, cancel = within(-1)
	require.NoError(t, ctx.Err())
	cancel()
	<-ctx.Done()
}
