//go:build linux

package share_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestAttach checks that a second process can open a published array, that each process sees the
// writes of the other, and that the memory returns to the pool only after the second process has
// released the array.
func TestAttach(t *testing.T) {
	pool, s := serving(t, share.Options{})
	a := publish(t, s, pool, "a", 2, 3)
	o := start(t, "attach", s.Address())
	o.expect("(2,3):(3,1) false [0 1 2 3 4 5]")
	require.Equal(t, 1, s.Stats().Leases)
	o.say("write")
	o.expect("done")
	require.Equal(t, []float32{1, 2, 3, 4, 5, 6}, testenv.Must(usmarray.ToSlice[float32](a))(t))

	require.NoError(t, s.Withdraw("a"))
	a.Release()
	require.EqualValues(t, 1, pool.Stats().Allocation.Current, "the block went back while another process holds it")
	o.say("release")
	o.expect("released")
	eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "the lease did not end")
	o.finish()
}

// TestViews checks that views with any strides and offset keep their layout, type and read-only
// flag when another connection opens them, and refer to the same memory.
func TestViews(t *testing.T) {
	_, s, a := sharing(t, share.Options{}, 4, 6)
	p := dial(t, s, share.Options{})
	for name, view := range map[string]func() (*usmarray.Array, error){
		"whole": func() (*usmarray.Array, error) { return a, nil },
		"rows":  func() (*usmarray.Array, error) { return a.Index(usmarray.IndexRange(1, 3)) },
		"backwards": func() (*usmarray.Array, error) {
			return a.Index(usmarray.IndexRange(3, 0).By(-2), usmarray.IndexRange(5, 0).By(-1))
		},
		"turned":    func() (*usmarray.Array, error) { return a.Transpose() },
		"scalar":    func() (*usmarray.Array, error) { return a.Index(usmarray.IndexAt(2), usmarray.IndexAt(5)) },
		"empty":     func() (*usmarray.Array, error) { return a.Index(usmarray.IndexRange(2, 2)) },
		"broadcast": func() (*usmarray.Array, error) { return a.Broadcast(2, 4, 6) },
		"read-only": func() (*usmarray.Array, error) { return a.AsReadOnly(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			v := testenv.Must(view())(t)
			h := testenv.Must(s.Export(background(t), v, share.ExportOptions{}))(t)
			h = testenv.Must(share.ParseHandle(h.Bytes()))(t)
			require.Equal(t, v.ReadOnly(), h.ReadOnly())
			got := testenv.Held(p.Open(background(t), h))(t)
			require.Equal(t, v.Layout(), got.Layout())
			require.Equal(t, v.Layout(), h.Layout())
			require.Equal(t, v.ReadOnly(), got.ReadOnly())
			require.Equal(t, v.DataType(), got.DataType())
			want := testenv.Must(usmarray.ToSlice[float32](v))(t)
			require.Equal(t, want, testenv.Must(usmarray.ToSlice[float32](got))(t))
			require.NotEqual(t, v.Buffer().Address(), got.Buffer().Address(), "not a second mapping")
			if !v.ReadOnly() && v.NDim() == 2 && v.Size() > 0 {
				require.NoError(t, got.SetAt(float32(-1), 0, 0))
				require.Equal(t, float32(-1), testenv.Must(v.At(0, 0))(t))
				require.NoError(t, got.SetAt(want[0], 0, 0))
			}
			if v.ReadOnly() {
				require.ErrorIs(t, got.SetAt(float32(1), make([]int, v.NDim())...), usmarray.ErrReadOnly)
			}
		})
	}
}

// TestPeersRead checks that memory with the audience PeersRead is opened read-only, and that a
// process that writes to it regardless of the flag faults without an effect on other processes.
func TestPeersRead(t *testing.T) {
	pool := newPool(t, segment.PeersRead)
	s := listen(t, share.Options{})
	a := publish(t, s, pool, "a", 3)
	o := start(t, "attach", s.Address())
	o.expect("(3,):(1,) true [0 1 2]")
	require.NoError(t, a.SetAt(float32(7), 0), "the maker can still write")
	w := start(t, "write", s.Address())
	w.expect("fault: true")
	w.kill()
	eventually(t, func() bool { return s.Stats().Leases == 1 }, "the offender's lease stays")
	require.Equal(t, float32(7), testenv.Must(a.At(0))(t))
	o.say("go on")
	o.expect("done")
	o.say("release")
	o.expect("released")
	o.finish()
}

