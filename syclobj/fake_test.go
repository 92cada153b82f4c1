package syclobj_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// alloc allocates and frees at the end of the test.
func alloc(t *testing.T, q *syclobj.Queue, kind syclobj.USMKind, size uintptr) unsafe.Pointer {
	t.Helper()
	p := testenv.Must(q.Alloc(kind, size, 0))(t)
	t.Cleanup(func() { require.NoError(t, syclobj.Free(p)) })
	return p
}

func defaultQueue(t *testing.T, d *syclobj.Device) *syclobj.Queue {
	t.Helper()
	return testenv.Must(d.DefaultQueue())(t)
}

func TestMachineOfTwoGPUs(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		devices := rt.RootDevices()
		require.Len(t, devices, 3)
		for i, want := range []string{"level_zero:gpu:0", "level_zero:gpu:1", "opencl:cpu:0"} {
			d := devices[i]
			require.Equal(t, want, d.FilterString())
			id := testenv.Must(d.DLPackID())(t)
			require.EqualValues(t, i, id)
			require.Same(t, d, testenv.Must(rt.RootDevice(id))(t))
			for range 2 { // the second time from the cache
				require.Same(t, d, testenv.Must(rt.Device(want))(t))
			}
			require.False(t, d.IsSubDevice())
			require.Nil(t, d.Parent())
			require.Same(t, d, d.Root())
		}
		a, b, cpu := devices[0], devices[1], devices[2]
		require.Len(t, rt.Platforms(), 3, "two and the host's")
		require.Same(t, a.Platform(), b.Platform())
		require.NotSame(t, a.Platform(), cpu.Platform())
		require.Equal(t, []*syclobj.Device{a, b}, a.Platform().Devices())
		require.False(t, a.Equal(b))
		require.True(t, a.DefaultContext().Equal(b.DefaultContext()), "one default context for a platform")
		require.False(t, a.DefaultContext().Equal(cpu.DefaultContext()))
		require.Same(t, a, rt.DefaultDevice())
		require.EqualValues(t, 64<<30, a.Info().GlobalMemSize)

		for filter, want := range map[string]*syclobj.Device{
			"gpu": a, "gpu:1": b, "cpu": cpu, "2": cpu, "1": b, "opencl": cpu, "cuda,cpu": cpu, "level_zero:1": b, "GPU:1": b, "host": rt.HostQueue().Device(),
		} {
			d, err := rt.Device(filter)
			require.NoError(t, err, filter)
			require.Same(t, want, d, filter)
		}
		testenv.Failed(t, testenv.ErrorOf(rt.Device("cuda:gpu:0")), syclobj.ErrNoDevice, "level_zero:gpu:1")
		require.ErrorIs(t, testenv.ErrorOf(rt.RootDevice(3)), syclobj.ErrDeviceID)
		require.ErrorIs(t, testenv.ErrorOf(rt.RootDevice(-1)), syclobj.ErrDeviceID)
		require.ErrorIs(t, testenv.ErrorOf(syclobj.Open(syclobj.RequireSYCL(syclobj.BackendCUDA))), syclobj.ErrNoDevice)
		other := testenv.Must(syclobj.Open(syclobj.RequireSYCL(syclobj.BackendLevelZero)))(t)
		require.Same(t, a, other.RootDevices()[0], "Runtimes share the devices")
		require.NoError(t, other.Close())
		require.NoError(t, other.Close())
	})
}

