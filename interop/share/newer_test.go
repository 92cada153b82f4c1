//go:build linux

package share_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// replace publishes an array whose elements all have the given value.
func replace(ctx context.Context, s *share.Server, pool *memmgr.Pool, name string, value float32) error {
	a, err := usmarray.Full(pool, usmarray.Float32, []int{1000}, value)
	if err != nil {
		return err
	}
	defer a.Release()
	return s.Replace(ctx, name, a)
}

// valueOf returns the value that all elements of the array must have, and releases the array.
func valueOf(a *usmarray.Array) (float32, error) {
	defer a.Release()
	values, err := usmarray.Slice[float32](a)
	if err != nil {
		return 0, err
	}
	for _, v := range values {
		if v != values[0] {
			return 0, fmt.Errorf("a torn array: %v and %v", values[0], v)
		}
	}
	return values[0], nil
}

// TestWaitNewer checks that WaitNewer waits for the first version, for each newer one, and for the
// next one after a withdrawal, and that it skips versions that were replaced meanwhile.
func TestWaitNewer(t *testing.T) {
	pool, s := serving(t, share.Options{})
	p := dial(t, s, share.Options{})
	last := uint64(0)
	next := func(want float32) {
		t.Helper()
		a, sequence, err := p.WaitNewer(background(t), "frame", last)
		require.NoError(t, err)
		require.Greater(t, sequence, last)
		last = sequence
		require.Equal(t, want, testenv.Must(valueOf(a))(t))
	}
	waited := func(publish func()) chan error {
		ended := make(chan error, 1)
		go func() {
			a, sequence, err := p.WaitNewer(background(t), "frame", last)
			if err == nil {
				last = sequence
				_, err = valueOf(a)
			}
			ended <- err
		}()
		eventually(t, func() bool { return s.Stats().Waiting == 1 }, "it does not wait")
		publish()
		return ended
	}
	publish := func(v float32) func() {
		return func() { require.NoError(t, replace(background(t), s, pool, "frame", v)) }
	}
	require.NoError(t, <-waited(publish(1)))
	require.NoError(t, replace(background(t), s, pool, "other", 9))
	require.NoError(t, <-waited(publish(2)))
	publish(3)()
	publish(4)()
	next(4)
	require.NoError(t, s.Withdraw("frame"))
	require.NoError(t, <-waited(publish(5)))
	last = 0
	next(5)
	_, _, err := p.WaitNewer(background(t), "", 0)
	require.ErrorIs(t, err, share.ErrName)
}

// TestWaitNewerCanceled checks that any number of canceled calls leaves no state behind.
func TestWaitNewerCanceled(t *testing.T) {
	pool, s := serving(t, share.Options{})
	p := dial(t, s, share.Options{})
	for range 300 { // more calls than a connection can have pending
		ctx, cancel := context.WithTimeout(background(t), time.Millisecond)
		_, _, err := p.WaitNewer(ctx, "frame", 0)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	eventually(t, func() bool { return s.Stats().Waiting == 0 }, "calls that were given up wait")
	require.NoError(t, replace(background(t), s, pool, "frame", 1))
	a, _, err := p.WaitNewer(background(t), "frame", 0)
	require.NoError(t, err)
	a.Release()
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "a call that was given up has a lease")
}

// TestWaitNewerReturnsOnClose checks that pending calls return when either side closes.
func TestWaitNewerReturnsOnClose(t *testing.T) {
	for name, end := range map[string]func(s *share.Server, p *share.Peer) error{
		"server": func(s *share.Server, _ *share.Peer) error { return s.Close() },
		"peer":   func(_ *share.Server, p *share.Peer) error { return p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, share.Options{})
			p := dial(t, s, share.Options{})
			ended := make(chan error, 1)
			go func() {
				_, _, err := p.WaitNewer(background(t), "frame", 0)
				ended <- err
			}()
			eventually(t, func() bool { return s.Stats().Waiting == 1 }, "it does not wait")
			require.NoError(t, end(s, p))
			require.ErrorIs(t, <-ended, share.ErrClosed)
		})
	}
	pool, s := serving(t, share.Options{})
	o := start(t, "wait", s.Address())
	eventually(t, func() bool { return s.Stats().Waiting == 1 }, "it does not wait")
	o.kill()
	eventually(t, func() bool { return s.Stats().Peers == 0 }, "the killed process is a peer")
	require.NoError(t, replace(background(t), s, pool, "frame", 1))
	require.Zero(t, s.Stats())
}

// TestStream checks that consumers of a stream receive only complete versions, in order, up to the
// last one, with one call for each version.
func TestStream(t *testing.T) {
	const frames, consumers = 500, 3
	pool, s := serving(t, share.Options{})
	var group errgroup.Group
	for range consumers {
		p := dial(t, s, share.Options{})
		group.Go(func() error {
			last, seen := uint64(0), float32(0)
			for calls := 1; seen < frames; calls++ {
				a, sequence, err := p.WaitNewer(background(t), "frame", last)
				if err != nil {
					return err
				}
				v, err := valueOf(a)
				switch {
				case err != nil:
					return err
				case v <= seen || sequence <= last:
					return fmt.Errorf("version %d, value %v, after version %d, value %v", sequence, v, last, seen)
				case calls > frames:
					return fmt.Errorf("%d calls for %d frames", calls, frames)
				}
				last, seen = sequence, v
			}
			return nil
		})
	}
	for i := range frames {
		require.NoError(t, replace(background(t), s, pool, "frame", float32(i+1)))
	}
	require.NoError(t, group.Wait())
}