// TestExportersDeath checks that opened arrays stay valid after the process that exported them was
// killed, and that no further handle of it can be opened.
func TestExportersDeath(t *testing.T) {
	before := descriptors(t)
	o := start(t, "serve", "")
	address := o.line()
	p := testenv.Must(share.Dial(background(t), address, share.Options{}))(t)
	a := testenv.Must(p.Attach(background(t), "a"))(t)
	h := from(t, o)
	require.Equal(t, address, h.Maker())
	view := testenv.Must(p.Open(background(t), h))(t)
	late := from(t, o)

	o.kill()
	<-p.Done()
	require.ErrorIs(t, p.Err(), share.ErrDied)
	for _, x := range []*usmarray.Array{a, view} {
		require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, testenv.Must(usmarray.ToSlice[float32](x))(t))
		require.NoError(t, x.SetAt(float32(9), 0, 0))
		require.NoError(t, x.SetAt(float32(0), 0, 0))
	}
	require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), late)), share.ErrDied)
	require.ErrorIs(t, testenv.ErrorOf(share.Dial(background(t), address, share.Options{})), share.ErrAddress)
	require.Equal(t, 1, p.Stats().Mapped)
	a.Release()
	view.Release()
	nothingMapped(t)
	require.Zero(t, p.Stats().Mapped)
	eventually(t, func() bool { return descriptors(t) <= before }, "descriptors stay")
}

// TestForkedChildKeepsSocket checks that the death of a process ends its leases although a child
// process still holds its socket.
func TestForkedChildKeepsSocket(t *testing.T) {
	pool, s := serving(t, share.Options{})
	a := publish(t, s, pool, "a", 1000)
	o := start(t, "forker", s.Address())
	child := testenv.Must(strconv.Atoi(o.line()))(t)
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	require.NoError(t, s.Withdraw("a"))
	a.Release()
	require.EqualValues(t, 1, pool.Stats().Allocation.Current)
	o.kill()
	eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "the dead process's lease stays")
	require.NoError(t, syscall.Kill(child, 0), "the child process has ended")
	maps := testenv.Must(os.ReadFile(fmt.Sprintf("/proc/%d/maps", child)))(t)
	require.NotContains(t, string(maps), "memfd:usmbridge")
}