func TestPlacesOfTwoGPUs(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpuA, gpuB, cpu := rt.RootDevices()[0], rt.RootDevices()[1], rt.RootDevices()[2]
		const n = 1000
		for i, d := range []*syclobj.Device{gpuA, gpuB, cpu} {
			for kind := syclobj.USMDevice; kind <= syclobj.USMHost; kind++ {
				q := defaultQueue(t, d)
				p := alloc(t, q, kind, n)
				want := testenv.Must(q.Place(kind))(t)
				typ, id, err := want.DLPackDevice()
				require.NoError(t, err)
				require.EqualValues(t, 14, typ)
				require.EqualValues(t, i, id)

				got := testenv.Must(placeOf(rt, nil, q, p, unsafe.Add(p, n)))(t)
				fromContext := testenv.Must(placeOf(rt, q.Context(), nil, p, unsafe.Add(p, n)))(t)
				imported := testenv.Must(dlpackPlace(rt, int32(i), p, unsafe.Add(p, n)))(t)
				require.Same(t, want, got)
				require.Same(t, want, imported)
				if kind != syclobj.USMHost { // the runtime may return any device of the context for host memory
					require.Same(t, want, fromContext)
				}
				require.Equal(t, kind, got.Kind())
				require.Equal(t, kind != syclobj.USMDevice, got.HostReadable())
				for _, place := range []*syclobj.Place{want, got, fromContext, imported} {
					place.Release()
				}
				both := testenv.Must(placeOf(rt, q.Context(), q, p, unsafe.Add(p, n)))(t)
				require.Same(t, want, both)
				both.Release()
				require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, nil, q, p, unsafe.Add(p, n+1))), syclobj.ErrOverrun)
				require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, nil, q, unsafe.Add(p, -1), unsafe.Add(p, n))), syclobj.ErrNotUSM)
				require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, nil, q, unsafe.Add(p, 1), p)), syclobj.ErrArgument, "hi below lo")
			}
		}
		// The id of the first GPU with memory of the second: both have one default context, and the runtime
		// returns the right device.
		p := alloc(t, defaultQueue(t, gpuB), syclobj.USMDevice, n)
		place := testenv.Must(dlpackPlace(rt, 0, p, unsafe.Add(p, n)))(t)
		_, id, err := place.DLPackDevice()
		require.NoError(t, err)
		require.EqualValues(t, 1, id)
		place.Release()
		// The memory does not belong to the context of the other platform.
		require.ErrorIs(t, testenv.ErrorOf(dlpackPlace(rt, 2, p, unsafe.Add(p, n))), syclobj.ErrNotUSM)
		require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, cpu.DefaultContext(), nil, p, p)), syclobj.ErrNotUSM)
		require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, cpu.DefaultContext(), defaultQueue(t, gpuB), p, p)), syclobj.ErrArgument)
		for _, id := range []int32{-1, 3, 1 << 30} {
			require.ErrorIs(t, testenv.ErrorOf(dlpackPlace(rt, id, p, p)), syclobj.ErrDeviceID)
		}
		require.ErrorIs(t, testenv.ErrorOf(dlpackPlace(rt, 0, nil, nil)), syclobj.ErrNil)
		require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, nil, nil, p, p)), syclobj.ErrNil)
		var local int
		require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, gpuA.DefaultContext(), nil, unsafe.Pointer(&local), unsafe.Pointer(&local))), syclobj.ErrNotUSM)
	})
}

