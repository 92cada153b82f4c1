//go:build cgo && linux

package memmgr_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// onOpenCLCPU opens a runtime whose default device has memory with pages, or skips the test.
func onOpenCLCPU(t *testing.T) *syclobj.Runtime {
	rt := openSYCL(t)
	if info := rt.DefaultDevice().Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		t.Skipf("the default device %s is not an OpenCL CPU device", info.Name)
	}
	return rt
}

func TestPagesOfUSMGoBack(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rt := onOpenCLCPU(t)
			r := testsycl.USM(t, rt.DefaultQueue(), kind)
			p := newPool(t, r, memmgr.WithDecay(0), memmgr.WithSegment(16<<20))
			kept := mustNew(t, p, 100<<10)
			defer kept.Release()
			b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 10 << 20, Align: 4096}))(t)
			data := bytes.Repeat([]byte("a page of memory"), int(b.Size())/16)
			require.NoError(t, memmgr.CopyIn(kept, 0, data[:kept.Size()]))
			require.NoError(t, memmgr.CopyIn(b, 0, data))
			address := b.Address()
			b.Release()
			require.EqualValues(t, 10<<20, memmgr.ResidentBytes(address, 10<<20))
			require.GreaterOrEqual(t, p.Trim(0), uint64(10<<20))
			require.Zero(t, memmgr.ResidentBytes(address, 10<<20))

			again := testenv.Held(memmgr.New(p, memmgr.Request{Size: 10 << 20, Align: 4096}))(t)
			require.Equal(t, address, again.Address())
			require.NoError(t, memmgr.CopyIn(again, 0, data))
			back := make([]byte, len(data))
			require.NoError(t, memmgr.CopyOut(again, 0, back))
			require.True(t, bytes.Equal(data, back))
			require.NoError(t, memmgr.CopyOut(kept, 0, back[:kept.Size()]))
			require.True(t, bytes.Equal(data[:kept.Size()], back[:kept.Size()]))
		})
	}
}

// A device that has no memory at the first attempt to return pages is asked again.
func TestFakeDiscardIsTriedAgain(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		r := testsycl.USM(t, rt.DefaultQueue(), syclobj.USMDevice)
		b := testenv.Must(memmgr.New(r, memmgr.Request{Size: 64 << 10, Align: 64 << 10}))(t)
		fake.Fail("DPCTLaligned_alloc_device", 1)
		require.ErrorIs(t, r.(memmgr.Discarder).Discard(b.Address(), 64<<10), syclobj.ErrAllocation)
		require.ErrorIs(t, r.(memmgr.Discarder).Discard(b.Address(), 64<<10), errors.ErrUnsupported, "the fake's memory stays resident")
		b.Release()
	})
}

// The pages of a GPU's memory stay, and the error explains it.
func TestFakePagesOfAGPUStay(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := testenv.Must(rt.Device("level_zero:gpu:0"))(t)
		r := testsycl.USM(t, testenv.Opened(rt.NewQueue(nil, gpu, syclobj.OutOfOrder))(t), syclobj.USMShared)
		p := newPool(t, r, memmgr.WithDecay(0), memmgr.WithSegment(16<<20))
		kept := mustNew(t, p, 100<<10)
		mustNew(t, p, 10<<20).Release()
		require.Zero(t, p.Trim(0))
		testenv.Failed(t, r.(memmgr.Discarder).Discard(kept.Address()&^4095, 4096), errors.ErrUnsupported, "only an OpenCL CPU device's is")
		kept.Release()
	})
}