// TestHandleValidity checks that a handle can be opened at most once, unaltered, before it is
// revoked, and only by the process that it was made for.
func TestHandleValidity(t *testing.T) {
	pool, s := serving(t, share.Options{})
	p, q := dial(t, s, share.Options{}), dial(t, s, share.Options{})
	a := counting(t, pool, 3)
	t.Run("Replayed", func(t *testing.T) {
		h := export(t, s, a)
		b := testenv.Must(p.Open(background(t), h))(t)
		stale(t, p, h)
		stale(t, q, h)
		b.Release()
		eventually(t, func() bool { return s.Stats().Leases == 0 }, "the lease stays")
		stale(t, p, h)
	})
	t.Run("Raced", func(t *testing.T) {
		for range 50 {
			h := export(t, s, a)
			var opened atomic.Int32
			testenv.Together(t, 4, func(i int) error {
				b, err := []*share.Peer{p, q}[i%2].Open(context.Background(), h)
				switch {
				case err == nil:
					b.Release()
					opened.Add(1)
				case !errors.Is(err, share.ErrStale):
					return err
				}
				return nil
			})
			require.EqualValues(t, 1, opened.Load())
		}
	})
	t.Run("Revoked", func(t *testing.T) {
		h := export(t, s, a)
		require.True(t, s.Revoke(h))
		require.False(t, s.Revoke(h))
		stale(t, p, h)
	})
	t.Run("Altered", func(t *testing.T) {
		h := export(t, s, a)
		b := h.Bytes()
		for i := range b {
			c := append([]byte(nil), b...)
			c[i] ^= 1 << rand.IntN(8)
			forged, err := share.ParseHandle(c)
			if err != nil {
				require.ErrorIs(t, err, share.ErrHandle)
				continue
			}
			stale(t, p, forged)
		}
		require.True(t, s.Revoke(h), "no alteration opened it")
	})
	t.Run("Truncated", func(t *testing.T) {
		h := export(t, s, a)
		defer s.Revoke(h)
		b := h.Bytes()
		for i := range b {
			require.ErrorIs(t, testenv.ErrorOf(share.ParseHandle(b[:i])), share.ErrHandle)
		}
		require.ErrorIs(t, testenv.ErrorOf(share.ParseHandle(append(b, 0))), share.ErrHandle)
		require.ErrorIs(t, testenv.ErrorOf(share.ParseHandle(make([]byte, share.MaxHandle+1))), share.ErrHandle)
	})
	t.Run("ForOne", func(t *testing.T) {
		var to *share.Peer
		for _, x := range s.Peers() {
			if x.Credentials().PID == os.Getpid() {
				to = x
			}
		}
		h := testenv.Must(s.Export(background(t), a, share.ExportOptions{To: to}))(t)
		opened := 0
		for _, peer := range []*share.Peer{p, q} {
			if b, err := peer.Open(background(t), h); err == nil {
				b.Release()
				opened++
			} else {
				require.ErrorIs(t, err, share.ErrStale)
			}
		}
		require.Equal(t, 1, opened)
		require.ErrorIs(t, testenv.ErrorOf(s.Open(background(t), h)), share.ErrStale)
		require.ErrorIs(t, testenv.ErrorOf(s.Export(background(t), a, share.ExportOptions{To: p})), share.ErrRefused, "the wrong end of the connection")
	})
	t.Run("Own", func(t *testing.T) {
		h := export(t, s, a)
		b := testenv.Must(s.Open(background(t), h))(t)
		require.Equal(t, a.Pointer(), b.Pointer())
		b.Release()
		require.ErrorIs(t, testenv.ErrorOf(s.Open(background(t), h)), share.ErrStale)
	})
	t.Run("Zero", func(t *testing.T) {
		require.ErrorIs(t, testenv.ErrorOf(s.Open(background(t), share.Handle{})), share.ErrHandle)
		require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), share.Handle{})), share.ErrHandle)
	})
	t.Run("Secret", func(t *testing.T) {
		h := export(t, s, a)
		defer s.Revoke(h)
		secret := string(h.Bytes()[8:24])
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			text := fmt.Sprintf(format, h)
			require.NotContains(t, text, secret)
			require.NotContains(t, text, hex.EncodeToString([]byte(secret)))
		}
	})
}

// TestUnopenedHandleExpires checks that a handle expires after Options.Unopened and then releases
// the memory.
func TestUnopenedHandleExpires(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	const unopened = 200 * time.Millisecond
	s := listen(t, share.Options{Unopened: unopened})
	p := dial(t, s, share.Options{})
	a := counting(t, pool, 3)
	made := time.Now()
	h := export(t, s, a)
	a.Release()
	if held := pool.Stats().Allocation.Current; time.Since(made) < unopened { // otherwise the handle may have expired already
		require.EqualValues(t, 1, held)
	}
	eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "the unopened lease stays")
	require.ErrorIs(t, testenv.ErrorOf(p.Open(background(t), h)), share.ErrStale)
}

// TestServerOpens checks that a server connects to the maker of a handle and reuses that connection
// for further handles.
func TestServerOpens(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	maker, opener := listen(t, share.Options{}), listen(t, share.Options{})
	a := counting(t, pool, 5)
	for range 3 {
		b := handOver(t, maker, opener, a)
		require.Equal(t, float32(4), testenv.Must(b.At(4))(t))
		b.Release()
	}
	require.Len(t, maker.Peers(), 1)
	closed := testenv.Must(share.Listen(background(t), "", share.Options{}))(t)
	h := export(t, closed, a)
	require.NoError(t, closed.Close())
	require.ErrorIs(t, testenv.ErrorOf(opener.Open(background(t), h)), share.ErrAddress)
}