func TestTiles(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := rt.RootDevices()[1]
		tiles := testenv.Must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNextPartitionable}))(t)
		require.Len(t, tiles, 2)
		tile := tiles[1]
		require.True(t, tile.IsSubDevice())
		require.Same(t, gpu, tile.Parent())
		require.Same(t, gpu, tile.Root())
		require.Equal(t, "level_zero:gpu:1", tile.FilterString())
		require.EqualValues(t, 256, tile.Info().ComputeUnits)
		id := testenv.Must(tile.DLPackID())(t)
		require.EqualValues(t, 1, id)
		require.ErrorIs(t, testenv.ErrorOf(tile.DefaultQueue()), syclobj.ErrFailed)
		again := testenv.Must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNextPartitionable}))(t)
		require.True(t, tile.Equal(again[1]))
		require.False(t, tile.Equal(again[0]))
		require.False(t, tile.Equal(gpu))

		// In the default context of the platform: exported under the parent.
		q := testenv.Must(rt.NewQueue(nil, tile, syclobj.InOrder))(t)
		require.True(t, q.Context().IsDefault())
		require.True(t, q.Device().Equal(tile))
		p := testenv.Must(q.Alloc(syclobj.USMDevice, 64, 0))(t)
		place := testenv.Must(dlpackPlace(rt, 1, p, unsafe.Add(p, 64)))(t)
		require.Contains(t, place.String(), "a part of "+gpu.FilterString())
		typ, id, err := place.DLPackDevice()
		require.NoError(t, err)
		require.EqualValues(t, 14, typ)
		require.EqualValues(t, 1, id)
		own := testenv.Must(place.Queue())(t)
		require.True(t, own.Device().Equal(tile))
		require.NoError(t, testenv.Must(own.Memset(p, 1, 64))(t).Wait(context.Background()))
		fromOwn := testenv.Must(own.Place(syclobj.USMDevice))(t)
		require.Same(t, place, fromOwn)
		fromOwn.Release()
		place.Release()

		// The memory stays valid after its queue and the Go objects of the device are closed.
		require.NoError(t, q.Close())
		for _, d := range append(tiles, again...) {
			require.NoError(t, d.Close())
			require.NoError(t, d.Close())
		}
		require.ErrorIs(t, testenv.ErrorOf(q.Alloc(syclobj.USMDevice, 1, 0)), syclobj.ErrClosed)
		require.ErrorIs(t, testenv.ErrorOf(q.Barrier()), syclobj.ErrClosed)
		require.NoError(t, syclobj.Free(p))

		// DLPack refuses memory in a separate context of the tile.
		tiles = testenv.Must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNUMA}))(t)
		ctx := testenv.Must(rt.NewContext(tiles[0]))(t)
		q = testenv.Must(rt.NewQueue(ctx, tiles[0], syclobj.OutOfOrder))(t)
		require.Equal(t, syclobj.OutOfOrder, q.Properties())
		members := testenv.Must(ctx.Devices())(t)
		require.Len(t, members, 1)
		require.True(t, members[0].Equal(tiles[0]))
		require.NoError(t, members[0].Close())
		place = testenv.Must(q.Place(syclobj.USMShared))(t)
		require.ErrorIs(t, third(place.DLPackDevice()), syclobj.ErrNotDefault)
		require.False(t, place.IsDefaultContext())
		place.Release()
		require.NoError(t, q.Close())
		require.NoError(t, ctx.Close())
		for _, d := range tiles {
			require.NoError(t, d.Close())
		}
	})
}

func third[A, B any](_ A, _ B, err error) error { return err }

func TestPartitions(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		cpu := rt.RootDevices()[0]
		halves := testenv.Must(cpu.SubDevices(syclobj.Partition{Units: 4}))(t)
		require.Len(t, halves, 2)
		uneven := testenv.Must(cpu.SubDevices(syclobj.Partition{Counts: []int{1, 2, 5}}))(t)
		require.Len(t, uneven, 3)
		require.EqualValues(t, 5, uneven[2].Info().ComputeUnits)
		quarter := testenv.Must(halves[0].SubDevices(syclobj.Partition{Units: 2}))(t)
		require.Same(t, halves[0], quarter[0].Parent())
		require.Same(t, cpu, quarter[0].Root())
		id, err := quarter[0].DLPackID()
		require.NoError(t, err)
		require.Zero(t, id, "the id of the root, two levels up")
		for _, list := range [][]*syclobj.Device{halves, uneven, quarter} {
			for _, d := range list {
				require.NoError(t, d.Close())
			}
		}
		require.ErrorIs(t, testenv.ErrorOf(halves[0].SubDevices(syclobj.Partition{Units: 1})), syclobj.ErrClosed)
		for _, err := range []error{
			testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Units: 0})), testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Units: 9})), testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Counts: []int{}})),
			testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Counts: []int{8, 1}})), testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Counts: []int{-1}})), testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Domain: 0})),
		} {
			require.ErrorIs(t, err, syclobj.ErrArgument)
		}
		require.ErrorIs(t, testenv.ErrorOf(cpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityL3Cache})), syclobj.ErrFailed)
	})
}

