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
