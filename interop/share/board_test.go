//go:build linux

package share_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

func export(t testing.TB, s *share.Server, a *usmarray.Array) share.Handle {
	t.Helper()
	return testenv.Must(s.Export(background(t), a, share.ExportOptions{}))(t)
}

// opener returns a connection that has mapped the segment of a for writing and has received a
// board, so that further handles of the segment are offered to it on the board.
func opener(t testing.TB, s *share.Server, a *usmarray.Array) *share.Peer {
	t.Helper()
	p := dial(t, s, share.Options{Idle: time.Hour}) // longer than the test
	openInTime(t, s, p, a).Release()
	eventually(t, func() bool { return share.HasBoard(p) }, "no board was received")
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "the lease stays")
	return p
}

// openInTime exports and opens a. On a busy machine a handle can expire before it is opened if
// Options.Unopened is short; openInTime then tries again with a new handle.
func openInTime(t testing.TB, s *share.Server, p *share.Peer, a *usmarray.Array) *usmarray.Array {
	t.Helper()
	b, err := p.Open(background(t), export(t, s, a))
	for try := 0; errors.Is(err, share.ErrStale) && try < 100; try++ {
		b, err = p.Open(background(t), export(t, s, a))
	}
	require.NoError(t, err)
	return b
}

func stale(t testing.TB, p *share.Peer, h share.Handle) {
	t.Helper()
	require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), h)), share.ErrStale)
}

// TestOpenFromBoard checks that a handle offered on the board is opened without a request to its
// maker: at most once, with the right layout, and with a lease that ends with the array.
func TestOpenFromBoard(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 4, 6)
	q := dial(t, s, share.Options{})
	p := opener(t, s, a)
	asked := share.Calls(p)
	view := testenv.Must(a.Index(usmarray.IndexRange(3, 0).By(-2), usmarray.IndexAt(2)))(t)
	h, whole := export(t, s, view), export(t, s, a)
	b := testenv.Must(p.Open(background(t), h))(t)
	require.Equal(t, asked, share.Calls(p), "the maker received a request")
	require.Equal(t, view.Layout(), b.Layout())
	require.Equal(t, []float32{20, 8}, testenv.Must(usmarray.ToSlice[float32](b))(t))
	require.Equal(t, 1, s.Stats().Leases)
	require.Equal(t, 1, s.Stats().Unopened)
	stale(t, p, h)
	stale(t, q, h)
	require.ErrorIs(t, testenv.ErrorOf(s.Open(background(t), h)), share.ErrStale)
	require.False(t, s.Revoke(h))

	c, err := q.Open(background(t), whole)
	require.NoError(t, err, "a request opens a handle that is offered to another connection")
	stale(t, p, whole)
	c.Release()
	b.Release()
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "a lease stays")
	stale(t, p, h)
}

// TestOpenByRequest checks that a handle is opened by a request to its maker if it is not offered
// to this process, or if this process has not mapped its segment for writing.
func TestOpenByRequest(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	for name, c := range map[string]struct {
		before func(p *share.Peer)
		export func() *usmarray.Array
	}{
		"no mapping to read": {nil, func() *usmarray.Array { return a.AsReadOnly() }},
		"unmapped": {func(p *share.Peer) {
			p.Trim()
			eventually(t, func() bool { return p.Stats().Mapped == 0 }, "still mapped")
		}, func() *usmarray.Array { return a }},
		"another segment": {nil, func() *usmarray.Array { return counting(t, newPool(t, segment.PeersWrite), 3) }},
		"another opener": {func(*share.Peer) {
			testenv.Must(opener(t, s, a).Open(background(t), export(t, s, a)))(t).Release()
		}, func() *usmarray.Array { return a }},
	} {
		t.Run(name, func(t *testing.T) {
			p := opener(t, s, a)
			if c.before != nil {
				c.before(p)
			}
			asked := share.Calls(p)
			b := testenv.Must(p.Open(background(t), export(t, s, c.export())))(t)
			require.Greater(t, share.Calls(p), asked)
			b.Release()
		})
	}
}

