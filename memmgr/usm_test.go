//go:build cgo && linux

package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

// openSYCL opens a runtime with a device, or skips the test.
func openSYCL(t testing.TB) *syclobj.Runtime {
	t.Helper()
	rt := testenv.Opened(syclobj.Open())(t)
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
			usm := func(t testing.TB) memmgr.Resource { return testsycl.USM(t, rt.DefaultQueue(), kind) }
			memtest.Run(t, usm, memtest.Options{MaxAlign: 4096})
			memtest.Run(t, func(t testing.TB) memmgr.Resource { return newPool(t, usm(t)) }, memtest.Options{Largest: 20 << 20, MaxAlign: 4096})
		})
	}
}

func TestBufferOutlivesQueueAndRuntime(t *testing.T) {
	rt := openSYCL(t)
	q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
	r := memmgr.USM(q, syclobj.USMShared).(usmResource)
	b := testenv.Must(memmgr.New(r, memmgr.Request{Size: 1000, Queue: q}))(t)
	require.NoError(t, q.Close())
	require.NoError(t, r.Close())
	require.NoError(t, memmgr.CopyIn(b, 0, []int64{1, 2, 3}))
	require.NotNil(t, b.Queue())
	b.Release()
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(r, memmgr.Request{Size: 1})), memmgr.ErrClosed)
}

// A long copy runs during the last release: the memory must not be freed before the copy is done.
func TestReleaseWithWorkPending(t *testing.T) {
	rt := openSYCL(t)
	q := rt.DefaultQueue()
	r := testsycl.USM(t, q, syclobj.USMDevice).(usmResource)
	const size = 256 << 20
	src := mustNew(t, r, size)
	dst := mustNew(t, r, size)
	ev := testenv.Opened(q.Memcpy(dst.Data(), src.Data(), size))(t)
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
	b := mustNew(t, testsycl.USM(t, rt.DefaultQueue(), syclobj.USMShared), 64<<20)
	var events []*syclobj.Event
	for i := range 2 {
		q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.OutOfOrder))(t)
		ev := testenv.Opened(q.Memset(b.Data(), byte(i), 64<<20))(t)
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
	}
	b.Release()
}

// A long copy runs while its destination is released. A request for the same in-order queue gets the memory at
// once, another request only when the copy is done.
func TestQueueOrderedReuseOnTheDevice(t *testing.T) {
	rt := openSYCL(t)
	q := testenv.Opened(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
	other := testenv.Opened(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
	p := newPool(t, testsycl.USM(t, q, syclobj.USMDevice))
	const size = 128 << 20
	reusedAtOnce, keptApart, asynchronous := false, false, false
	for start, rounds := time.Now(), 0; rounds < 20 || asynchronous && !(keptApart && reusedAtOnce) && time.Since(start) < time.Minute; rounds++ {
		src := testenv.Must(memmgr.New(p, memmgr.Request{Size: size, Queue: q}))(t)
		dst := testenv.Must(memmgr.New(p, memmgr.Request{Size: size, Queue: q}))(t)
		ev := testenv.Opened(q.Memcpy(dst.Data(), src.Data(), size))(t)
		asynchronous = asynchronous || !ev.Done()
		require.NoError(t, dst.SetPending(q, ev))
		address := dst.Address()
		dst.Release()
		elsewhere := testenv.Must(memmgr.New(p, memmgr.Request{Size: size, Queue: other}))(t)
		if elsewhere.Address() == address {
			require.True(t, ev.Done(), "memory in flight went to another queue")
		} else {
			keptApart = true
		}
		same := testenv.Must(memmgr.New(p, memmgr.Request{Size: size, Queue: q}))(t)
		if same.Address() == address && same.Pending() {
			reusedAtOnce = true
		}
		require.NoError(t, ev.Wait(context.Background()))
		for _, b := range []memmgr.Buffer{src, elsewhere, same} {
			require.NoError(t, b.Wait())
			b.Release()
		}
	}
	if !asynchronous {
		t.Skipf("copies on %s are complete when their submission returns", q.Device())
	}
	require.True(t, keptApart, "no copy was long enough to see another queue wait")
	require.True(t, reusedAtOnce, "no copy was long enough to see its own queue reuse the memory")
}

func TestSYCLObjectsAreReleased(t *testing.T) {
	rt := testenv.Must(syclobj.Open())(t)
	if !rt.HasSYCL() {
		testenv.Missing(t, rt.SYCLError(), testenv.SYCL)
	}
	r := testenv.Must(memmgr.Default(rt.DefaultQueue(), syclobj.USMDevice))(t)
	b := mustNew(t, r, 1<<20)
	require.NoError(t, memmgr.CopyIn(b, 0, []float64{1, 2, 3}))
	out := make([]float64, 3)
	require.NoError(t, memmgr.CopyOut(b, 0, out))
	require.Equal(t, []float64{1, 2, 3}, out)
	b.Release()
	require.NoError(t, memmgr.CloseDefaults())
	require.NoError(t, rt.Close())
	require.Equal(t, syclobj.Live{}, syclobj.LiveObjects())
}
