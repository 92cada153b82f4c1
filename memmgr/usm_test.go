//go:build cgo && linux

package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

// openSYCL opens a runtime with a device, or skips the test.
func openSYCL(t testing.TB) *syclobj.Runtime {
	t.Helper()
	rt, err := syclobj.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	if !rt.HasSYCL() {
		testenv.Missing(t, rt.SYCLError(), testenv.SYCL)
	}
	return rt
}

var kinds = []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}

func TestUSMResource(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rt := openSYCL(t)
			memtest.Run(t, func(t testing.TB) memmgr.Resource {
				r := memmgr.USM(rt.DefaultQueue(), kind)
				t.Cleanup(func() { require.NoError(t, r.(usmResource).Close()) })
				return r
			}, memtest.Options{MaxAlign: 4096})
		})
	}
}

func TestBufferOutlivesQueueAndRuntime(t *testing.T) {
	rt := openSYCL(t)
	q, err := rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder)
	require.NoError(t, err)
	r := memmgr.USM(q, syclobj.USMShared).(usmResource)
	b, err := memmgr.New(r, memmgr.Request{Size: 1000, Queue: q})
	require.NoError(t, err)
	require.NoError(t, q.Close())
	require.NoError(t, r.Close())
	require.NoError(t, memmgr.CopyIn(b, 0, []int64{1, 2, 3}))
	require.NotNil(t, b.Queue())
	b.Release()
	_, err = memmgr.New(r, memmgr.Request{Size: 1})
	require.ErrorIs(t, err, memmgr.ErrClosed)
}

// A long copy runs during the last release: the memory must not be freed before the copy is done.
func TestReleaseWithWorkPending(t *testing.T) {
	rt := openSYCL(t)
	q := rt.DefaultQueue()
	r := memmgr.USM(q, syclobj.USMDevice).(usmResource)
	defer func() { require.NoError(t, r.Close()) }()
	const size = 256 << 20
	src, err := memmgr.New(r, memmgr.Request{Size: size})
	require.NoError(t, err)
	dst, err := memmgr.New(r, memmgr.Request{Size: size})
	require.NoError(t, err)
	ev, err := q.Memcpy(dst.Data(), src.Data(), size)
	require.NoError(t, err)
	defer ev.Close()
	require.NoError(t, src.SetPending(q, ev))
	require.NoError(t, dst.SetPending(q, ev))
	start := time.Now()
	src.Release()
	dst.Release()
	t.Logf("two releases with the copy under way: %v", time.Since(start))
	memmgr.Flush()
	require.True(t, ev.Done(), "freed before the work was done")
	blocks, _ := r.InUse()
	require.Zero(t, blocks)
}

func TestPendingEventsJoin(t *testing.T) {
	rt := openSYCL(t)
	r := memmgr.USM(rt.DefaultQueue(), syclobj.USMShared).(usmResource)
	defer func() { require.NoError(t, r.Close()) }()
	b, err := memmgr.New(r, memmgr.Request{Size: 64 << 20})
	require.NoError(t, err)
	var events []*syclobj.Event
	for i := range 2 {
		q, err := rt.NewQueue(nil, rt.DefaultDevice(), syclobj.OutOfOrder)
		require.NoError(t, err)
		ev, err := q.Memset(b.Data(), byte(i), 64<<20)
		require.NoError(t, err)
		require.NoError(t, b.SetPending(q, ev))
		events = append(events, ev)
		require.NoError(t, q.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if b.Pending() {
		require.ErrorIs(t, b.WaitContext(ctx), context.Canceled)
	}
	require.NoError(t, b.WaitContext(context.Background()))
	require.False(t, b.Pending())
	for _, ev := range events {
		require.True(t, ev.Done())
		require.NoError(t, ev.Close())
	}
	b.Release()
}

func TestDefaultIsShared(t *testing.T) {
	rt := openSYCL(t)
	defer func() { require.NoError(t, memmgr.CloseDefaults()) }()
	a, err := memmgr.Default(rt.DefaultQueue(), syclobj.USMShared)
	require.NoError(t, err)
	b, err := memmgr.Default(rt.DefaultQueue(), syclobj.USMShared)
	require.NoError(t, err)
	require.Same(t, a, b)
	c, err := memmgr.Default(rt.DefaultQueue(), syclobj.USMDevice)
	require.NoError(t, err)
	require.NotSame(t, a, c)
	h, err := memmgr.Default(nil, syclobj.USMUnknown)
	require.NoError(t, err)
	require.True(t, h.Place().IsHost())
}

func TestPoolOnUSM(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rt := openSYCL(t)
			memtest.Run(t, func(t testing.TB) memmgr.Resource {
				upstream := memmgr.USM(rt.DefaultQueue(), kind).(usmResource)
				p := memmgr.NewPool(upstream)
				t.Cleanup(func() {
					require.NoError(t, p.Close())
					require.NoError(t, upstream.Close())
				})
				return p
			}, memtest.Options{Largest: 20 << 20, MaxAlign: 4096})
		})
	}
}