// TestOfferLifetime checks that offers end like handles: when they are revoked, expire, or when
// either side closes. Arrays that were opened from an offer stay open.
func TestOfferLifetime(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	a := counting(t, pool, 3)
	t.Run("Revoked", func(t *testing.T) {
		s := listen(t, share.Options{})
		p := opener(t, s, a)
		h := export(t, s, a)
		require.True(t, s.Revoke(h))
		stale(t, p, h)
	})
	t.Run("Late", func(t *testing.T) {
		s := listen(t, share.Options{Unopened: 300 * time.Millisecond})
		p := opener(t, s, a)
		b := openInTime(t, s, p, a)
		late := export(t, s, a)
		eventually(t, func() bool { return s.Stats().Unopened == 0 }, "the handle does not expire")
		stale(t, p, late)
		require.Equal(t, 1, s.Stats().Leases, "open arrays do not expire")
		b.Release()
	})
	t.Run("Altered", func(t *testing.T) {
		s := listen(t, share.Options{})
		p := opener(t, s, a)
		h := export(t, s, a)
		for i := range h.Bytes() {
			b := h.Bytes()
			b[i] ^= 1 << rand.IntN(8)
			if forged, err := share.ParseHandle(b); err == nil {
				stale(t, p, forged)
			}
		}
		require.True(t, s.Revoke(h), "no alteration opened it")
	})
	t.Run("Closed", func(t *testing.T) {
		s := listen(t, share.Options{})
		p := opener(t, s, a)
		h, other := export(t, s, a), export(t, s, a)
		b := testenv.Must(p.Open(background(t), h))(t)
		require.NoError(t, p.Close())
		require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), other)), share.ErrClosed)
		require.Equal(t, []float32{0, 1, 2}, testenv.Must(usmarray.ToSlice[float32](b))(t))
		require.Equal(t, 1, s.Stats().Leases)
		b.Release()
		require.True(t, s.Revoke(other))
	})
	t.Run("Lost", func(t *testing.T) {
		s := listen(t, share.Options{})
		p := opener(t, s, a)
		h, other := export(t, s, a), export(t, s, a)
		b := testenv.Must(p.Open(background(t), h))(t)
		share.Break(p)
		eventually(t, func() bool { return s.Stats().Leases == 0 && s.Stats().Peers == 0 }, "a lease stays")
		require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), other)), share.ErrDied)
		b.Release()
		c, err := dial(t, s, share.Options{}).Open(background(t), other)
		require.NoError(t, err, "the handle was not restricted to the lost connection")
		c.Release()
	})
	t.Run("Server", func(t *testing.T) {
		s := listen(t, share.Options{})
		p := opener(t, s, a)
		h, other := export(t, s, a), export(t, s, a)
		b := testenv.Must(p.Open(background(t), h))(t)
		require.NoError(t, s.Close())
		require.Error(t, testenv.ErrorOf(p.Open(background(t), other)))
		require.Equal(t, 1, s.Stats().Leases, "open arrays keep their lease")
		b.Release()
		eventually(t, func() bool { return s.Stats() == share.Stats{} }, "the server keeps state")
	})
}

// TestKilledProcessReleasesBoardLeases checks that the leases of a process end if it is killed
// after it opened handles from the board and before the maker has read the board.
func TestKilledProcessReleasesBoardLeases(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	o := start(t, "relay", "")
	for range 20 {
		give(o, export(t, s, a))
	}
	h := export(t, s, a)
	o.kill()
	eventually(t, func() bool { return s.Stats().Leases == 0 && s.Stats().Peers == 0 }, "leases of a killed process stay")
	require.True(t, s.Revoke(h))
}

// TestConcurrentUseOfOffer checks that exactly one of several concurrent opens and revocations of
// one handle succeeds.
func TestConcurrentUseOfOffer(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	q, p := dial(t, s, share.Options{}), opener(t, s, a)
	for range 300 {
		h := export(t, s, a)
		var group sync.WaitGroup
		had := make(chan string, 8)
		open := func(name string, open func(context.Context, share.Handle) (*usmarray.Array, error)) {
			group.Go(func() {
				switch b, err := open(context.Background(), h); {
				case err == nil:
					had <- name
					b.Release()
				case !errors.Is(err, share.ErrStale):
					t.Error(name, err)
				}
			})
		}
		open("p", p.Open)
		open("p again", p.Open)
		open("q", q.Open)
		open("maker", s.Open)
		group.Go(func() {
			if s.Revoke(h) {
				had <- "revoked"
			}
		})
		group.Wait()
		require.Len(t, had, 1)
	}
}

// TestReleaseIsReadFromBoard checks that the maker reads the release of an array that was opened
// from the board without a message from the peer.
func TestReleaseIsReadFromBoard(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	p := opener(t, s, a)
	reported := share.Reported(p)
	for range 100 {
		h := export(t, s, a)
		b := testenv.Must(p.Open(background(t), h))(t)
		require.Equal(t, 1, s.Stats().Leases) // the maker has found the array open: its release is reported
		b.Release()
		eventually(t, func() bool { return s.Stats().Leases == 0 }, "a lease stays")
	}
	require.EqualValues(t, 100, share.Reported(p)-reported)
	for range 100 {
		h := export(t, s, a)
		testenv.Must(p.Open(background(t), h))(t).Release()
		require.False(t, s.Revoke(h), "it was opened")
		// If the maker looked at the board before the release, the release is reported.
		eventually(t, func() bool { return s.Stats().Leases == 0 }, "a lease stays")
	}
	require.Less(t, share.Reported(p)-reported, uint64(200), "every release was reported")
}

