//go:build linux

package share_test

import (
	"encoding/hex"
	"fmt"
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
	h := testenv.Must(from.Export(background(t), a, share.ExportOptions{}))(t)
	return testenv.Must(to.Open(background(t), h))(t)
}

// TestPassedOn checks that an opened array can be exported again: to a third process, whose lease
// outlives that of the process in the middle, and to its maker, which gets its own memory.
func TestPassedOn(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	maker, between, third := listen(t, share.Options{}), listen(t, share.Options{}), listen(t, share.Options{})
	a := counting(t, pool, 4, 6)
	b := handOver(t, maker, between, a)
	part := testenv.Must(b.Index(usmarray.IndexRange(0, 4), usmarray.IndexRange(1, 6).By(2)))(t)

	c := handOver(t, between, third, part)
	require.Equal(t, part.Layout(), c.Layout())
	require.False(t, c.ReadOnly())
	own := handOver(t, between, maker, part)
	require.Equal(t, a.Buffer().Address(), own.Buffer().Address(), "the maker's own memory")
	require.Equal(t, part.Layout(), own.Layout())
	own.Release()

	audience, ok := share.AudienceOf(c.Buffer())
	require.True(t, ok)
	require.Equal(t, segment.PeersWrite, audience)
	require.Equal(t, 2, maker.Stats().Leases)
	b.Release() // the view borrowed
	require.NoError(t, between.Close())
	eventually(t, func() bool { return maker.Stats().Leases == 1 }, "the lease in the middle does not end")
	require.Equal(t, []float32{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}, testenv.Must(usmarray.ToSlice[float32](c))(t))
	buffer := c.Buffer()
	c.Release()
	_, ok = share.AudienceOf(buffer)
	require.False(t, ok, "it was released")
	eventually(t, func() bool { return maker.Stats().Leases == 0 }, "the last lease does not end")
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

// TestPassOnRejectedByMaker checks the errors of exporting an array of another process if its maker is
// closed, or has reached its limit of unopened handles for one process.
func TestPassOnRejectedByMaker(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	a := counting(t, pool, 6)
	server := listen(t, share.Options{})
	maker := listen(t, share.Options{MaxUnopened: 32, Unopened: time.Hour})
	b := handOver(t, maker, server, a)
	for range 2 {
		require.NoError(t, testenv.ErrorOf(server.Export(background(t), b, share.ExportOptions{})))
	}
	require.ErrorIs(t, testenv.ErrorOf(server.Export(background(t), b, share.ExportOptions{})), share.ErrLimit)
	h, err := maker.Export(background(t), a, share.ExportOptions{})
	require.NoError(t, err, "no room for other exports")
	require.True(t, maker.Revoke(h))
	require.NoError(t, maker.Close())
	require.ErrorIs(t, testenv.ErrorOf(server.Export(background(t), b, share.ExportOptions{})), share.ErrClosed)
	b.Release()
}

// TestPassingOnLeavesRoom checks that a process that requests handles without end, even over new
// connections, leaves room for other processes and for the maker's own exports.
func TestPassingOnLeavesRoom(t *testing.T) {
	const most = 32
	pool := newPool(t, segment.PeersWrite)
	maker := listen(t, share.Options{MaxUnopened: most, Unopened: time.Hour})
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
		o := start(t, "middle", "")
		o.expect("ready")
		for range most / 16 {
			o.say(fmt.Sprintf("%x", export(t, maker, a).Bytes()))
			b := testenv.Must(hex.DecodeString(o.line()))(t)
			last = testenv.Must(share.ParseHandle(b))(t)
			passed++
		}
		o.kill()
		eventually(t, func() bool { return maker.Stats().Peers == 0 }, "the connection is still open")
	}
	require.Equal(t, most/2, maker.Stats().Unopened)
	o := start(t, "middle", "")
	o.expect("ready")
	o.say(fmt.Sprintf("%x", export(t, maker, a).Bytes()))
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
	o = start(t, "middle", "")
	o.expect("ready")
	o.say(fmt.Sprintf("%x", export(t, maker, a).Bytes()))
	require.NotContains(t, o.line(), "error", "opened handles count against the limit")
}

// TestPassOnRequiresAnOpenLease checks that a request for a handle of a lease that the process does
// not hold is rejected without an effect on the handle.
func TestPassOnRequiresAnOpenLease(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	maker, other := listen(t, share.Options{}), listen(t, share.Options{})
	a := counting(t, pool, 6)
	b := handOver(t, maker, other, a)
	defer b.Release()
	h := testenv.Must(maker.Export(background(t), a, share.ExportOptions{}))(t)
	described := h.Bytes()[8+16+1+len(h.Maker()):] // a lease that is not open
	described = described[:len(described)-8-2]     // without the place on the board
	r := rogue(t, maker, true)
	require.NoError(t, testenv.ErrorOf(r.Write(frameOf(15, 7, described))))
	answer := make([]byte, 1<<14)
	n := testenv.Must(r.Read(answer))(t)
	require.Equal(t, byte(2), answer[0], "refused")
	require.Contains(t, string(answer[:n]), "has ended")
	require.NoError(t, testenv.ErrorOf(r.Write(frameOf(15, 8, described[:len(described)-1]))))
	cutOff(t, r)
	require.True(t, maker.Revoke(h))
}

// TestReplace checks that Replace publishes another array under an existing name immediately.
func TestReplace(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	s := listen(t, share.Options{MaxNames: 1})
	p := dial(t, s, share.Options{})
	require.NoError(t, s.Replace(background(t), "a", counting(t, pool, 3)))
	first := testenv.Must(p.Attach(background(t), "a"))(t)
	require.ErrorIs(t, s.Publish(background(t), "a", counting(t, pool, 5)), share.ErrName)
	require.NoError(t, s.Replace(background(t), "a", counting(t, pool, 5)))
	require.ErrorIs(t, s.Replace(background(t), "b", counting(t, pool, 5)), share.ErrLimit)
	second := testenv.Must(p.Attach(background(t), "a"))(t)
	require.Equal(t, []int{3, 5}, append(first.Shape(), second.Shape()...))
	first.Release()
	second.Release()
}
