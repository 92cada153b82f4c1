//go:build linux

package share_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

func init() { roles["relay"], roles["liar"] = roleRelay, roleLiar }

const forReading = "PeersRead"

// roleRelay opens the handle on each line of its input, keeps the array, and prints how many it keeps. For an empty
// line it prints a handle of the array that it opened last.
func roleRelay(string) error {
	ctx := context.Background()
	s := must(share.Listen(ctx, "", share.Options{}))
	var kept []*usmarray.Array
	for nextLine() {
		b := must(hex.DecodeString(stdin.Text()))
		if len(b) == 0 {
			h := must(s.Export(ctx, kept[len(kept)-1], share.ExportOptions{}))
			fmt.Printf("%x\n", h.Bytes())
			continue
		}
		h := must(share.ParseHandle(b))
		a := must(s.Open(ctx, h))
		kept = append(kept, a)
		fmt.Println(len(kept))
	}
	return nil
}

// roleLiar lends an array to the server at the address, in a segment whose ID is read from its input.
func roleLiar(address string) error {
	c := must(net.Dial("unixpacket", address))
	check(testenv.ErrorOf(c.Write(greetingFrame())))
	check(testenv.ErrorOf(c.Read(make([]byte, 100))))
	nextLine()
	id := must(hex.DecodeString(stdin.Text()))
	fmt.Println("ready")
	if err := lend(c.(*net.UnixConn), id); err != nil { //nolint:forcetypeassert // of that network
		return err
	}
	nextLine()
	return nil
}

// startMaker starts roleServe and skips its address.
func startMaker(t *testing.T, audience string) *other {
	t.Helper()
	o := start(t, "serve", audience)
	require.NotEmpty(t, o.line())
	return o
}

// from requests a handle from a process that runs roleServe or roleRelay.
func from(t *testing.T, o *other) share.Handle {
	t.Helper()
	o.say("")
	b := testenv.Must(hex.DecodeString(o.line()))(t)
	return testenv.Must(share.ParseHandle(b))(t)
}

// give makes a process that runs roleRelay open a handle.
func give(o *other, h share.Handle) {
	o.t.Helper()
	o.say(fmt.Sprintf("%x", h.Bytes()))
	require.NotContains(o.t, o.line(), "error")
}

// orphan opens an array at a server and then kills the process that made it.
func orphan(t *testing.T, s *share.Server, audience string) *usmarray.Array {
	t.Helper()
	maker := startMaker(t, audience)
	a := testenv.Held(s.Open(background(t), from(t, maker)))(t)
	maker.kill()
	return a
}

// isOpen reports whether a buffer in memory of another process is still open.
func isOpen(b memmgr.Buffer) bool {
	_, ok := share.AudienceOf(b)
	return ok
}

func values(t *testing.T, a *usmarray.Array) []float32 {
	t.Helper()
	return testenv.Must(usmarray.ToSlice[float32](a))(t)
}

// TestPassedOnAfterItsMakerEnded checks that a holder can export an array after the array's maker
// has ended. The recipients map the same pages and keep them after the holder has released the
// array and after one of the recipients was killed.
func TestPassedOnAfterItsMakerEnded(t *testing.T) {
	ctx := background(t)
	holder, last := listen(t, share.Options{}), listen(t, share.Options{})
	a := orphan(t, holder, "")
	part := testenv.Must(a.Index(usmarray.IndexRange(0, 2), usmarray.IndexRange(0, 3).By(2)))(t)
	h := export(t, holder, part)
	require.Equal(t, holder.Address(), h.Maker())
	require.Equal(t, part.Layout().String(), h.Layout().String())

	b := testenv.Must(last.Open(ctx, h))(t)
	require.ErrorIs(t, testenv.ErrorOf(last.Open(ctx, h)), share.ErrStale, "the handle was opened twice")
	require.NotEqual(t, part.Pointer(), b.Pointer(), "not a second mapping")
	require.Equal(t, []float32{0, 2, 3, 5}, values(t, b))
	require.NoError(t, b.Fill(float32(9)))
	require.Equal(t, []float32{9, 1, 9, 9, 4, 9}, values(t, a))
	audience, ok := share.AudienceOf(b.Buffer())
	require.True(t, ok)
	require.Equal(t, segment.PeersWrite, audience)

	middle := start(t, "relay", "")
	give(middle, export(t, holder, a))
	passed := from(t, middle)
	require.Equal(t, holder.Address(), passed.Maker(), "the handle does not name the holder as its maker")
	c := testenv.Must(last.Open(ctx, passed))(t)
	require.Equal(t, 3, holder.Stats().Leases)
	middle.kill()
	eventually(t, func() bool { return holder.Stats().Leases == 2 }, "the lease of a killed process stays")

	own := handOver(t, holder, holder, part)
	require.Equal(t, part.Pointer(), own.Pointer(), "the maker of a handle opens its own memory")
	own.Release()
	buffer := a.Buffer()
	a.Release()
	require.True(t, isOpen(buffer), "the leases do not keep the buffer open")
	require.Equal(t, []float32{9, 1, 9, 9, 4, 9}, values(t, c))
	b.Release()
	c.Release()
	eventually(t, func() bool { return !isOpen(buffer) }, "the last lease does not end")
	require.NoError(t, last.Close())
	nothingMapped(t)
}