// TestReleaseOnTheBoardIsReported checks that the peer reports a release by a message if the maker
// does not read the board.
func TestReleaseOnTheBoardIsReported(t *testing.T) {
	pool, s, a := sharing(t, share.Options{Unopened: time.Hour}, 3)
	p := opener(t, s, a)
	used := pool.Stats().Allocation.Current
	b := counting(t, pool, 1000)
	h := export(t, s, b)
	c := testenv.Must(p.Open(background(t), h))(t)
	b.Release()
	c.Release()
	eventually(t, func() bool { return pool.Stats().Allocation.Current == used }, "the memory does not return")
}

// TestConcurrentReleaseAndBoardReads checks that each lease ends once when a release and reads of
// the board run concurrently.
func TestConcurrentReleaseAndBoardReads(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	p := opener(t, s, a)
	for range 300 {
		h := export(t, s, a)
		b := testenv.Must(p.Open(background(t), h))(t)
		var group sync.WaitGroup
		group.Go(b.Release)
		group.Go(func() { require.False(t, s.Revoke(h)) })
		group.Go(func() { s.Stats() })
		group.Wait()
	}
	eventually(t, func() bool { return s.Stats().Leases == 0 && p.Stats().Opened == 0 }, "a lease stays")
	require.Equal(t, []float32{0, 1, 2}, testenv.Must(usmarray.ToSlice[float32](a))(t))
}

// TestOfferedByProcessID checks that a handle is offered to the process with ExportOptions.PID,
// even if another process opened the last handle of the segment.
func TestOfferedByProcessID(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	p := opener(t, s, a)
	o := start(t, "relay", "")
	give(o, export(t, s, a))
	for _, pid := range []int{os.Getpid(), 0} {
		asked := share.Calls(p)
		h := testenv.Must(s.Export(background(t), a, share.ExportOptions{PID: pid}))(t)
		testenv.Must(p.Open(background(t), h))(t).Release()
		require.Equal(t, pid == 0, share.Calls(p) > asked)
	}
}

// TestBoardIsFull checks that handles beyond the capacity of the board are opened by a request.
func TestBoardIsFull(t *testing.T) {
	_, s, a := sharing(t, share.Options{Unopened: time.Hour}, 3)
	p := opener(t, s, a)
	for range 2 {
		var all []share.Handle
		for range share.BoardSlots + 100 {
			all = append(all, export(t, s, a))
		}
		asked := share.Calls(p)
		for _, h := range all {
			testenv.Must(p.Open(background(t), h))(t).Release()
		}
		require.EqualValues(t, 100, share.Calls(p)-asked)
	}
}

// TestOffersCountAsLeases checks that a process that has reached MaxLeases is offered no handle,
// and that its request to open one fails with ErrLimit.
func TestOffersCountAsLeases(t *testing.T) {
	_, s, a := sharing(t, share.Options{MaxLeases: 5}, 3)
	p := opener(t, s, a)
	var kept []*usmarray.Array
	for range 5 {
		kept = append(kept, testenv.Must(p.Open(background(t), export(t, s, a)))(t))
	}
	h := export(t, s, a)
	require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), h)), share.ErrLimit)
	for _, b := range kept {
		b.Release()
	}
	require.True(t, s.Revoke(h))
}

// TestBoardOverwrittenByPeer checks that arbitrary data that a peer writes to its board opens no
// handle, ends no lease of another process, and keeps no handle from being revoked.
func TestBoardOverwrittenByPeer(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 3)
	q, p := dial(t, s, share.Options{}), opener(t, s, a)
	for _, word := range []uint64{0, 1, 2, ^uint64(0)} {
		var all []share.Handle
		for range 10 {
			all = append(all, export(t, s, a))
		}
		share.Scribble(p, word)
		require.Equal(t, 10, s.Stats().Unopened, "%#x", word)
		for _, h := range all[:5] {
			b, err := q.Open(background(t), h)
			require.NoError(t, err, "%#x", word)
			b.Release()
		}
		for _, h := range all[5:] {
			require.True(t, s.Revoke(h), "%#x", word)
		}
	}
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "a lease stays")
	b, err := p.Open(background(t), export(t, s, a))
	require.NoError(t, err, "the connection is still usable")
	b.Release()
}