func TestOwnContexts(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpuA, gpuB, cpu := rt.RootDevices()[0], rt.RootDevices()[1], rt.RootDevices()[2]
		both := testenv.Opened(rt.NewContext(gpuA, gpuB))(t)
		require.False(t, both.IsDefault())
		require.False(t, both.Equal(gpuA.DefaultContext()), "the same devices, another context")
		require.Equal(t, []*syclobj.Device{gpuA, gpuB}, testenv.Must(both.Devices())(t))

		q := testenv.Opened(rt.NewQueue(both, gpuB, syclobj.InOrder|syclobj.Profiling))(t)
		require.Equal(t, syclobj.InOrder|syclobj.Profiling, q.Properties())
		p, free, err := sycltest.ForeignAlloc(q, syclobj.USMDevice, 100)
		require.NoError(t, err)
		defer free()
		// Asked for by the context alone, by this queue, and by a queue of the
		// other device of the context: always the memory's own device.
		onA := testenv.Opened(rt.NewQueue(both, gpuA, syclobj.OutOfOrder))(t)
		for _, by := range []*syclobj.Queue{nil, q, onA} {
			place := testenv.Must(placeOf(rt, both, by, p, unsafe.Add(p, 100)))(t)
			require.Same(t, gpuB, testenv.Must(place.Device())(t))
			pq := testenv.Must(place.Queue())(t)
			require.Same(t, gpuB, pq.Device())
			require.Equal(t, by == q, pq.Equal(q), "the given queue, if it is the device's")
			require.False(t, pq.Equal(onA))
			require.True(t, testenv.Must(place.Context())(t).Equal(both))
			place.Release()
			err = third(place.DLPackDevice()) // a fact, which outlives the place
			require.ErrorIs(t, err, syclobj.ErrNotDefault)
			require.ErrorContains(t, err, fmt.Sprintf("%#x", sycltest.ContextHash(both)), "the context it is in")
			require.ErrorContains(t, err, fmt.Sprintf("%#x", sycltest.ContextHash(gpuB.DefaultContext())), "the one it should be in")
			require.ErrorContains(t, err, "level_zero:gpu:1")
		}
		require.ErrorIs(t, testenv.ErrorOf(dlpackPlace(rt, 1, p, unsafe.Add(p, 100))), syclobj.ErrNotUSM, "the default context does not know it")

		e := testenv.Must(q.Memset(p, 1, 100))(t)
		times := testenv.Must(e.Times())(t)
		require.Greater(t, times.Started, times.Submitted)
		require.Greater(t, times.Ended, times.Started)
		require.NoError(t, e.Wait(context.Background()))
		require.NotNil(t, e.Ref(), "kept for its times")
		require.NoError(t, e.Close())
		require.Nil(t, e.Ref())

		require.ErrorIs(t, testenv.ErrorOf(rt.NewContext()), syclobj.ErrArgument)
		require.ErrorIs(t, testenv.ErrorOf(rt.NewContext(rt.HostQueue().Device())), syclobj.ErrArgument)
		require.ErrorIs(t, testenv.ErrorOf(rt.NewContext(nil)), syclobj.ErrArgument)
		require.ErrorIs(t, testenv.ErrorOf(rt.NewContext(gpuA, cpu)), syclobj.ErrFailed, "two platforms")
		require.ErrorIs(t, testenv.ErrorOf(rt.NewQueue(both, cpu, syclobj.OutOfOrder)), syclobj.ErrFailed, "not a device of the context")
		require.ErrorIs(t, testenv.ErrorOf(rt.NewQueue(nil, nil, syclobj.OutOfOrder)), syclobj.ErrNil)
		require.ErrorIs(t, testenv.ErrorOf(rt.NewQueue(rt.HostQueue().Device().DefaultContext(), cpu, syclobj.OutOfOrder)), syclobj.ErrArgument)
	})
}

func TestRefs(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := rt.RootDevices()[0]
		made := testenv.Must(rt.NewQueue(nil, gpu, syclobj.OutOfOrder))(t)
		q := testenv.Must(rt.QueueFromRef(made.Ref()))(t)
		require.True(t, q.Equal(made))
		require.Equal(t, made.Hash(), q.Hash())
		require.NotEqual(t, made.Ref(), q.Ref(), "a copy of its own")
		require.False(t, q.Equal(defaultQueue(t, gpu)))
		require.Same(t, gpu, q.Device())
		require.Same(t, gpu.DefaultContext(), q.Context())
		require.NoError(t, made.Close())
		require.NoError(t, q.Wait(context.Background()), "the copy outlives the original")
		require.NoError(t, q.Close())
		require.Nil(t, q.Ref())

		c := testenv.Must(rt.ContextFromRef(gpu.DefaultContext().Ref()))(t)
		require.True(t, c.IsDefault())
		require.True(t, c.Equal(gpu.DefaultContext()))
		require.NoError(t, c.Close())
		require.NotNil(t, gpu.DefaultContext().Ref())
		require.ErrorIs(t, testenv.ErrorOf(rt.QueueFromRef(nil)), syclobj.ErrNil)
		require.ErrorIs(t, testenv.ErrorOf(rt.ContextFromRef(nil)), syclobj.ErrNil)

		before := fake.Live()
		for _, fn := range []string{"DPCTLQueue_Copy", "DPCTLQueue_GetContext", "DPCTLQueue_GetDevice"} {
			fake.Fail(fn, 1)
			require.ErrorIs(t, testenv.ErrorOf(rt.QueueFromRef(defaultQueue(t, gpu).Ref())), syclobj.ErrFailed, fn)
			require.Equal(t, before, fake.Live(), "nothing is left after %s fails", fn)
		}
	})
}

