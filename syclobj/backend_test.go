package syclobj_test

import (
	"bytes"
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestBackends tests the common behaviour of the host backend, the real SYCL and the fake machine.
func TestBackends(t *testing.T) {
	t.Run("host", func(t *testing.T) { conform(t, openHost(t).HostQueue(), syclobj.USMShared) })
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		t.Run("sycl/"+kind.String(), func(t *testing.T) { conform(t, openReal(t).DefaultQueue(), kind) })
		t.Run("fake/"+kind.String(), func(t *testing.T) {
			sycltest.Child(t, sycltest.TwoGPUs, func(*sycltest.Fake) {
				conform(t, openReal(t).DefaultQueue(), kind)
			})
		})
	}
}

// conform uses all operations of a queue and its memory.
func conform(t *testing.T, q *syclobj.Queue, kind syclobj.USMKind) {
	const n = 4096
	ctx := context.Background()
	alloc := func(size, align uintptr) unsafe.Pointer {
		p := testenv.Must(q.Alloc(kind, size, align))(t)
		require.NotNil(t, p)
		t.Cleanup(func() { require.NoError(t, syclobj.Free(p)) })
		if align == 0 {
			align = syclobj.DefaultAlign
		}
		require.Zero(t, uintptr(p)%align, "aligned to %d", align)
		return p
	}
	a, b := alloc(n, 0), alloc(n, 4096)
	read := func(p unsafe.Pointer, n int) []byte {
		got := make([]byte, n)
		require.NoError(t, q.Read(got, p))
		return got
	}
	done := func(e *syclobj.Event, err error) *syclobj.Event {
		t.Helper()
		require.NoError(t, err)
		require.NoError(t, e.Wait(ctx))
		require.True(t, e.Done())
		require.NoError(t, e.Close())
		require.NoError(t, e.Close(), "closing again is allowed")
		return e
	}

	t.Run("write read", func(t *testing.T) {
		want := bytes.Repeat([]byte{1, 2, 3, 5, 8, 13, 21, 34}, n/8)
		require.NoError(t, q.Write(a, want))
		require.Equal(t, want, read(a, n))
	})
	t.Run("memset", func(t *testing.T) {
		done(q.Memset(a, 0xa5, n))
		require.Equal(t, bytes.Repeat([]byte{0xa5}, n), read(a, n))
	})
	t.Run("fill", func(t *testing.T) {
		for _, width := range []int{1, 2, 4, 8, 16} {
			pattern := []byte("0123456789abcdef")[:width]
			done(q.Fill(a, pattern, uintptr(n/width)))
			require.Equal(t, bytes.Repeat(pattern, n/width), read(a, n), "width %d", width)
		}
	})
	t.Run("memcpy after an event", func(t *testing.T) {
		set := testenv.Must(q.Memset(a, 7, n))(t)
		done(q.Memcpy(b, a, n, set, nil))
		require.NoError(t, set.Close())
		require.Equal(t, bytes.Repeat([]byte{7}, n), read(b, n))
	})
	t.Run("dependencies of all submissions", func(t *testing.T) {
		e := testenv.Must(q.Memset(a, 1, n))(t)
		done(q.Memset(a, 2, n, e))
		done(q.Fill(b, []byte{3}, n, e))
		done(q.Prefetch(a, n, e))
		done(q.Barrier(e))
		done(q.Barrier())
		require.NoError(t, e.Close())
		require.NoError(t, q.Wait(ctx))
		require.Equal(t, byte(2), read(a, 1)[0])
		require.Equal(t, byte(3), read(b, 1)[0])
	})
	t.Run("nothing to do", func(t *testing.T) {
		done(q.Memcpy(nil, nil, 0))
		done(q.Memset(nil, 0, 0))
		done(q.Fill(nil, []byte{0}, 0))
		require.NoError(t, q.Write(nil, nil))
		require.NoError(t, q.Read(nil, nil))
	})
	t.Run("size zero", func(t *testing.T) { alloc(0, 0) })
	t.Run("alignments", func(t *testing.T) {
		for align := uintptr(1); align <= 1<<16; align <<= 1 {
			alloc(100, align)
		}
	})
	t.Run("bad input", func(t *testing.T) { refuse(t, q, kind, a) })
	t.Run("place", func(t *testing.T) {
		p := testenv.Held(q.Place(kind))(t)
		require.Same(t, p, testenv.Held(q.Place(kind))(t))
		require.Same(t, p, syclobj.WrapPlace(p.Ref()))
		require.Equal(t, q.Device().FilterString(), p.FilterString())
		require.True(t, p.IsDefaultContext())
		require.True(t, testenv.Must(p.Queue())(t).Equal(q))
		require.True(t, testenv.Must(p.Device())(t).Equal(q.Device()))
		require.True(t, testenv.Must(p.Context())(t).Equal(q.Context()))
	})
}

