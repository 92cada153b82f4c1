package syclobj_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestOpenFails: each function of the library fails in each of its first calls while a Runtime opens;
// nothing is left behind.
func TestOpenFails(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
		var whole []syclobj.DeviceInfo
		for _, d := range rt.RootDevices() {
			whole = append(whole, d.Info())
		}
		require.NoError(t, rt.Close())
		require.Equal(t, sycltest.Objects{}, fake.Live())
		failed := 0
		for _, fn := range []string{
			"DPCTLDeviceMgr_GetDevices", "DPCTLDeviceVector_GetAt", "DPCTLDeviceMgr_GetCachedContext",
			"DPCTLDevice_Copy", "DPCTLContext_Copy", "DPCTLQueue_Copy", "DPCTLQueue_Create", "DPCTLDevice_GetPlatform", "DPCTLDevice_Create",
			"DPCTLDeviceMgr_GetPositionInDevices", "DPCTLDevice_GetDeviceType", "DPCTLDevice_GetName", "DPCTLDevice_HasAspect",
		} {
			for n := 1; n <= 3; n++ {
				fake.Fail(fn, n)
				rt, err := syclobj.Open(syclobj.RequireSYCL())
				fake.Fail(fn, 0)
				if err == nil {
					require.NotNil(t, rt.DefaultQueue().Ref(), "operations that do not need the failed call work")
					for i, d := range rt.RootDevices() {
						require.Equal(t, whole[i], d.Info(), "%s, call %d", fn, n)
						require.NotContains(t, d.FilterString(), "-1")
						require.True(t, d.Supports(syclobj.USMShared))
					}
					require.NoError(t, rt.Close())
				} else {
					require.ErrorIs(t, err, syclobj.ErrFailed, "%s, call %d", fn, n)
					failed++
				}
				require.Equal(t, sycltest.Objects{}, fake.Live(), "%s, call %d", fn, n)
				require.Zero(t, syclobj.LiveObjects())
			}
		}
		require.GreaterOrEqual(t, failed, 15)
	})
}

