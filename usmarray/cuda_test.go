//go:build linux && cgo

package usmarray

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testcuda"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// onCUDA returns an array of 64 bytes with a value.
func onCUDA(t *testing.T, q *syclobj.Queue, kind syclobj.USMKind, value byte) *Array {
	t.Helper()
	r := testenv.Must(memmgr.Default(q, kind))(t)
	return testenv.Must(Full(r, Uint8, []int{64}, value))(t)
}

func TestCUDAExport(t *testing.T) {
	for ordinal, q := range testcuda.Queues(t) {
		for kind, wants := range map[syclobj.USMKind][]dlpack.Device{
			syclobj.USMDevice: {{Type: dlpack.DeviceCUDA, ID: int32(ordinal)}},
			syclobj.USMShared: {{Type: dlpack.DeviceCUDA, ID: int32(ordinal)}, {Type: dlpack.DeviceCUDAManaged, ID: int32(ordinal)}},
			syclobj.USMHost:   {{Type: dlpack.DeviceCUDAHost}},
		} {
			a := onCUDA(t, q, kind, 1)
			first := testenv.Must(a.DLPackWith(ExportOptions{CUDA: true}))(t)
			require.Equal(t, wants[0], first.Device())
			first.Release()
			for _, want := range wants {
				tensor, err := a.DLPackWith(ExportOptions{Device: &want})
				require.NoError(t, err, "%v", want)
				require.Equal(t, want, tensor.Device())
				copied, err := a.DLPackWith(ExportOptions{Device: &want, Copy: CopyAlways})
				require.NoError(t, err, "%v", want)
				require.Equal(t, want, copied.Device())
				require.NotEqual(t, tensor.Data(), copied.Data())
				copied.Release()
				b := testenv.Must(FromDLPack(testsycl.Runtime(t), tensor))(t)
				require.Equal(t, a.Place(), b.Place())
				require.Equal(t, cells.Of(a.Buffer()).Address, cells.Of(b.Buffer()).Address)
				b.Release()
			}
			other := dlpack.Device{Type: wants[0].Type, ID: 7}
			require.ErrorIs(t, testenv.ErrorOf(a.DLPackWith(ExportOptions{Device: &other})), ErrExchange)
			a.Release()
		}
	}
}

// TestCUDAOrder: reads and the reuse of memory come after work of CUDA that no queue of SYCL knows.
func TestCUDAOrder(t *testing.T) {
	q := testcuda.Queues(t)[0]
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared} {
		a := onCUDA(t, q, kind, 1)
		tensor := testenv.Must(a.DLPackWith(ExportOptions{CUDA: true}))(t)
		ordinal := int(tensor.Device().ID)
		address := cells.Of(a.Buffer()).Address
		testcuda.Later(t, ordinal, address, 9, 64)
		data := testenv.Must(ToSlice[byte](a))(t)
		require.EqualValues(t, 9, data[0], "%v: a read before the work", kind)
		testcuda.Later(t, ordinal, address, 8, 64)
		tensor.Release()
		a.Release()
		b := reused(t, q, kind, address)
		testcuda.Finish()
		data = testenv.Must(ToSlice[byte](b))(t)
		require.NotContains(t, data, byte(8), "%v: reused before the end of the work", kind)
		b.Release()
	}
}

// reused allocates arrays until one has the memory at an address, which waits for work. A request for so little does not
// wait for it, but Flush does.
func reused(t *testing.T, q *syclobj.Queue, kind syclobj.USMKind, address uintptr) (b *Array) {
	require.Eventually(t, func() bool {
		memmgr.Flush()
		b = onCUDA(t, q, kind, 5)
		if cells.Of(b.Buffer()).Address == address {
			return true
		}
		t.Cleanup(b.Release)
		return false
	}, time.Minute, time.Millisecond, "the memory was not reused")
	return b
}

// TestCUDAHeld: work of CUDA that does not end delays the memory that it may use and nothing else.
func TestCUDAHeld(t *testing.T) {
	q := testcuda.Queues(t)[0]
	pool := testenv.Must(memmgr.Default(q, syclobj.USMDevice))(t)
	unpooled := memmgr.USM(q, syclobj.USMDevice)
	defer func() { require.NoError(t, unpooled.(io.Closer).Close()) }()
	end := testcuda.Hold(t, 0)
	defer end()
	var addresses []uintptr
	for range 40 { // more than the pool collects for one barrier
		for _, r := range []memmgr.Resource{pool, unpooled} {
			a := testenv.Must(New(r, Uint8, []int{64}))(t)
			tensor := testenv.Must(a.DLPackWith(ExportOptions{CUDA: true}))(t)
			addresses = append(addresses, cells.Of(a.Buffer()).Address)
			tensor.Release()
			a.Release()
		}
	}
	a := testenv.Must(New(pool, Uint8, []int{64}))(t)
	require.NotContains(t, addresses, cells.Of(a.Buffer()).Address)
	testenv.Must(a.DLPackWith(ExportOptions{CUDA: true}))(t).Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Buffer().WaitContext(ctx), context.Canceled)
	end()
	require.NoError(t, a.Buffer().WaitContext(t.Context()))
	a.Release()
	memmgr.Flush()
	blocks, _ := unpooled.(interface{ InUse() (int64, int64) }).InUse()
	require.Zero(t, blocks)
	reused(t, q, syclobj.USMDevice, addresses[0]).Release()
}

func TestCUDAElsewhere(t *testing.T) {
	for _, b := range backends(t) {
		if b.r.Place().FilterString()[:4] == "cuda" {
			continue
		}
		a := testenv.Must(Zeros(b.r, Uint8, []int{4}))(t)
		for _, o := range []ExportOptions{{CUDA: true}, {Device: &dlpack.Device{Type: dlpack.DeviceCUDA}}, {Device: &dlpack.Device{Type: dlpack.DeviceCUDAHost}}, {CUDA: true, Copy: CopyAlways}} {
			_, err := a.DLPackWith(o)
			require.ErrorIs(t, err, syclobj.ErrNoCUDA)
			require.ErrorIs(t, err, ErrExchange)
		}
		a.Release()
	}
}