func TestNames(t *testing.T) {
	pool, s := serving(t, share.Options{MaxNames: 300})
	p := dial(t, s, share.Options{})
	require.Empty(t, testenv.Must(p.Names(background(t)))(t))
	a := counting(t, pool, 1)
	var want []string
	for i := range 300 {
		name := fmt.Sprintf("%03d%s", i, strings.Repeat("x", i%250))
		want = append(want, name)
		require.NoError(t, s.Publish(background(t), name, a))
	}
	require.ErrorIs(t, s.Publish(background(t), "more", a), share.ErrLimit)
	require.Equal(t, want, testenv.Must(p.Names(background(t)))(t))
	require.ErrorIs(t, s.Publish(background(t), "", a), share.ErrName)
	require.ErrorIs(t, s.Publish(background(t), strings.Repeat("x", 256), a), share.ErrName)
	require.ErrorIs(t, s.Publish(background(t), want[7], a), share.ErrName)
	require.NoError(t, s.Withdraw(want[7]))
	require.ErrorIs(t, s.Withdraw(want[7]), share.ErrName)
	require.ErrorIs(t, testenv.ErrorOf(p.Attach(background(t), want[7])), share.ErrName)
	require.ErrorIs(t, testenv.ErrorOf(p.Attach(background(t), strings.Repeat("x", 256))), share.ErrName)
}

// TestAdmission checks that a client whose process Admit rejects receives the reason, and that a
// client can reject the process of the server.
func TestAdmission(t *testing.T) {
	no := errors.New("not today")
	s := listen(t, share.Options{Admit: func(c share.Credentials) error {
		if c.PID != os.Getpid() || int(c.UID) != os.Geteuid() {
			t.Errorf("%v is not this process", c)
		}
		return no
	}})
	testenv.Failed(t, testenv.ErrorOf(share.Dial(background(t), s.Address(), share.Options{})), share.ErrRefused, no.Error())
	eventually(t, func() bool { return s.Stats() == share.Stats{} }, "the server keeps state of a rejected connection")

	open := listen(t, share.Options{})
	_, err := share.Dial(background(t), open.Address(), share.Options{Admit: func(share.Credentials) error { return no }})
	require.ErrorIs(t, err, share.ErrRefused)
	require.ErrorIs(t, err, no)
}

// TestLimits checks that each limit rejects only the connection that reached it.
func TestLimits(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	ctx := background(t)
	t.Run("Leases", func(t *testing.T) {
		s := listen(t, share.Options{MaxLeases: 2})
		publish(t, s, pool, "a", 1)
		p, q := dial(t, s, share.Options{}), dial(t, s, share.Options{})
		for range 2 {
			testenv.Held(p.Attach(ctx, "a"))(t)
		}
		require.ErrorIs(t, testenv.ErrorOf(p.Attach(ctx, "a")), share.ErrLimit)
		testenv.Must(q.Attach(ctx, "a"))(t).Release()
	})
	t.Run("LeasesHere", func(t *testing.T) {
		s := listen(t, share.Options{})
		publish(t, s, pool, "a", 1)
		p := dial(t, s, share.Options{MaxLeases: 1})
		a := testenv.Must(p.Attach(ctx, "a"))(t)
		require.ErrorIs(t, testenv.ErrorOf(p.Attach(ctx, "a")), share.ErrLimit)
		a.Release()
		a = testenv.Must(p.Attach(ctx, "a"))(t)
		a.Release()
	})
	t.Run("Unopened", func(t *testing.T) {
		s := listen(t, share.Options{MaxUnopened: 2})
		a := counting(t, pool, 1)
		for range 2 {
			require.NoError(t, testenv.ErrorOf(s.Export(ctx, a, share.ExportOptions{})))
		}
		require.ErrorIs(t, testenv.ErrorOf(s.Export(ctx, a, share.ExportOptions{})), share.ErrLimit)
	})
	for name, o := range map[string][2]share.Options{
		"Segments":     {{MaxSegments: 2}, {}},
		"SegmentsHere": {{}, {MaxSegments: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, o[0])
			p := dial(t, s, o[1])
			r, err := segment.NewHost(segment.PeersWrite) // each array in a segment of its own
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			var open []*usmarray.Array
			for i := range 3 {
				h := testenv.Must(s.Export(ctx, publish(t, s, r, fmt.Sprint(i), 8), share.ExportOptions{}))(t)
				a, err := p.Open(ctx, h)
				if i == 2 {
					require.ErrorIs(t, err, share.ErrLimit)
					break
				}
				require.NoError(t, err)
				open = append(open, a)
			}
			for _, a := range open {
				a.Release()
			}
			require.NotZero(t, p.Trim())
			eventually(t, func() bool { return p.Stats().Mapped == 0 }, "still mapped after Trim")
			for _, name := range []string{"2", "1"} {
				a, err := p.Attach(ctx, name)
				require.NoError(t, err, "Trim freed no room")
				a.Release()
			}
		})
	}
	t.Run("Peers", func(t *testing.T) {
		s := listen(t, share.Options{MaxPeers: 1})
		dial(t, s, share.Options{})
		require.ErrorIs(t, testenv.ErrorOf(share.Dial(ctx, s.Address(), share.Options{})), share.ErrLimit)
	})
}