func TestOperationsFail(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := rt.RootDevices()[0]
		q := defaultQueue(t, gpu)
		p := alloc(t, q, syclobj.USMShared, 64)
		e := testenv.Must(q.Barrier())(t)
		copied := e.Copy() // two events that are complete but not known to be
		defer e.Close()
		defer copied.Close()
		for kind := syclobj.USMDevice; kind <= syclobj.USMHost; kind++ { // places stay with their queue
			alloc(t, q, kind, 1)
		}
		before := fake.Live()
		for _, c := range []struct {
			function string
			do       func() error
			want     error
		}{
			{"DPCTLQueue_Memcpy", func() error { return testenv.ErrorOf(q.Memcpy(p, unsafe.Add(p, 32), 8)) }, syclobj.ErrFailed},
			{"DPCTLQueue_MemcpyWithEvents", func() error { return testenv.ErrorOf(q.Memcpy(p, unsafe.Add(p, 32), 8, e)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Memset", func() error { return testenv.ErrorOf(q.Memset(p, 0, 8)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Fill8", func() error { return testenv.ErrorOf(q.Fill(p, make([]byte, 1), 1)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Fill16", func() error { return testenv.ErrorOf(q.Fill(p, make([]byte, 2), 1)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Fill32", func() error { return testenv.ErrorOf(q.Fill(p, make([]byte, 4), 1)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Fill64", func() error { return testenv.ErrorOf(q.Fill(p, make([]byte, 8), 1)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Fill128", func() error { return testenv.ErrorOf(q.Fill(p, make([]byte, 16), 1)) }, syclobj.ErrFailed},
			{"DPCTLQueue_Prefetch", func() error { return testenv.ErrorOf(q.Prefetch(p, 8)) }, syclobj.ErrFailed},
			{"DPCTLQueue_SubmitBarrierForEvents", func() error { return testenv.ErrorOf(q.Memset(p, 0, 8, e)) }, syclobj.ErrFailed},
			{"DPCTLQueue_SubmitBarrierForEvents", func() error { return q.Wait(context.Background()) }, syclobj.ErrFailed},
			{"DPCTLaligned_alloc_device", func() error { return testenv.ErrorOf(q.Alloc(syclobj.USMDevice, 8, 0)) }, syclobj.ErrAllocation},
			{"DPCTLaligned_alloc_shared", func() error { return testenv.ErrorOf(q.Alloc(syclobj.USMShared, 8, 0)) }, syclobj.ErrAllocation},
			{"DPCTLaligned_alloc_host", func() error { return testenv.ErrorOf(q.Alloc(syclobj.USMHost, 8, 0)) }, syclobj.ErrAllocation},
			{"DPCTLUSM_GetPointerDevice", func() error { return testenv.ErrorOf(dlpackPlace(rt, 0, p, p)) }, syclobj.ErrNoDevice},
			{"DPCTLContext_Create", func() error { return testenv.ErrorOf(rt.NewContext(gpu)) }, syclobj.ErrFailed},
			{"DPCTLContext_CreateFromDevices", func() error { return testenv.ErrorOf(rt.NewContext(gpu, gpu)) }, syclobj.ErrFailed},
			{"DPCTLDeviceVector_CreateFromArray", func() error { return testenv.ErrorOf(rt.NewContext(gpu, gpu)) }, syclobj.ErrFailed},
			{"DPCTLContext_GetDevices", func() error { return testenv.ErrorOf(gpu.DefaultContext().Devices()) }, syclobj.ErrFailed},
			{"DPCTLQueue_Create", func() error { return testenv.ErrorOf(rt.NewQueue(nil, gpu, syclobj.OutOfOrder)) }, syclobj.ErrFailed},
			{"DPCTLDevice_CreateSubDevicesByAffinity", func() error { return testenv.ErrorOf(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNUMA})) }, syclobj.ErrFailed},
			{"DPCTLDeviceVector_GetAt", func() error { return testenv.ErrorOf(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNUMA})) }, syclobj.ErrFailed},
			{"DPCTLDeviceVector_GetAt", func() error { return testenv.ErrorOf(gpu.DefaultContext().Devices()) }, syclobj.ErrFailed},
			{"DPCTLFilterSelector_Create", func() error { return testenv.ErrorOf(rt.Device("1")) }, syclobj.ErrNoDevice},
			{"DPCTLDevice_CreateFromSelector", func() error { return testenv.ErrorOf(rt.Device("1")) }, syclobj.ErrNoDevice},
		} {
			calls := fake.Calls(c.function)
			fake.Fail(c.function, 1)
			err := c.do()
			require.ErrorIs(t, err, c.want, c.function)
			op := testenv.As[*syclobj.OpError](t, err)
			require.NotEmpty(t, op.Op)
			require.Greater(t, fake.Calls(c.function), calls)
			require.Equal(t, before, fake.Live(), "%s left something", c.function)
		}
		fake.AsyncError(1, -5)
		e2 := testenv.Must(q.Memset(p, 0, 8))(t)
		require.ErrorIs(t, e2.Wait(context.Background()), syclobj.ErrAsync)
		fake.AsyncError(1, -5)
		e2 = testenv.Must(q.Memset(p, 0, 8))(t)
		fake.Fail("DPCTLEvent_GetCommandExecutionStatus", 1) // so that it must be waited for
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		require.ErrorIs(t, e2.Wait(ctx), syclobj.ErrAsync, "on a waiter too")
		e2 = testenv.Must(q.Memset(p, 0, 8))(t)
		fake.Fail("DPCTLEvent_GetCommandExecutionStatus", 1)
		require.ErrorIs(t, e2.Wait(context.Background()), syclobj.ErrFailed, "waited for and still not complete")
		require.NoError(t, e2.Close())
	})
}

// TestPlaceFails: a place whose creation fails half way leaves nothing behind and can be created later.
func TestPlaceFails(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		ctx := testenv.Opened(rt.NewContext(rt.RootDevices()[0]))(t)
		q := testenv.Opened(rt.NewQueue(ctx, rt.RootDevices()[0], syclobj.OutOfOrder))(t)
		before := fake.Live()
		for _, fn := range []string{"DPCTLQueue_GetContext", "DPCTLQueue_GetDevice", "DPCTLContext_Copy", "DPCTLDevice_Copy", "DPCTLQueue_Copy"} {
			fake.Fail(fn, 1)
			require.ErrorIs(t, testenv.ErrorOf(q.Place(syclobj.USMShared)), syclobj.ErrFailed, fn)
			require.Equal(t, before, fake.Live(), fn)
		}
		place := testenv.Held(q.Place(syclobj.USMShared))(t)
		_, err := place.Queue()
		require.NoError(t, err)

		// The kinds of a root device are known since Open.
		aspects := fake.Calls("DPCTLDevice_HasAspect")
		made := testenv.Must(rt.NewQueue(nil, rt.RootDevices()[1], syclobj.InOrder))(t)
		alloc(t, made, syclobj.USMShared, 8)
		require.NoError(t, made.Close())
		require.Equal(t, aspects, fake.Calls("DPCTLDevice_HasAspect"))

		// The default queue of a device too, whose places live as long as its memory.
		fake.Fail("DPCTLQueue_Copy", 1)
		require.ErrorIs(t, testenv.ErrorOf(rt.DefaultQueue().Alloc(syclobj.USMShared, 8, 0)), syclobj.ErrFailed)
		p := alloc(t, rt.DefaultQueue(), syclobj.USMShared, 8)
		require.NoError(t, testenv.Must(rt.DefaultQueue().Memset(p, 0, 8))(t).Wait(context.Background()))
	})
}

