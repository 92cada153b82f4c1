//go:build cgo && linux

package share_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// sharingGPU is a machine with a driver that shares device memory by driver handles.
var sharingGPU = sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
	{Type: syclobj.TypeGPU, Name: "Fake GPU", Memory: 4 << 30, IPC: true},
}}}

// gpuQueue opens a queue of the machine. The queue is valid until end is called.
func gpuQueue() (q *syclobj.Queue, end func() error, err error) {
	rt, err := syclobj.Open()
	if err != nil {
		return nil, nil, err
	}
	d, err := rt.Device("level_zero:gpu:0")
	if err == nil {
		q, err = rt.NewQueue(nil, d, syclobj.OutOfOrder)
	}
	return q, func() error { return errors.Join(q.Close(), rt.Close()) }, err
}

func init() {
	// gpu attaches "a" in GPU memory, prints its values, doubles them, and exits after the next
	// line of input.
	roles["gpu"] = func(address string) error {
		q, end, err := gpuQueue()
		if err != nil {
			return err
		}
		ctx := context.Background()
		p := must(share.Dial(ctx, address, share.Options{Queue: q}))
		a := must(p.Attach(ctx, "a"))
		v := must(usmarray.ToSlice[float32](a))
		fmt.Println(a.Place(), v)
		for i := range v {
			v[i] *= 2
		}
		check(usmarray.CopyFromSlice(a, v))
		fmt.Println("doubled")
		nextLine()
		a.Release()
		_ = p.Close()
		<-p.Done()
		return end()
	}
}

// TestFakeDriversHandles checks that device memory of a GPU is shared by the driver's handles, with
// another process and as views, but not with a receiver that has no queue on the device.
func TestFakeDriversHandles(t *testing.T) {
	sycltest.Child(t, sharingGPU, func(fake *sycltest.Fake) {
		q, end, err := gpuQueue()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, end()) })
		r := testenv.Must(segment.NewUSM(q, syclobj.USMDevice, segment.PeersWrite))(t)
		pool := memmgr.NewPool(r)
		ctx := background(t)
		s := listen(t, share.Options{})
		a := testenv.Must(usmarray.FromSlice(pool, []float32{1, 2, 3, 4, 5, 6}, []int{2, 3}))(t)
		require.NoError(t, s.Publish(ctx, "a", a))

		o := start(t, "gpu", s.Address())
		o.expect("device memory on level_zero:gpu:0 [1 2 3 4 5 6]")
		o.expect("doubled")
		require.Equal(t, []float32{2, 4, 6, 8, 10, 12}, values(t, a))
		require.Equal(t, share.Stats{Peers: 1, Leases: 1, Known: 1}, s.Stats())
		o.say("")
		o.finish()
		o = start(t, "gpu", s.Address())
		o.expect("device memory on level_zero:gpu:0 [2 4 6 8 10 12]")
		o.kill()
		eventually(t, func() bool { return s.Stats().Leases == 0 }, "the lease of a killed process stays")

		p := dial(t, s, share.Options{Queue: q})
		b := testenv.Must(p.Attach(ctx, "a"))(t)
		require.False(t, b.ReadOnly())
		part := testenv.Must(a.Index(usmarray.IndexAt(1)))(t)
		h := testenv.Must(s.Export(ctx, part.AsReadOnly(), share.ExportOptions{}))(t)
		c := testenv.Must(p.Open(ctx, h))(t)
		require.True(t, c.ReadOnly())
		require.Equal(t, 1, p.Stats().Mapped, "one mapping for both")
		require.EqualValues(t, 2<<20, p.Stats().MappedBytes, "the whole segment, and nothing beside it")
		require.Len(t, values(t, c), 3)
		on := export(t, s, c) // the maker creates another handle
		require.True(t, on.ReadOnly())
		require.True(t, s.Revoke(on))
		b.Release()
		c.Release()
		p.Trim()
		eventually(t, func() bool { return p.Stats().Mapped == 0 }, "still mapped")

		for _, options := range []share.Options{{}, {AsHost: true}} {
			p := dial(t, s, options)
			testenv.Failed(t, testenv.ErrorOf(p.Attach(ctx, "a")), share.ErrNotShared, "Options.Queue")
		}
		fake.Fail("DPCTLIPCMem_OpenHandle", 1)
		p = dial(t, s, share.Options{Queue: q})
		_, err = p.Attach(ctx, "a")
		require.ErrorIs(t, err, share.ErrNotShared)
		require.ErrorIs(t, err, syclobj.ErrFailed)
		b = testenv.Must(p.Attach(ctx, "a"))(t)
		b.Release()
		hangUp(t, p)

		require.NoError(t, s.Withdraw("a"))
		a.Release()
		eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "memory did not come back")
		require.NoError(t, pool.Close())
		require.NoError(t, r.Close())
		eventually(t, func() bool { return fake.Live().Allocations == 0 }, "the driver still has allocations")
	})
}

func init() {
	// gpu-maker publishes "a" in GPU memory and prints its address.
	roles["gpu-maker"] = func(string) error {
		q, _, err := gpuQueue()
		if err != nil {
			return err
		}
		ctx := context.Background()
		r := must(segment.NewUSM(q, syclobj.USMDevice, segment.PeersWrite))
		s := must(share.Listen(ctx, "", share.Options{}))
		a := must(usmarray.FromSlice(memmgr.NewPool(r), []float32{1, 2, 3}, []int{3}))
		check(s.Publish(ctx, "a", a))
		fmt.Println(s.Address())
		nextLine()
		return nil
	}
}

// TestFakeDriversMemoryAfterItsMakerEnded checks that device memory is not passed on after its
// maker ended, and that a copy of it can be shared.
func TestFakeDriversMemoryAfterItsMakerEnded(t *testing.T) {
	sycltest.Child(t, sharingGPU, func(*sycltest.Fake) {
		q, end, err := gpuQueue()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, end()) })
		ctx := background(t)
		o := start(t, "gpu-maker", "")
		p := testenv.Must(share.Dial(ctx, o.line(), share.Options{Queue: q}))(t)
		a := testenv.Held(p.Attach(ctx, "a"))(t)
		o.kill()
		eventually(t, func() bool { return errors.Is(p.Err(), share.ErrDied) }, "the maker's end is not noticed")

		pool, s := serving(t, share.Options{})
		_, err = s.Export(ctx, a, share.ExportOptions{})
		testenv.Failed(t, err, share.ErrNotShared, "copy the array into memory of package segment")
		require.ErrorIs(t, s.Publish(ctx, "b", a), share.ErrNotShared)

		a = testenv.Held(a.Copy(pool))(t)
		to := dial(t, s, share.Options{})
		check := func(b *usmarray.Array, err error) {
			t.Helper()
			require.NoError(t, err)
			require.True(t, b.Place().IsHost())
			require.Equal(t, []float32{1, 2, 3}, values(t, b))
			b.Release()
		}
		check(to.Open(ctx, export(t, s, a)))
		require.NoError(t, s.Publish(ctx, "b", a))
		check(to.Attach(ctx, "b"))
	})
}
