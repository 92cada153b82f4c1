//go:build cgo

package cdata

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// onFake is a machine on which a read of device memory by the host ends the process; nil
// outside the child process.
func onFake(t *testing.T) (*sycltest.Fake, *syclobj.Runtime) {
	t.Helper()
	fake := sycltest.Child(t, sycltest.OneCPU)
	if fake == nil {
		return nil, nil
	}
	rt, err := syclobj.Open(syclobj.RequireSYCL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return fake, rt
}

func devicePool(t *testing.T, q *syclobj.Queue) *memmgr.Pool {
	t.Helper()
	device := memmgr.USM(q, syclobj.USMDevice)
	p := memmgr.NewPool(device)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		require.NoError(t, device.(interface{ Close() error }).Close())
	})
	return p
}

// The producer's work is on a queue of its own: what the importer launches on the place's
// queue comes after it, though that queue's order says nothing of it.
func TestFakeLaunchComesAfterTheProducersEvent(t *testing.T) {
	fake, rt := onFake(t)
	if fake == nil {
		return
	}
	q := rt.DefaultQueue()
	theirs, err := rt.NewQueue(nil, q.Device(), syclobj.InOrder)
	require.NoError(t, err)
	defer theirs.Close()
	program, err := q.BuildOpenCL("kernel void copy(global const int *x, global int *y)", "")
	require.NoError(t, err)
	defer program.Close()
	k, err := program.Kernel("copy")
	require.NoError(t, err)
	defer k.Close()
	pool := devicePool(t, q)
	a, err := usmarray.Zeros(pool, usmarray.Int32, []int{16})
	require.NoError(t, err)
	defer a.Release()
	to, err := usmarray.Zeros(pool, usmarray.Int32, []int{16})
	require.NoError(t, err)
	defer to.Release()
	require.NoError(t, a.Wait())
	require.NoError(t, to.Wait())

	fake.Hold(true)
	defer fake.ReleaseAll()
	defer fake.Hold(false)
	work, err := theirs.Memset(a.Pointer(), 1, uintptr(a.NBytes()))
	require.NoError(t, err)
	defer work.Close()
	require.NoError(t, a.Buffer().SetPending(theirs, work))
	var s Schema
	var d DeviceArray
	require.NoError(t, ExportDevice(a, &s, &d))
	require.NotNil(t, d.SyncEvent())
	b, err := ImportDevice(rt, &s, &d)
	require.NoError(t, err)
	defer b.Release()
	require.True(t, b.Buffer().Pending())

	mine, err := b.Place().Queue()
	require.NoError(t, err)
	require.NotZero(t, mine.Properties()&syclobj.InOrder)
	launch, err := kernel.Start(mine, k, kernel.Over(16), kernel.Read(b), kernel.ReadWrite(to))
	require.NoError(t, err)
	defer launch.Close()
	for i := fake.Pending() - 1; i > 0; i-- {
		fake.Release(i) // all but the producer's, if they may
	}
	require.False(t, work.Done())
	require.False(t, launch.Done(), "the kernel ran before the producer's event")
	fake.Release(0)
	require.NoError(t, b.Wait())
}

// Columns that are no tensors are refused before anything of them is read: on a device
// their offsets are memory that the host has no way to.
func TestFakeOtherFormatsAreNotRead(t *testing.T) {
	fake, rt := onFake(t)
	if fake == nil {
		return
	}
	pool := devicePool(t, rt.DefaultQueue())
	a, err := usmarray.Zeros(pool, usmarray.Int32, []int{16})
	require.NoError(t, err)
	defer a.Release()
	require.NoError(t, a.Wait())
	texts := &share{}
	texts.structs.Store(1)
	defer texts.drop()
	for _, c := range otherFormats {
		var s Schema
		var d DeviceArray
		require.NoError(t, ExportDevice(a, &s, &d))
		s.format = texts.text(c.format)
		d.Array.nBuffers, d.Array.buffers = c.buffers, texts.room(3*unsafe.Sizeof(uintptr(0)))
		*(*[3]unsafe.Pointer)(d.Array.buffers) = [3]unsafe.Pointer{nil, a.Pointer(), a.Pointer()}
		b, err := ImportDevice(rt, &s, &d)
		require.ErrorIs(t, err, usmarrow.ErrType, c.format)
		require.Nil(t, b)
		require.True(t, s.Released() && d.Array.Released(), c.format)
	}
	require.EqualValues(t, 64, pool.Stats().RequestedBytes.Current)
}