// TestPassedOnAfterEachHolderEnded checks that a recipient can export an array again after the
// process that passed it on has ended as well.
func TestPassedOnAfterEachHolderEnded(t *testing.T) {
	last := listen(t, share.Options{})
	maker, first, second := startMaker(t, ""), start(t, "relay", ""), start(t, "relay", "")
	give(first, from(t, maker))
	maker.kill()
	give(second, from(t, first))
	first.kill()
	a := testenv.Held(last.Open(background(t), from(t, second)))(t)
	second.kill()
	require.NoError(t, a.Fill(float32(7)))
	b := handOver(t, last, last, a)
	require.Equal(t, []float32{7, 7, 7, 7, 7, 7}, values(t, b))
	b.Release()
}

// TestPassedOnReadOnlyAfterItsMakerEnded checks that the recipient cannot write an array that its
// holder cannot write. For a read-only view this is a convention; for memory with the audience
// PeersRead the kernel enforces it.
func TestPassedOnReadOnlyAfterItsMakerEnded(t *testing.T) {
	ctx := background(t)
	holder, last := listen(t, share.Options{}), listen(t, share.Options{})
	for audience, view := range map[string]func(*usmarray.Array) *usmarray.Array{
		"":         (*usmarray.Array).AsReadOnly,
		forReading: func(a *usmarray.Array) *usmarray.Array { return a },
	} {
		a := orphan(t, holder, audience)
		h := testenv.Must(holder.Export(ctx, view(a), share.ExportOptions{}))(t)
		require.True(t, h.ReadOnly())
		b := testenv.Must(last.Open(ctx, h))(t)
		require.True(t, b.ReadOnly())
		passed := testenv.Must(last.Export(ctx, b, share.ExportOptions{}))(t)
		require.True(t, passed.ReadOnly())
		require.True(t, holder.Revoke(passed))
		if audience == forReading { // Export has already found that the maker ended
			require.NoError(t, holder.Publish(ctx, "a", a))
			o := start(t, "write", holder.Address())
			o.expect("fault: true")
			o.kill()
			require.NoError(t, holder.Withdraw("a"))
		}
		require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, values(t, b))
		b.Release()
		a.Release()
	}
}