// The work of an out-of-order queue precedes later work of the queue only behind a barrier. An in-order queue needs none.
func TestOrderOfAQueueBehindItself(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		for _, property := range []syclobj.QueueProperty{syclobj.InOrder, syclobj.OutOfOrder} {
			q := testenv.Must(rt.NewQueue(nil, rt.RootDevices()[0], property))(t)
			p := alloc(t, q, syclobj.USMShared, 1)
			fake.Hold(true)
			one := testenv.Must(q.Memset(p, 1, 1))(t)
			barriers := fake.Calls("DPCTLQueue_SubmitBarrierForEvents")
			require.Zero(t, sycltest.OrderInC(q, q))
			require.Equal(t, property == syclobj.OutOfOrder, fake.Calls("DPCTLQueue_SubmitBarrierForEvents") > barriers)
			two := testenv.Must(q.Memset(p, 2, 1))(t)
			fake.Release(fake.Pending() - 1) // the new work first, if it may
			require.False(t, two.Done())
			fake.ReleaseAll()
			fake.Hold(false)
			require.True(t, one.Done())
			require.True(t, two.Done())
			require.NoError(t, q.Close())
		}
	})
}

func TestEventOrder(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q, err := rt.NewQueue(nil, rt.RootDevices()[0], syclobj.OutOfOrder) // out of order
		require.NoError(t, err)
		defer q.Close()
		p := alloc(t, q, syclobj.USMShared, 1)
		b := unsafe.Slice((*byte)(p), 1)

		fake.Hold(true)
		one := testenv.Must(q.Memset(p, 1, 1))(t)
		two := testenv.Must(q.Memset(p, 2, 1, one))(t)
		require.False(t, one.Done())
		fake.Release(1) // the barrier in front of two, which waits for one
		fake.Release(2)
		require.False(t, two.Done(), "it depends on one")
		require.Zero(t, b[0])
		fake.Release(0)
		require.True(t, one.Done())
		require.True(t, two.Done())
		require.Nil(t, two.Ref(), "known to be complete")
		require.EqualValues(t, 2, b[0])

		// Many waits run at once; one is cancelled.
		slow := testenv.Must(q.Memset(p, 3, 1))(t)
		copied := slow.Copy()
		ctx, cancel := context.WithCancel(context.Background())
		cancelled := make(chan error)
		go func() { cancelled <- slow.Wait(ctx) }()
		var waiting sync.WaitGroup
		for range 8 {
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				require.NoError(t, slow.Wait(ctx))
			})
		}
		require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == 9 }, time.Minute, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-cancelled, context.Canceled)
		for range 3 {
			short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			require.ErrorIs(t, slow.Wait(short), context.DeadlineExceeded)
			cancel()
		}
		require.EqualValues(t, 8, syclobj.LiveObjects().Waiters)
		require.ErrorIs(t, slow.Wait(ctx), context.Canceled, "already over")
		require.NoError(t, slow.Close(), "closing does not affect waiting goroutines")
		require.EqualValues(t, 2, b[0], "the work is still held")
		require.Equal(t, 1, fake.Pending())
		fake.ReleaseAll()
		waiting.Wait()
		require.True(t, copied.Done())
		require.EqualValues(t, 3, b[0], "the work went on")
		require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == 0 }, time.Minute, time.Millisecond)

		// The wait for a queue can be cancelled too.
		held := testenv.Must(q.Memset(p, 4, 1))(t)
		short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, q.Wait(short), context.DeadlineExceeded)
		fake.ReleaseAll()
		fake.Hold(false)
		require.NoError(t, q.Wait(context.Background()))
		require.True(t, held.Done())
		require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == 0 }, time.Minute, time.Millisecond)
	})
}

