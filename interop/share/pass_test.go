//go:build linux

package share_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// handOver exports an array from one server and opens the handle at the other.
func handOver(t *testing.T, from, to *share.Server, a *usmarray.Array) *usmarray.Array {
	t.Helper()
	return testenv.Must(to.Open(background(t), export(t, from, a)))(t)
}

// TestPassedOnReadOnly checks that an array stays read-only when it is exported again.
func TestPassedOnReadOnly(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	maker, between, third := listen(t, share.Options{}), listen(t, share.Options{}), listen(t, share.Options{})
	a := counting(t, pool, 6)
	for _, lent := range []*usmarray.Array{a.AsReadOnly(), a} {
		b := handOver(t, maker, between, lent)
		c := handOver(t, between, third, b.AsReadOnly())
		require.True(t, c.ReadOnly())
		d := handOver(t, third, maker, c)
		require.True(t, d.ReadOnly())
		for _, x := range []*usmarray.Array{b, c, d} {
			x.Release()
		}
	}
}

// TestPassOnRejectedByMaker checks that an array of a closed maker is not exported.
func TestPassOnRejectedByMaker(t *testing.T) {
	server, maker := listen(t, share.Options{}), listen(t, share.Options{})
	b := handOver(t, maker, server, counting(t, newPool(t, segment.PeersWrite), 6))
	require.NoError(t, maker.Close())
	require.ErrorIs(t, testenv.ErrorOf(server.Export(background(t), b, share.ExportOptions{})), share.ErrClosed)
	b.Release()
}

// TestPassingOnLeavesRoom checks that a process that requests handles without end, even over new
// connections, leaves room for other processes and for the maker's own exports.
func TestPassingOnLeavesRoom(t *testing.T) {
	const most = 32
	pool, maker := serving(t, share.Options{MaxUnopened: most, Unopened: time.Hour})
	a := counting(t, pool, 6)
	passed := 0
	for range 5 { // the same process, each time with a new connection
		middle := testenv.Must(share.Listen(background(t), "", share.Options{}))(t)
		b := handOver(t, maker, middle, a)
		for range 2 {
			if _, err := middle.Export(background(t), b, share.ExportOptions{}); err == nil {
				passed++
			} else {
				require.ErrorIs(t, err, share.ErrLimit)
			}
		}
		b.Release()
		require.NoError(t, middle.Close())
		eventually(t, func() bool { return maker.Stats().Peers == 0 }, "the connection is still open")
	}
	require.Equal(t, most/16, passed, "as many as one process may")
	var last share.Handle
	for passed < most/2 { // other processes have their own share
		o := start(t, "relay", "")
		for range most / 16 {
			give(o, export(t, maker, a))
			last = from(t, o)
			passed++
		}
		o.kill()
		eventually(t, func() bool { return maker.Stats().Peers == 0 }, "the connection is still open")
	}
	require.Equal(t, most/2, maker.Stats().Unopened)
	o := start(t, "relay", "")
	give(o, export(t, maker, a))
	o.say("")
	require.Contains(t, <-o.lines, "other processes asked for", "the limit of all other processes")
	o.kill()
	eventually(t, func() bool { return maker.Stats().Peers == 0 }, "the connection is still open")
	own := make([]share.Handle, most/2)
	for i := range own {
		own[i] = export(t, maker, a)
	}
	require.ErrorIs(t, testenv.ErrorOf(maker.Export(background(t), a, share.ExportOptions{})), share.ErrLimit)
	for _, h := range own {
		require.True(t, maker.Revoke(h))
	}
	end := listen(t, share.Options{})
	opened := testenv.Must(end.Open(background(t), last))(t)
	require.ErrorIs(t, testenv.ErrorOf(end.Export(background(t), opened, share.ExportOptions{})), share.ErrLimit, "this process had its part")
	opened.Release()
	o = start(t, "relay", "")
	give(o, export(t, maker, a))
	o.say("")
	require.NotContains(t, o.line(), "error", "opened handles count against the limit")
}

// TestReplace checks that Replace publishes another array under an existing name immediately.
func TestReplace(t *testing.T) {
	pool, s := serving(t, share.Options{MaxNames: 1})
	p := dial(t, s, share.Options{})
	require.NoError(t, s.Replace(background(t), "a", counting(t, pool, 3)))
	first := testenv.Held(p.Attach(background(t), "a"))(t)
	require.ErrorIs(t, s.Publish(background(t), "a", counting(t, pool, 5)), share.ErrName)
	require.NoError(t, s.Replace(background(t), "a", counting(t, pool, 5)))
	require.ErrorIs(t, s.Replace(background(t), "b", counting(t, pool, 5)), share.ErrLimit)
	second := testenv.Held(p.Attach(background(t), "a"))(t)
	require.Equal(t, []int{3, 5}, append(first.Shape(), second.Shape()...))
}