// TestNoQueueAtOpen: if no queue can be created while the devices are listed, the default queue does not
// become the host's without a word.
func TestNoQueueAtOpen(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		fake.Fail("DPCTLQueue_Create", 1)
		require.ErrorIs(t, testenv.ErrorOf(syclobj.Open(syclobj.RequireSYCL())), syclobj.ErrFailed)
		require.NoError(t, os.Unsetenv(syclobj.EnvLibrary)) // it is adopted, as the process holds it
		fake.Fail("DPCTLQueue_Create", 1)
		rt := testenv.Must(syclobj.Open())(t)
		require.True(t, rt.DefaultQueue().IsHost())
		testenv.Failed(t, rt.SYCLError(), syclobj.ErrFailed, "creating a queue on opencl:cpu:0")
		require.NoError(t, rt.Close())
		require.False(t, openReal(t).DefaultQueue().IsHost(), "the next attempt succeeds")
	})
}

// TestNoQueueOnOneDevice: a device without a queue is listed and is not the default device, and
// RequireSYCL does not accept it.
func TestNoQueueOnOneDevice(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
		fake.Fail("DPCTLQueue_Create", 3) // of the CPU device
		require.ErrorIs(t, testenv.ErrorOf(syclobj.Open(syclobj.RequireSYCL(syclobj.BackendOpenCL))), syclobj.ErrFailed)
		for _, backends := range [][]syclobj.Backend{nil, {syclobj.BackendOpenCL}} { // the default device would be another
			fake.Fail("DPCTLQueue_Create", 1)
			testenv.Failed(t, testenv.ErrorOf(syclobj.Open(syclobj.RequireSYCL(backends...))), syclobj.ErrFailed, "the choice of the default selector")
		}
		fake.Fail("DPCTLQueue_Create", 1)
		rt := testenv.Opened(syclobj.Open())(t)
		require.ErrorIs(t, testenv.ErrorOf(rt.RootDevices()[0].DefaultQueue()), syclobj.ErrFailed)
		require.Same(t, rt.RootDevices()[1], rt.DefaultDevice())
		q := testenv.Opened(rt.NewQueue(nil, rt.RootDevices()[0], syclobj.InOrder))(t)
		p := alloc(t, q, syclobj.USMShared, 8)
		place := testenv.Held(dlpackPlace(rt, 0, p, p))(t)
		require.NoError(t, testenv.Must(place.Queue())(t).Wait(context.Background()))
	})
}

func TestMemoryRunsOut(t *testing.T) {
	onMachine(t, sycltest.Machine{
		{Backend: syclobj.BackendLevelZero, Name: "small", Devices: []sycltest.Device{
			{Type: syclobj.TypeGPU, Name: "no host or shared", Memory: 1 << 20, Lacks: []syclobj.USMKind{syclobj.USMHost, syclobj.USMShared}},
			{Type: syclobj.TypeGPU, Name: "big", Memory: 1 << 42},
		}},
	}, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		small, big := defaultQueue(t, rt.RootDevices()[0]), defaultQueue(t, rt.RootDevices()[1])
		require.False(t, small.Device().Supports(syclobj.USMHost))
		require.True(t, small.Device().Supports(syclobj.USMDevice))
		require.False(t, small.Device().Supports(syclobj.USMUnknown))
		for _, kind := range []syclobj.USMKind{syclobj.USMHost, syclobj.USMShared} {
			require.ErrorIs(t, testenv.ErrorOf(small.Alloc(kind, 1, 0)), syclobj.ErrUnsupportedUSM)
			testenv.Failed(t, testenv.ErrorOf(small.Place(kind)), syclobj.ErrUnsupportedUSM, "or another device")
			_, _, err := sycltest.ForeignAlloc(small, kind, 1)
			require.ErrorIs(t, err, syclobj.ErrUnsupportedUSM, "from C as well")
		}
		require.ErrorIs(t, testenv.ErrorOf(small.Alloc(syclobj.USMUnknown, 1, 0)), syclobj.ErrArgument)
		require.ErrorIs(t, testenv.ErrorOf(small.Alloc(99, 1, 0)), syclobj.ErrArgument)
		all := testenv.Must(small.Alloc(syclobj.USMDevice, 1<<20, 0))(t)
		require.EqualValues(t, 1<<20, fake.Used(0))
		require.ErrorIs(t, testenv.ErrorOf(small.Alloc(syclobj.USMDevice, 1, 0)), syclobj.ErrAllocation)
		require.NoError(t, syclobj.Free(all))
		require.Zero(t, fake.Used(0))
		alloc(t, big, syclobj.USMDevice, 1<<40)
	})
}