// TestClose checks that Close rejects new operations but keeps open arrays valid.
func TestClose(t *testing.T) {
	pool, s := serving(t, share.Options{})
	ctx := background(t)
	publish(t, s, pool, "a", 4)
	p := dial(t, s, share.Options{})
	a := testenv.Must(p.Attach(ctx, "a"))(t)
	require.True(t, s.Revoke(export(t, s, a)), "the maker exports an array that was opened from it")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, testenv.ErrorOf(p.Attach(ctx, "a")), share.ErrName)
	require.ErrorIs(t, testenv.ErrorOf(share.Dial(ctx, s.Address(), share.Options{})), share.ErrAddress)
	require.Equal(t, 1, s.Stats().Leases)
	require.Equal(t, float32(3), testenv.Must(a.At(3))(t))
	require.NoError(t, p.Close())
	require.ErrorIs(t, testenv.ErrorOf(p.Attach(ctx, "a")), share.ErrClosed)
	select {
	case <-p.Done():
		t.Fatal("the connection is needed for the array that is open")
	default:
	}
	a.Release()
	<-p.Done()
	require.ErrorIs(t, p.Err(), share.ErrClosed)
	eventually(t, func() bool { return s.Stats() == share.Stats{} }, "something stays")
}

// TestIdleMemory checks that mapped memory of another process is unmapped after Options.Idle or
// when its maker frees it, and that it is mapped again on the next use.
func TestIdleMemory(t *testing.T) {
	ctx := background(t)
	pool, s := serving(t, share.Options{Idle: 20 * time.Millisecond})
	publish(t, s, pool, "a", 4)
	p := dial(t, s, share.Options{Idle: 20 * time.Millisecond})
	for range 3 {
		a := testenv.Must(p.Attach(ctx, "a"))(t)
		require.Equal(t, 1, p.Stats().Mapped)
		require.NoError(t, a.SetAt(float32(1), 0))
		a.Release()
		eventually(t, func() bool { return p.Stats().Mapped == 0 }, "idle memory stays mapped")
	}
	patient := dial(t, s, share.Options{Idle: time.Hour})
	r := testenv.Must(segment.NewHost(segment.PeersWrite))(t)
	b := publish(t, s, r, "b", 4)
	testenv.Must(patient.Attach(ctx, "b"))(t).Release()
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "the lease stays")
	require.Equal(t, 1, patient.Stats().Mapped)
	require.NoError(t, s.Withdraw("b"))
	b.Release()
	eventually(t, func() bool { _, bytes := r.InUse(); return bytes == 0 }, "the memory is in use")
	eventually(t, func() bool { return patient.Stats().Mapped == 0 }, "memory that its maker freed stays mapped")
	require.NoError(t, r.Close())
}

// TestContextCancelsCalls checks that calls return when their context is canceled and leave no
// lease.
func TestContextCancelsCalls(t *testing.T) {
	pool, s := serving(t, share.Options{})
	publish(t, s, pool, "a", 1)
	p := dial(t, s, share.Options{})
	reason := errors.New("the client left")
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for range 200 {
		a, err := p.Attach(ended, "a")
		if err == nil { // the reply arrived before the call noticed the canceled context
			a.Release()
		} else {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, reason)
		}
	}
	err := testenv.ErrorOf(share.Dial(ended, s.Address(), share.Options{}))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	eventually(t, func() bool { return s.Stats().Leases == 0 }, "the lease of a canceled call stays")
	testenv.Must(p.Attach(background(t), "a"))(t).Release()
}

// TestTrimDuringAttach checks that a segment can be unmapped while the other process answers with arrays in it.
// The answer to the request to forget a segment must precede the segment's next descriptor.
func TestTrimDuringAttach(t *testing.T) {
	pool, s := serving(t, share.Options{})
	p := dial(t, s, share.Options{})
	publish(t, s, pool, "a", 3)
	const n, callers = 20000, 2
	testenv.Together(t, callers, func(int) error {
		for range n / callers {
			a, err := p.Attach(background(t), "a")
			if err != nil {
				return err
			}
			a.Release()
			p.Trim()
		}
		return nil
	})
}