func TestHostQueueWaitsForSYCL(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := rt.DefaultQueue()
		p := alloc(t, q, syclobj.USMShared, 4)
		fake.Hold(true)
		e := testenv.Must(q.Memset(p, 9, 4))(t)
		go func() {
			time.Sleep(10 * time.Millisecond)
			fake.ReleaseAll()
		}()
		got := make([]byte, 4)
		require.NoError(t, rt.HostQueue().Read(got, p, e))
		require.Equal(t, []byte{9, 9, 9, 9}, got)
	})
}

// TestPlacesAreFreedOnce: the last holder of a place of foreign memory frees it exactly once, while other
// goroutines look up the same place or create another.
func TestPlacesAreFreedOnce(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		var all sync.WaitGroup
		for _, gpu := range rt.RootDevices()[:2] {
			ctx := testenv.Opened(rt.NewContext(gpu))(t)
			q := testenv.Opened(rt.NewQueue(ctx, gpu, syclobj.OutOfOrder))(t)
			p, free, err := sycltest.ForeignAlloc(q, syclobj.USMShared, 8)
			require.NoError(t, err)
			defer free()
			for range 2 {
				all.Go(func() { require.Zero(t, sycltest.CheckInC(ctx, p, unsafe.Add(p, 8), 50000)) })
			}
			all.Go(func() {
				for range 1000 {
					place := testenv.Must(placeOf(rt, ctx, nil, p, unsafe.Add(p, 8)))(t)
					require.Equal(t, gpu.FilterString(), place.FilterString())
					require.Same(t, place, syclobj.WrapPlace(place.Ref()))
					place.Release()
				}
			})
		}
		all.Wait()
		require.Zero(t, syclobj.LiveObjects().Places)
	})
}

// TestClosingUnderC: C code that uses the table of devices while the last Runtime closes finds a complete
// table or none.
func TestClosingUnderC(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(*sycltest.Fake) {
		rt := testenv.Must(syclobj.Open())(t)
		p, free, err := sycltest.ForeignAlloc(rt.DefaultQueue(), syclobj.USMShared, 8)
		require.NoError(t, err)
		require.NoError(t, rt.Close())
		var stop atomic.Bool
		var seen, unseen atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for !stop.Load() {
					switch code := sycltest.ImportInC(0, p, unsafe.Add(p, 8), 50); code {
					case 0:
						seen.Add(1)
					case syclobj.ErrNoSYCL:
						unseen.Add(1)
					default:
						t.Errorf("import: %v", code)
						return
					}
				}
			})
		}
		for i := 0; i < 300 || seen.Load() == 0 || unseen.Load() == 0; i++ {
			require.NoError(t, testenv.Must(syclobj.Open())(t).Close())
		}
		stop.Store(true)
		all.Wait()
		free()
	})
}

// Free refuses foreign memory, and adopted events are deleted once.
func TestForeign(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(*sycltest.Fake) {
		q := openReal(t).DefaultQueue()
		p, free, err := sycltest.ForeignAlloc(q, syclobj.USMDevice, 8)
		require.NoError(t, err)
		require.ErrorIs(t, syclobj.Free(p), syclobj.ErrNotAllocated)
		free()

		made := testenv.Must(q.Barrier())(t)
		taken := syclobj.TakeEvent(nil, made.Ref()) // made is not used any more
		require.NoError(t, taken.Wait(context.Background()))
		require.Nil(t, taken.Ref())
		require.True(t, syclobj.TakeEvent(nil, nil).Done())
	})
}

// TestEventFromRefCopies: a copy of a producer's event is independent; either may be deleted first.
func TestEventFromRefCopies(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		theirs := testenv.Must(rt.DefaultQueue().Barrier())(t)
		ours := testenv.Must(rt.EventFromRef(theirs.Ref()))(t)
		require.NoError(t, theirs.Close())
		require.NoError(t, ours.Wait(context.Background()))
		require.NoError(t, ours.Close())
		require.ErrorIs(t, testenv.ErrorOf(rt.EventFromRef(nil)), syclobj.ErrNil)
	})
}