// refuse checks that bad input is an error and does not reach the library.
func refuse(t *testing.T, q *syclobj.Queue, kind syclobj.USMKind, p unsafe.Pointer) {
	for _, align := range []uintptr{3, 24, ^uintptr(0)} {
		require.ErrorIs(t, testenv.ErrorOf(q.Alloc(kind, 1, align)), syclobj.ErrArgument)
	}
	require.ErrorIs(t, testenv.ErrorOf(q.Alloc(kind, ^uintptr(0), 0)), syclobj.ErrAllocation)
	require.ErrorIs(t, testenv.ErrorOf(q.Alloc(kind, 1<<60, 0)), syclobj.ErrAllocation)
	require.ErrorIs(t, syclobj.Free(nil), syclobj.ErrNotAllocated)
	require.ErrorIs(t, syclobj.Free(unsafe.Add(p, 64)), syclobj.ErrNotAllocated, "the middle of an allocation")

	once := testenv.Must(q.Alloc(kind, 1, 0))(t)
	require.NoError(t, syclobj.Free(once))
	require.ErrorIs(t, syclobj.Free(once), syclobj.ErrNotAllocated, "twice")

	require.ErrorIs(t, testenv.ErrorOf(q.Memcpy(p, nil, 1)), syclobj.ErrNil)
	require.ErrorIs(t, testenv.ErrorOf(q.Memcpy(nil, p, 1)), syclobj.ErrNil)
	require.ErrorIs(t, testenv.ErrorOf(q.Memset(nil, 0, 1)), syclobj.ErrNil)
	require.ErrorIs(t, testenv.ErrorOf(q.Memset(p, 0, ^uintptr(0))), syclobj.ErrArgument)
	require.ErrorIs(t, testenv.ErrorOf(q.Prefetch(nil, 1)), syclobj.ErrNil)
	for _, width := range []int{0, 3, 5, 17, 32} {
		require.ErrorIs(t, testenv.ErrorOf(q.Fill(p, make([]byte, width), 1)), syclobj.ErrArgument, "width %d", width)
	}
	require.ErrorIs(t, testenv.ErrorOf(q.Fill(unsafe.Add(p, 1), make([]byte, 4), 1)), syclobj.ErrArgument, "unaligned")
	require.ErrorIs(t, testenv.ErrorOf(q.Fill(p, make([]byte, 16), ^uintptr(0)/8)), syclobj.ErrArgument, "overflow")
}

func TestHostBackend(t *testing.T) {
	rt := openHost(t)
	require.False(t, rt.HasSYCL())
	require.Nil(t, rt.Library())
	require.ErrorIs(t, rt.SYCLError(), syclobj.ErrNoSYCL)
	require.Empty(t, rt.RootDevices())
	require.Equal(t, []*syclobj.Device{rt.HostQueue().Device()}, rt.Devices())
	require.Same(t, rt.HostQueue().Device(), rt.DefaultDevice())
	require.Same(t, rt.HostQueue(), rt.DefaultQueue())

	d := testenv.Must(rt.Device("host"))(t)
	require.Same(t, rt.HostQueue().Device(), d)
	require.Equal(t, "host", d.FilterString())
	require.Equal(t, "host", d.Platform().Info().Name)
	require.Equal(t, []*syclobj.Platform{d.Platform()}, rt.Platforms())
	require.Equal(t, syclobj.BackendHost, d.Info().Backend)
	require.True(t, d.Info().HasDouble)
	id := testenv.Must(d.DLPackID())(t)
	require.Zero(t, id)
	require.True(t, d.Supports(syclobj.USMDevice))
	require.Nil(t, d.Parent())
	require.Nil(t, d.Ref())
	require.ErrorIs(t, testenv.ErrorOf(d.SubDevices(syclobj.Partition{Units: 1})), syclobj.ErrArgument)

	require.ErrorIs(t, testenv.ErrorOf(rt.Device("opencl:cpu:0")), syclobj.ErrNoSYCL)
	require.ErrorIs(t, testenv.ErrorOf(rt.RootDevice(0)), syclobj.ErrNoSYCL)
	require.ErrorIs(t, testenv.ErrorOf(rt.NewContext(d)), syclobj.ErrNoSYCL)
	require.ErrorIs(t, testenv.ErrorOf(dlpackPlace(rt, 0, unsafe.Pointer(t), unsafe.Pointer(t))), syclobj.ErrNoSYCL)

	p := syclobj.HostPlace()
	require.Equal(t, syclobj.USMUnknown, p.Kind())
	require.True(t, p.HostReadable())
	require.Nil(t, p.Ref())
	typ, id, err := p.DLPackDevice()
	require.NoError(t, err)
	require.EqualValues(t, 1, typ)
	require.Zero(t, id)
	p.Retain().Release()

	q := testenv.Must(rt.NewQueue(nil, d, syclobj.OutOfOrder))(t)
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	require.Equal(t, d, q.Device())
}

func TestHostMemoryIsZero(t *testing.T) {
	q := openHost(t).HostQueue()
	p := testenv.Must(q.Alloc(syclobj.USMUnknown, 10000, 1<<16))(t)
	require.Equal(t, make([]byte, 10000), unsafe.Slice((*byte)(p), 10000))
	require.NoError(t, syclobj.Free(p))
}

func TestNilEventIsComplete(t *testing.T) {
	var e *syclobj.Event
	require.True(t, e.Done())
	require.NoError(t, e.Wait(context.Background()))
	require.NoError(t, e.Close())
	require.Nil(t, e.Ref())
	require.True(t, e.Copy().Done())
	require.ErrorIs(t, testenv.ErrorOf(e.Times()), syclobj.ErrArgument)
}
