//go:build cgo && linux

package memmgr_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// onFake runs f with a runtime on a fake machine.
func onFake(t *testing.T, m sycltest.Machine, f func(*sycltest.Fake, *syclobj.Runtime)) {
	sycltest.Child(t, m, func(fake *sycltest.Fake) {
		rt := testenv.Opened(syclobj.Open())(t)
		require.True(t, rt.HasSYCL())
		f(fake, rt)
	})
}

// A device refuses. Only pools on the same device give up idle memory, and none for a request that is larger
// than the device.
func TestFakeIdleMemoryOfOtherDevicesStays(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		idle := func(device string, kind syclobj.USMKind, size uintptr) *memmgr.Pool {
			d := testenv.Must(rt.Device(device))(t)
			q := testenv.Must(d.DefaultQueue())(t)
			p := newPool(t, testsycl.USM(t, q, kind), memmgr.WithDecay(0))
			if size != 0 {
				mustNew(t, p, size).Release()
			}
			return p
		}
		reserved := func(p *memmgr.Pool) int64 { return p.Stats().ReservedBytes.Current }
		pool := idle("level_zero:gpu:0", syclobj.USMDevice, 0)
		same := idle("level_zero:gpu:0", syclobj.USMShared, 32<<20)
		other := idle("level_zero:gpu:1", syclobj.USMDevice, 64<<20)
		host := idle("level_zero:gpu:0", syclobj.USMHost, 64<<20)
		d := testenv.Must(rt.Device("level_zero:gpu:0"))(t)
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(pool, memmgr.Request{Size: uintptr(2 * d.Info().GlobalMemSize)})), memmgr.ErrOutOfMemory)
		require.EqualValues(t, 32<<20, reserved(same))
		fake.Fail("DPCTLaligned_alloc_device", 1)
		mustNew(t, pool, 32<<20).Release()
		require.Zero(t, reserved(same))
		require.EqualValues(t, 64<<20, reserved(other))
		require.EqualValues(t, 64<<20, reserved(host))
	})
}

func TestFakeLimitAndExhaustion(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		upstream := testsycl.USM(t, rt.DefaultQueue(), syclobj.USMShared).(usmResource)
		total := upstream.DeviceTotal()
		half := newPool(t, upstream, memmgr.WithLimit(total/2))
		_, err := memmgr.New(half, memmgr.Request{Size: uintptr(total * 6 / 10)})
		oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
		require.Equal(t, total/2, oom.Limit)
		require.Equal(t, total, oom.DeviceTotal)
		mustNew(t, half, uintptr(total*4/10)).Release()
		half.Trim(0)
		_, err = memmgr.New(newPool(t, upstream), memmgr.Request{Size: uintptr(total + 1)})
		require.ErrorAs(t, err, &oom)
		require.ErrorIs(t, err, syclobj.ErrAllocation)
	})
}

// A device supports certain kinds of memory. A request for another kind fails before the library is
// called, which could end the process.
func TestFakeMissingKind(t *testing.T) {
	machine := sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake", Devices: []sycltest.Device{
		{Type: syclobj.TypeGPU, Name: "Fake GPU", Lacks: []syclobj.USMKind{syclobj.USMShared}},
	}}}
	onFake(t, machine, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(memmgr.USM(rt.DefaultQueue(), syclobj.USMShared), memmgr.Request{Size: 1})), syclobj.ErrUnsupportedUSM)
		require.ErrorIs(t, testenv.ErrorOf(memmgr.Default(rt.DefaultQueue(), syclobj.USMShared)), syclobj.ErrUnsupportedUSM)
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(memmgr.USM(nil, syclobj.USMShared), memmgr.Request{Size: 1})), memmgr.ErrRequest)
	})
}

// Memory is freed without further allocations: the keeper notices the end of the event.
func TestFakePendingMemoryReturnsByItself(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		p := newPool(t, testsycl.USM(t, rt.DefaultQueue(), syclobj.USMDevice), memmgr.WithDecay(100*time.Millisecond)) // less than a tick
		fake.Hold(true)
		b := mustNew(t, p, 1<<20)
		ev := testenv.Opened(rt.DefaultQueue().Memset(b.Data(), 1, 1<<20))(t)
		require.NoError(t, b.SetPending(rt.DefaultQueue(), ev))
		b.Release()
		time.Sleep(150 * time.Millisecond)
		require.EqualValues(t, 1, p.Stats().Active.Current)
		fake.ReleaseAll()
		fake.Hold(false)
		require.Eventually(t, func() bool { return p.Stats().Active.Current == 0 }, patience, 10*time.Millisecond)
		require.Eventually(t, func() bool { return fake.Used(0) == 0 }, patience, 10*time.Millisecond, "idle memory decays")
	})
}