func TestClosing(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
		gpu := rt.RootDevices()[0]
		q := defaultQueue(t, gpu)
		p := testenv.Must(q.Alloc(syclobj.USMDevice, 64, 0))(t)
		place := testenv.Must(q.Place(syclobj.USMDevice))(t)
		require.NoError(t, gpu.Close())
		require.NoError(t, q.Close())
		require.NoError(t, gpu.DefaultContext().Close())
		require.NotNil(t, q.Ref(), "closing an object of the Runtime does nothing")

		second := testenv.Must(syclobj.Open())(t)
		require.NoError(t, rt.Close())
		require.NotNil(t, q.Ref(), "the other Runtime is still open")
		for _, err := range []error{
			testenv.ErrorOf(rt.Device("gpu")), testenv.ErrorOf(rt.RootDevice(0)), testenv.ErrorOf(placeOf(rt, nil, q, p, p)), testenv.ErrorOf(rt.NewContext(gpu)),
			testenv.ErrorOf(rt.NewQueue(nil, gpu, syclobj.OutOfOrder)), testenv.ErrorOf(dlpackPlace(rt, 0, p, p)), testenv.ErrorOf(rt.QueueFromRef(q.Ref())), testenv.ErrorOf(rt.ContextFromRef(q.Ref())),
		} {
			require.ErrorIs(t, err, syclobj.ErrClosed)
		}
		require.NoError(t, second.Close())
		require.Nil(t, q.Ref())
		require.Nil(t, gpu.Ref())
		for _, err := range []error{
			testenv.ErrorOf(q.Alloc(syclobj.USMDevice, 1, 0)), testenv.ErrorOf(q.Barrier()), testenv.ErrorOf(q.Place(syclobj.USMDevice)), testenv.ErrorOf(place.Queue()),
			testenv.ErrorOf(place.Device()), testenv.ErrorOf(place.Context()), testenv.ErrorOf(gpu.DefaultContext().Devices()), testenv.ErrorOf(gpu.SubDevices(syclobj.Partition{Units: 1})),
		} {
			require.ErrorIs(t, err, syclobj.ErrClosed)
		}
		require.False(t, gpu.Equal(rt.HostQueue().Device()))

		// The memory and its place are valid for another Runtime too.
		third := testenv.Must(syclobj.Open())(t)
		found := testenv.Must(dlpackPlace(third, 0, p, p))(t)
		require.Same(t, place, found)
		require.Same(t, third.RootDevices()[0], testenv.Must(place.Device())(t))
		require.NoError(t, testenv.Must(place.Queue())(t).Wait(context.Background()))
		found.Release()
		require.NoError(t, third.Close())
		require.NoError(t, syclobj.Free(p))
		place.Release()
		require.Zero(t, syclobj.LiveObjects())
		require.Equal(t, syclobj.Live{}, syclobj.LiveObjects())
	})
}

// TestRaces closes, looks up, allocates and submits concurrently: no call may use a deleted reference, for
// which the fake library ends the process.
func TestRaces(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := rt.RootDevices()[0]
		tiles := testenv.Must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNUMA}))(t)
		for range 50 {
			q := testenv.Must(rt.NewQueue(nil, tiles[0], syclobj.OutOfOrder))(t)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 20 {
						p, err := q.Alloc(syclobj.USMShared, 100, 0)
						if err != nil {
							require.ErrorIs(t, err, syclobj.ErrClosed)
							return
						}
						if e, err := q.Memset(p, 1, 100); err == nil {
							require.NoError(t, e.Wait(context.Background()))
						}
						place := testenv.Must(dlpackPlace(rt, 0, p, unsafe.Add(p, 100)))(t)
						require.Equal(t, "shared memory on a part of "+gpu.FilterString(), place.String())
						place.Release()
						require.NoError(t, syclobj.Free(p))
					}
				})
			}
			all.Go(func() { require.NoError(t, q.Close()) })
			all.Go(func() {
				require.NoError(t, testenv.Must(syclobj.Open())(t).Close())
			})
			all.Wait()
		}
		for _, d := range tiles {
			require.NoError(t, d.Close())
		}
	})
}

func TestNoDevices(t *testing.T) {
	sycltest.Child(t, sycltest.NoDevice, func(*sycltest.Fake) {
		rt := testenv.Opened(syclobj.Open())(t)
		require.True(t, rt.HasSYCL())
		require.NoError(t, rt.SYCLError())
		require.Empty(t, rt.RootDevices())
		require.Same(t, rt.HostQueue().Device(), rt.DefaultDevice())
		require.Same(t, rt.HostQueue(), rt.DefaultQueue())
		require.ErrorContains(t, testenv.ErrorOf(rt.Device("gpu")), "no SYCL devices")
		testenv.Failed(t, testenv.ErrorOf(syclobj.Open(syclobj.RequireSYCL())), syclobj.ErrNoDevice, "pip install intel-opencl-rt")
	})
}
