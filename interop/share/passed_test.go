//go:build linux

package share_test

import (
	"encoding/binary"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestReceivedArrayIsPassedOn checks that a received array can be exported again. The new handle is
// one of the original maker, so that it stays valid after the process in the middle has released
// the array or was killed.
func TestReceivedArrayIsPassedOn(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	maker, last := listen(t, share.Options{}), listen(t, share.Options{})
	ctx := background(t)
	x := counting(t, pool, 4, 5)
	part := testenv.Must(x.Index(usmarray.IndexRange(0, 4), usmarray.IndexRange(1, 5).By(2)))(t)
	middle := start(t, "relay", "")
	pass := func() share.Handle {
		h := export(t, maker, part)
		give(middle, h)
		on := from(t, middle)
		require.Equal(t, maker.Address(), on.Maker())
		require.NotEqual(t, h.Bytes(), on.Bytes())
		return on
	}
	first, second, own := pass(), pass(), pass()
	opened := testenv.Must(last.Open(ctx, first))(t)
	require.ErrorIs(t, testenv.ErrorOf(last.Open(ctx, first)), share.ErrStale, "the handle was opened twice")
	back, err := maker.Open(ctx, own) // the maker opens its own memory
	require.NoError(t, err)
	require.Equal(t, part.Pointer(), back.Pointer())
	require.Equal(t, part.Layout(), back.Layout())
	back.Release()
	middle.kill()
	eventually(t, func() bool { return maker.Stats().Leases == 1 }, "leases of a killed process stay")
	require.False(t, opened.ReadOnly())
	require.NoError(t, opened.Fill(float32(-1)))
	require.Equal(t, []float32{0, -1, 2, -1, 4, 5, -1, 7, -1, 9, 10, -1, 12, -1, 14, 15, -1, 17, -1, 19}, values(t, x))
	again := testenv.Must(last.Open(ctx, second))(t)
	require.Equal(t, part.Layout(), again.Layout())
	again.Release()
	opened.Release()
}

// TestOnlyHoldersPassOn checks that a process gets a handle only for memory and access rights that
// its lease covers.
func TestOnlyHoldersPassOn(t *testing.T) {
	pool, s := serving(t, share.Options{})
	x := counting(t, pool, 3)
	require.NoError(t, s.Publish(background(t), "a", x.AsReadOnly()))
	ask := func(t *testing.T, c interface {
		Write([]byte) (int, error)
		Read([]byte) (int, error)
		SetReadDeadline(time.Time) error
	}, frame []byte,
	) (kind byte, payload []byte) {
		require.NoError(t, testenv.ErrorOf(c.Write(frame)))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
		b := make([]byte, 1<<14)
		n := testenv.Must(c.Read(b))(t)
		for b = b[:n]; ; {
			size := 16 + binary.LittleEndian.Uint32(b[4:])
			if int(size) == len(b) {
				return b[0], b[16:]
			}
			b = b[size:]
		}
	}
	holder := rogue(t, s, true)
	kind, description := ask(t, holder, frameOf(7, 1, []byte("\x01a")))
	require.EqualValues(t, 8, kind)
	const serial, flags = 26 + 16, 26 + 24
	change := func(at int, to byte) []byte {
		d := append([]byte(nil), description...)
		d[at] = to
		return d
	}
	kind, handle := ask(t, holder, frameOf(15, 2, change(flags, 0))) // to write
	require.EqualValues(t, 16, kind)
	h := testenv.Must(share.ParseHandle(handle))(t)
	require.True(t, h.ReadOnly())
	require.True(t, s.Revoke(h))
	for name, d := range map[string][]byte{
		"another lease":   change(serial, description[serial]+1),
		"another segment": change(0, description[0]+1),
		"another offset":  change(26, description[26]+1),
		"a larger buffer": change(26+8, description[26+8]+1),
	} {
		kind, _ = ask(t, holder, frameOf(15, 3, d))
		require.EqualValues(t, 2, kind, name)
	}
	other := rogue(t, s, true)
	kind, _ = ask(t, other, frameOf(15, 1, description))
	require.EqualValues(t, 2, kind, "the lease belongs to another connection")
	require.Zero(t, s.Stats().Unopened)
	require.NoError(t, holder.Close())
	require.NoError(t, other.Close())
	eventually(t, func() bool { return s.Stats() == share.Stats{} }, "something stays")
}

// TestMemoryOutsideOfSegments checks that released arrays and arrays in memory that no other process can map are
// refused, and that copies of them can be shared.
func TestMemoryOutsideOfSegments(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	ctx := background(t)
	x := counting(t, memmgr.Host(), 3, 2)
	s := listen(t, share.Options{})
	p := dial(t, s, share.Options{})
	_, err := s.Export(ctx, x, share.ExportOptions{})
	testenv.Failed(t, err, share.ErrNotShared, "copy the array into memory of package segment")
	require.ErrorIs(t, s.Publish(ctx, "x", x), share.ErrNotShared)
	released := counting(t, pool, 1)
	released.Release()
	for _, a := range []*usmarray.Array{nil, released} {
		require.ErrorIs(t, testenv.ErrorOf(s.Export(ctx, a, share.ExportOptions{})), share.ErrNotShared)
	}

	check := func(a *usmarray.Array, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, x.Layout().String(), a.Layout().String())
		require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, values(t, a))
		a.Release()
	}
	shared := testenv.Held(x.Copy(pool))(t)
	check(p.Open(ctx, export(t, s, shared)))

	// A received array belongs to its maker, on which the lease depends. A copy of it can be published.
	require.NoError(t, s.Publish(ctx, "y", shared))
	received := testenv.Held(p.Attach(ctx, "y"))(t)
	other := listen(t, share.Options{})
	testenv.Failed(t, other.Publish(ctx, "y", received), share.ErrNotShared, "use Server.Export to get a handle from that process")
	require.NoError(t, other.Publish(ctx, "y", testenv.Held(received.Copy(pool))(t)))
	check(dial(t, other, share.Options{}).Attach(ctx, "y"))
}