// Two contexts, two devices, three kinds: each pool serves its own place.
func TestFakePoolsUseMemoryOfTheirPlaces(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		seen := map[string]bool{}
		for _, filter := range []string{"level_zero:gpu:0", "level_zero:gpu:1"} {
			d := testenv.Must(rt.Device(filter))(t)
			q := testenv.Must(d.DefaultQueue())(t)
			for _, kind := range kinds {
				r := testenv.Must(memmgr.Default(q, kind))(t)
				b := mustNew(t, r, 100)
				require.Equal(t, kind, b.Place().Kind())
				require.Equal(t, filter, b.Place().FilterString())
				require.True(t, d.Equal(testenv.Must(b.Place().Device())(t)))
				name := fmt.Sprint(filter, kind)
				require.False(t, seen[name])
				seen[name] = true
				b.Release()
			}
		}
		require.Equal(t, 6, memmgr.DefaultPools())
		require.NoError(t, memmgr.CloseDefaults())
	})
}

// If the queue fails or is closed while its pool is made, Default returns an error.
func TestFakeDefaultOfFailingQueue(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		d := testenv.Must(rt.Device("level_zero:gpu:0"))(t)
		ctx := testenv.Must(rt.NewContext(d))(t)
		own := testenv.Must(rt.NewQueue(ctx, d, syclobj.OutOfOrder))(t)
		place := testenv.Must(own.Place(syclobj.USMShared))(t)
		require.NoError(t, own.Close())
		require.NoError(t, ctx.Close())
		defer place.Release()
		q, err := place.Queue() // keeps no places, so that each is asked for
		require.NoError(t, err)
		fake.Fail("DPCTLQueue_GetContext", 2)
		r, err := memmgr.Default(q, syclobj.USMShared)
		fake.Fail("DPCTLQueue_GetContext", 0)
		require.Error(t, err)
		require.Nil(t, r)
		r = testenv.Must(memmgr.Default(q, syclobj.USMShared))(t)
		require.IsType(t, &memmgr.Pool{}, r)
		require.NoError(t, memmgr.CloseDefaults())
	})
}

// The limit of the default pools is shared by all kinds and devices. A pool can use idle memory of
// other pools. Requests beyond the limit fail with the full report. Lowering the limit does not
// affect memory in use.
func TestFakeDefaultLimit(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		defer memmgr.SetDefaultLimit(0)
		defer func() { require.NoError(t, memmgr.CloseDefaults()) }()
		pool := func(filter string, kind syclobj.USMKind) *memmgr.Pool {
			d := testenv.Must(rt.Device(filter))(t)
			q := testenv.Must(d.DefaultQueue())(t)
			return testenv.Must(memmgr.Default(q, kind))(t)
		}
		shared, device := pool("level_zero:gpu:0", syclobj.USMShared), pool("level_zero:gpu:1", syclobj.USMDevice)
		h := testenv.Must(memmgr.Default(nil, syclobj.USMUnknown))(t)
		const big = 24 << 20
		take := func(r memmgr.Resource) (memmgr.Buffer, error) { return memmgr.New(r, memmgr.Request{Size: big}) }
		refused := func(r memmgr.Resource, limit uint64) {
			_, err := take(r)
			oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
			require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
			require.EqualValues(t, limit, oom.Limit)
		}

		memmgr.SetDefaultLimit(64 << 20)
		a := testenv.Must(take(shared))(t)
		b := testenv.Must(take(device))(t)
		refused(h, 64<<20)
		a.Release() // idle in its pool now, where it counts
		c := testenv.Must(take(h))(t)
		refused(shared, 64<<20)

		memmgr.SetDefaultLimit(1 << 20) // below the bytes in use
		refused(device, 1<<20)
		require.EqualValues(t, 2*big, memmgr.TotalStats().RequestedBytes.Current)
		c.Release()
		b.Release()
		memmgr.SetDefaultLimit(big)
		d := testenv.Must(take(shared))(t)
		refused(h, big)

		memmgr.SetDefaultLimit(0)
		e := testenv.Must(take(h))(t)
		d.Release()
		e.Release()
	})
}