// A long copy runs while its destination is released. A request for the same in-order queue gets the memory at
// once, another request only when the copy is done.
func TestQueueOrderedReuseOnTheDevice(t *testing.T) {
	rt := openSYCL(t)
	q, err := rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder)
	require.NoError(t, err)
	defer q.Close()
	other, err := rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder)
	require.NoError(t, err)
	defer other.Close()
	upstream := memmgr.USM(q, syclobj.USMDevice).(usmResource)
	p := memmgr.NewPool(upstream)
	const size = 128 << 20
	reusedAtOnce, keptApart, asynchronous := false, false, false
	for start, rounds := time.Now(), 0; rounds < 20 || asynchronous && !(keptApart && reusedAtOnce) && time.Since(start) < time.Minute; rounds++ {
		src, err := memmgr.New(p, memmgr.Request{Size: size, Queue: q})
		require.NoError(t, err)
		dst, err := memmgr.New(p, memmgr.Request{Size: size, Queue: q})
		require.NoError(t, err)
		ev, err := q.Memcpy(dst.Data(), src.Data(), size)
		require.NoError(t, err)
		asynchronous = asynchronous || !ev.Done()
		require.NoError(t, dst.SetPending(q, ev))
		address := dst.Address()
		dst.Release()
		elsewhere, err := memmgr.New(p, memmgr.Request{Size: size, Queue: other})
		require.NoError(t, err)
		if elsewhere.Address() == address {
			require.True(t, ev.Done(), "memory in flight went to another queue")
		} else {
			keptApart = true
		}
		same, err := memmgr.New(p, memmgr.Request{Size: size, Queue: q})
		require.NoError(t, err)
		if same.Address() == address && same.Pending() {
			reusedAtOnce = true
		}
		require.NoError(t, ev.Wait(context.Background()))
		for _, b := range []memmgr.Buffer{src, elsewhere, same} {
			require.NoError(t, b.Wait())
			b.Release()
		}
		require.NoError(t, ev.Close())
	}
	require.NoError(t, p.Close())
	require.NoError(t, upstream.Close())
	if !asynchronous {
		t.Skipf("copies on %s are complete when their submission returns", q.Device())
	}
	require.True(t, keptApart, "no copy was long enough to see another queue wait")
	require.True(t, reusedAtOnce, "no copy was long enough to see its own queue reuse the memory")
}

func TestExportedUSMReturnsThroughThePool(t *testing.T) {
	rt := openSYCL(t)
	upstream := memmgr.USM(rt.DefaultQueue(), syclobj.USMShared).(usmResource)
	p := memmgr.NewPool(upstream)
	for range 100 {
		b, err := memmgr.New(p, memmgr.Request{Size: 10000})
		require.NoError(t, err)
		b.SetExported()
		b.Release()
	}
	require.NoError(t, p.Close())
	require.NoError(t, upstream.Close())
	blocks, bytes := upstream.InUse()
	require.Zero(t, blocks)
	require.Zero(t, bytes)
}

func TestSYCLObjectsAreReleased(t *testing.T) {
	rt, err := syclobj.Open()
	require.NoError(t, err)
	if !rt.HasSYCL() {
		testenv.Missing(t, rt.SYCLError(), testenv.SYCL)
	}
	r, err := memmgr.Default(rt.DefaultQueue(), syclobj.USMDevice)
	require.NoError(t, err)
	b, err := memmgr.New(r, memmgr.Request{Size: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, memmgr.CopyIn(b, 0, []float64{1, 2, 3}))
	out := make([]float64, 3)
	require.NoError(t, memmgr.CopyOut(b, 0, out))
	require.Equal(t, []float64{1, 2, 3}, out)
	b.Release()
	require.NoError(t, memmgr.CloseDefaults())
	require.NoError(t, rt.Close())
	require.Equal(t, syclobj.Live{}, syclobj.LiveObjects())
}