// liar starts a proxy between a maker and the connections to the returned address. The proxy
// applies change to the handles that the maker creates on request.
func liar(t *testing.T, s *share.Server, change func(maker string, handle []byte) []byte) (address string) {
	t.Helper()
	address = abstractName()
	l := testenv.Must(net.Listen("unixpacket", address))(t)
	t.Cleanup(func() { _ = l.Close() })
	there := rogue(t, s, false)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		here, _ := c.(*net.UnixConn)
		go relay(here, there, func(frame []byte) []byte { return frame })
		relay(there, here, func(frame []byte) []byte {
			if frame[0] != 16 {
				return frame
			}
			return frameOf(16, binary.LittleEndian.Uint64(frame[8:]), change(address, frame[16:]))
		})
	}()
	return address
}

// relay forwards datagrams and their descriptors until either end is closed.
func relay(from, to *net.UnixConn, change func(frame []byte) []byte) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b, rights := make([]byte, 1<<16), make([]byte, 1<<10)
	for {
		n, m, _, _, err := from.ReadMsgUnix(b, rights)
		if err != nil || n == 0 {
			return
		}
		var out []byte
		for rest := b[:n]; len(rest) > 0; {
			size := 16 + binary.LittleEndian.Uint32(rest[4:])
			out = append(out, change(rest[:size])...)
			rest = rest[size:]
		}
		_, _, err = to.WriteMsgUnix(out, rights[:m], nil)
		if messages, bad := syscall.ParseSocketControlMessage(rights[:m]); bad == nil {
			for i := range messages {
				fds, _ := syscall.ParseUnixRights(&messages[i])
				for _, fd := range fds {
					_ = syscall.Close(fd)
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// TestMakerReturnsAnotherHandle checks that a connection is closed if the maker returns a handle
// that does not describe the requested array.
func TestMakerReturnsAnotherHandle(t *testing.T) {
	const head, flags = 8 + 16, 26 + 24
	pool, s := serving(t, share.Options{})
	require.NoError(t, s.Publish(background(t), "a", counting(t, pool, 6, 4).AsReadOnly()))
	next := listen(t, share.Options{})
	// named returns a change that names the proxy as the maker of the handle.
	named := func(change func(d []byte)) func(string, []byte) []byte {
		return func(maker string, h []byte) []byte {
			d := append([]byte(nil), h[head+1+int(h[head]):]...)
			change(d)
			return append(append(append(append([]byte(nil), h[:head]...), byte(len(maker))), maker...), d...)
		}
	}
	for name, c := range map[string]struct {
		change func(maker string, h []byte) []byte
		wrong  string // "" for none
	}{
		"nothing":        {named(func([]byte) {}), ""},
		"maker":          {func(_ string, h []byte) []byte { return h }, "maker"},
		"segment":        {named(func(d []byte) { d[0]++ }), "segment"},
		"offset":         {named(func(d []byte) { d[26] ^= 64 }), "part"},
		"size":           {named(func(d []byte) { d[26+8]-- }), "part"},
		"type":           {named(func(d []byte) { d[flags+1] = 0 }), "type"},
		"shape":          {named(func(d []byte) { d[flags+14]-- }), "layout"},
		"strides":        {named(func(d []byte) { d[flags+14+16]-- }), "layout"},
		"layout's start": {named(func(d []byte) { d[flags+6]++ }), "layout"},
		"padding":        {named(func(d []byte) { d[flags] |= 2 }), "layout"},
		"more rights":    {named(func(d []byte) { d[flags] &^= 1 }), "to write"},
	} {
		t.Run(name, func(t *testing.T) {
			address := liar(t, s, c.change)
			p := testenv.Must(share.Dial(background(t), address, share.Options{}))(t)
			a := testenv.Must(p.Attach(background(t), "a"))(t)
			h, err := next.Export(background(t), a, share.ExportOptions{})
			if c.wrong == "" {
				require.NoError(t, err)
				require.Equal(t, address, h.Maker())
			} else {
				testenv.Failed(t, err, share.ErrProtocol, c.wrong)
				<-p.Done()
				require.ErrorIs(t, p.Err(), share.ErrProtocol)
			}
			a.Release()
			require.NoError(t, p.Close())
			<-p.Done()
			eventually(t, func() bool { return s.Stats().Peers == 0 }, "the connection is still open")
		})
	}
}

// TestPassedOnByAnotherName checks that an array can be passed on if its maker's socket file was
// dialed by another path.
func TestPassedOnByAnotherName(t *testing.T) {
	directory := t.TempDir()
	require.NoError(t, os.Mkdir(directory+"/a", 0o700))
	require.NoError(t, os.Symlink("a", directory+"/b"))
	s := testenv.Must(share.Listen(background(t), "unix:"+directory+"/a/s", share.Options{}))(t)
	defer func() { require.NoError(t, s.Close()) }()
	publish(t, s, newPool(t, segment.PeersWrite), "a", 3)
	p := testenv.Must(share.Dial(background(t), "unix:"+directory+"/b/s", share.Options{}))(t)
	a := testenv.Must(p.Attach(background(t), "a"))(t)
	require.True(t, s.Revoke(testenv.Must(listen(t, share.Options{}).Export(background(t), a, share.ExportOptions{}))(t)))
	a.Release()
	hangUp(t, p)
}