// TestHolderLendsAfterTheMakerEnded checks that a holder can publish an array whose maker
// has ended, and can restrict a handle of it to one process.
func TestHolderLendsAfterTheMakerEnded(t *testing.T) {
	ctx := background(t)
	peers := make(chan *share.Peer, 2)
	holder := listen(t, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	p := dial(t, holder, share.Options{})
	there := <-peers
	other := dial(t, holder, share.Options{})
	<-peers
	a := orphan(t, holder, "")
	eventually(t, func() bool { return holder.Stats().Peers == 2 }, "the maker's end is not noticed")
	require.NoError(t, holder.Publish(ctx, "a", a))
	attached := testenv.Must(p.Attach(ctx, "a"))(t)
	h := testenv.Must(holder.Export(ctx, a, share.ExportOptions{To: there, NoWait: true}))(t)
	require.ErrorIs(t, testenv.ErrorOf(other.Open(ctx, h)), share.ErrStale, "the handle is for another process")
	opened := testenv.Must(p.Open(ctx, h))(t)
	require.Equal(t, 1, p.Stats().Mapped, "more than one mapping")
	require.NoError(t, holder.Withdraw("a"))
	buffer := a.Buffer()
	a.Release()
	require.NoError(t, attached.Fill(float32(3)))
	for _, x := range []*usmarray.Array{attached, opened} {
		require.Equal(t, []float32{3, 3, 3, 3, 3, 3}, values(t, x))
		x.Release()
	}
	eventually(t, func() bool { return !isOpen(buffer) }, "the last lease does not end")
}

// TestPassedOnUnderAnotherID checks that a holder passes memory of an ended maker on under a new
// segment ID. The maker chose the original ID and could have copied the ID of a segment of the
// holder.
func TestPassedOnUnderAnotherID(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	ctx := background(t)
	peers := make(chan *share.Peer, 1)
	holder := listen(t, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	last := listen(t, share.Options{})
	own := counting(t, pool, 6)
	h := export(t, holder, own)
	liar := start(t, "liar", holder.Address())
	liar.say(fmt.Sprintf("%x", h.Bytes()[8+16+1+len(h.Maker()):][:16]))
	liar.expect("ready")
	p := <-peers
	a := testenv.Must(p.Attach(ctx, "a"))(t)
	liar.kill()
	<-p.Done()
	first := testenv.Must(last.Open(ctx, h))(t)
	second := testenv.Must(last.Open(ctx, export(t, holder, a)))(t)
	require.NoError(t, second.Fill(float32(7)))
	require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, values(t, first))
	require.Equal(t, []float32{7, 7, 7, 7, 7, 7}, values(t, a))
	require.Equal(t, 2, last.Stats().Mapped)
	for _, x := range []*usmarray.Array{first, second, a} {
		x.Release()
	}
}

// TestNotPassedOnWhileTheMakerLives checks that a holder cannot pass an array on if the connection
// to the maker is closed but the maker's process is alive. The maker may have ended the lease and
// reused the memory.
func TestNotPassedOnWhileTheMakerLives(t *testing.T) {
	ctx := background(t)
	peers := make(chan *share.Peer, 1)
	holder := listen(t, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	r := rogue(t, holder, true)
	p := <-peers
	lent := make(chan error, 1)
	go func() { lent <- lend(r, make([]byte, 16)) }()
	a := testenv.Must(p.Attach(ctx, "a"))(t)
	require.NoError(t, <-lent)
	require.NoError(t, r.Close())
	<-p.Done()
	_, err := holder.Export(ctx, a, share.ExportOptions{})
	require.ErrorIs(t, err, share.ErrClosed)
	require.NotErrorIs(t, err, share.ErrDied)
	require.ErrorIs(t, holder.Publish(ctx, "a", a), share.ErrNotShared)
	a.Release()
}

// lend answers the next request with an array of six elements in a segment with the given ID.
func lend(to *net.UnixConn, id []byte) error {
	request := make([]byte, 1<<14)
	if _, err := to.Read(request); err != nil {
		return err
	}
	r, err := segment.NewHost(segment.PeersWrite)
	if err != nil {
		return err
	}
	block, err := r.Allocate(memmgr.Request{Size: 24})
	if err != nil {
		return err
	}
	defer func() {
		r.Free(block)
		_ = r.Close()
	}()
	s, offset, _ := segment.Find(block.Address, 24)
	file, err := s.File()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	facts := binary.LittleEndian.AppendUint64(append([]byte(nil), id...), s.Size())
	facts = append(facts, 0, 0) // PeersWrite, memory of the host
	if _, _, err = to.WriteMsgUnix(frameOf(3, 0, facts), syscall.UnixRights(int(file.Fd())), nil); err != nil {
		return err
	}
	d := append([]byte(nil), facts...)
	for _, n := range []uint64{offset, 24, 1} { // the last is the lease
		d = binary.LittleEndian.AppendUint64(d, n)
	}
	d = append(d, 0, byte(usmarray.Float32.Code), usmarray.Float32.Bits, 1, 0, 1) // one lane, one dimension
	for _, n := range []uint64{0, 6, 1} {                                         // offset, extent, stride
		d = binary.LittleEndian.AppendUint64(d, n)
	}
	_, err = to.Write(frameOf(8, binary.LittleEndian.Uint64(request[8:]), d))
	return err
}
