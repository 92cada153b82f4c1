//go:build linux

package share_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// sevens returns an array of several pages with the value 7 and the given tag.
func sevens(t *testing.T, p *memmgr.Pool, tag string) *usmarray.Array {
	t.Helper()
	const n = 1 << 16
	b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 4 * n, Tag: tag}))(t)
	layout := testenv.Must(usmarray.NewLayout([]int{n}, nil, 0))(t)
	a := testenv.Held(usmarray.FromBuffer(b, usmarray.Float32, layout))(t)
	values := testenv.Must(usmarray.Slice[float32](a))(t)
	for i := range values {
		values[i] = 7
	}
	return a
}

// TestLentMemoryStays checks that memory of leases, handles and published names stays after its owner has
// released the array, and that it is freed when the last of them ends.
func TestLentMemoryStays(t *testing.T) {
	const tag = "weights"
	// lend makes an array available to the peer, and end takes it back. The test releases the array
	// in between.
	for _, test := range []struct {
		name string
		lend func(t *testing.T, s *share.Server, p *share.Peer, a *usmarray.Array) (opened *usmarray.Array, end func())
	}{
		{"Unopened", func(t *testing.T, s *share.Server, _ *share.Peer, a *usmarray.Array) (*usmarray.Array, func()) {
			h := testenv.Must(s.Export(background(t), a, share.ExportOptions{}))(t)
			return nil, func() { require.True(t, s.Revoke(h)) }
		}},
		{"NoWait", func(t *testing.T, s *share.Server, _ *share.Peer, a *usmarray.Array) (*usmarray.Array, func()) {
			h := testenv.Must(s.Export(background(t), a, share.ExportOptions{NoWait: true}))(t)
			return nil, func() { require.True(t, s.Revoke(h)) }
		}},
		{"Opened", func(t *testing.T, s *share.Server, p *share.Peer, a *usmarray.Array) (*usmarray.Array, func()) {
			h := testenv.Must(s.Export(background(t), a, share.ExportOptions{}))(t)
			b := testenv.Must(p.Open(background(t), h))(t)
			return b, b.Release
		}},
		{"Attached", func(t *testing.T, s *share.Server, p *share.Peer, a *usmarray.Array) (*usmarray.Array, func()) {
			require.NoError(t, s.Publish(background(t), "a", a))
			b := testenv.Must(p.Attach(background(t), "a"))(t)
			require.NoError(t, s.Withdraw("a"))
			return b, b.Release
		}},
		{"Published", func(t *testing.T, s *share.Server, _ *share.Peer, a *usmarray.Array) (*usmarray.Array, func()) {
			require.NoError(t, s.Publish(background(t), "a", a))
			return nil, func() { require.NoError(t, s.Withdraw("a")) }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pool, s := serving(t, share.Options{})
			p := dial(t, s, share.Options{})
			a := sevens(t, pool, tag)
			opened, end := test.lend(t, s, p, a)
			a.Release()
			require.EqualValues(t, 1, pool.Stats().Allocation.Current)
			if test.name == "Published" {
				testenv.Must(p.Attach(background(t), "a"))(t).Release()
			}
			if opened != nil {
				values := testenv.Must(usmarray.Slice[float32](opened))(t)
				require.Equal(t, float32(7), values[0])
				require.Equal(t, float32(7), values[len(values)-1])
			}
			end()
			eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "the memory is held")
		})
	}
	t.Run("TakenBack", func(t *testing.T) {
		pool, s := serving(t, share.Options{})
		h := testenv.Must(s.Export(background(t), sevens(t, pool, tag), share.ExportOptions{}))(t)
		own := testenv.Held(s.Open(background(t), h))(t)
		require.Equal(t, 2, own.Buffer().Count(), "the references of the created and of the opened array")
	})
}

// TestSurplusReleaseOfPublishedArray checks that a surplus release of a published array makes Attach fail with
// ErrNotShared and leaves the server usable.
func TestSurplusReleaseOfPublishedArray(t *testing.T) {
	pool, s := serving(t, share.Options{})
	p := dial(t, s, share.Options{})
	publish(t, s, pool, "b", 3)
	a := counting(t, pool, 3)
	require.NoError(t, s.Publish(background(t), "a", a))
	b := a.Buffer()
	for b.Valid() {
		b.Release()
	}
	require.ErrorIs(t, testenv.ErrorOf(p.Attach(background(t), "a")), share.ErrNotShared)
	testenv.Must(p.Attach(background(t), "b"))(t).Release()
}

// TestClosingPeersAreLentNothing checks that a closed connection grants no new lease, and that it
// ends with its last lease.
func TestClosingPeersAreLentNothing(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	peers := make(chan *share.Peer, 1)
	s := listen(t, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	a := publish(t, s, pool, "a", 3)
	p := dial(t, s, share.Options{})
	there := <-peers
	before := testenv.Must(s.Export(background(t), a, share.ExportOptions{}))(t)
	first := testenv.Must(p.Attach(background(t), "a"))(t)
	require.NoError(t, there.Close())

	require.ErrorIs(t, testenv.ErrorOf(s.Export(background(t), a, share.ExportOptions{To: there})), share.ErrClosed)
	require.ErrorIs(t, testenv.ErrorOf(p.Attach(background(t), "a")), share.ErrClosed)
	require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), before)), share.ErrClosed)
	require.True(t, s.Revoke(before), "the handle is not valid for other connections")
	require.Equal(t, 1, there.Stats().Leases)

	first.Release()
	<-there.Done()
	<-p.Done()
}

// TestServerOpensAfterClose checks that Server.Open dials a new connection if the existing
// connection to the maker is closing.
func TestServerOpensAfterClose(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	maker, opener := listen(t, share.Options{}), listen(t, share.Options{})
	a := counting(t, pool, 5)
	first := handOver(t, maker, opener, a)
	old := opener.Peers()[0]
	require.NoError(t, old.Close())
	second := handOver(t, maker, opener, a) // over a second connection
	require.Len(t, opener.Peers(), 2)
	first.Release()
	<-old.Done()
	third := handOver(t, maker, opener, a)
	eventually(t, func() bool { return len(opener.Peers()) == 1 }, "the old connection stays, or a third one was dialed")
	second.Release()
	third.Release()
	require.NoError(t, opener.Close())
	h := export(t, maker, a)
	require.ErrorIs(t, testenv.ErrorOf(opener.Open(background(t), h)), share.ErrClosed)
	require.True(t, maker.Revoke(h))
}
