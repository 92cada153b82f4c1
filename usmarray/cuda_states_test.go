//go:build linux && cgo

package usmarray

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testcuda"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// cudaKinds are the kinds of USM.
var cudaKinds = []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}

// cudaCalls are the functions that reach CUDA. Each gets an array that libraries of CUDA were shown, a pool, and a resource
// without one, on the array's place.
var cudaCalls = map[string]func(a *Array, pool, unpooled memmgr.Resource, t *testing.T) error{
	"New": func(_ *Array, pool, _ memmgr.Resource, _ *testing.T) error {
		return released(New(pool, Uint8, []int{64}))
	},
	"New without a pool": func(_ *Array, _, unpooled memmgr.Resource, _ *testing.T) error {
		return released(New(unpooled, Uint8, []int{64}))
	},
	"New of a large array": func(_ *Array, pool, _ memmgr.Resource, _ *testing.T) error {
		return released(New(pool, Uint8, []int{90 << 20}))
	},
	"Zeros": func(_ *Array, pool, _ memmgr.Resource, _ *testing.T) error {
		return released(Zeros(pool, Uint8, []int{64}))
	},
	"export": func(a *Array, _, _ memmgr.Resource, _ *testing.T) error {
		tensor, err := a.DLPackWith(ExportOptions{CUDA: true})
		if err == nil {
			tensor.Release()
		}
		return err
	},
	"export to SYCL": func(a *Array, _, _ memmgr.Resource, _ *testing.T) error {
		tensor, err := a.DLPack()
		if err == nil {
			tensor.Release()
		}
		return err
	},
	"import": func(a *Array, _, _ memmgr.Resource, t *testing.T) error {
		tensor, err := a.DLPackWith(ExportOptions{CUDA: true})
		if err != nil {
			return err
		}
		b, err := FromDLPack(testsycl.Runtime(t), tensor)
		if err != nil {
			tensor.Release()
			return err
		}
		b.Release()
		return nil
	},
	"ToSlice":       func(a *Array, _, _ memmgr.Resource, _ *testing.T) error { return testenv.ErrorOf(ToSlice[byte](a)) },
	"CopyFromSlice": func(a *Array, _, _ memmgr.Resource, _ *testing.T) error { return CopyFromSlice(a, make([]byte, 64)) },
	"Copy":          func(a *Array, pool, _ memmgr.Resource, _ *testing.T) error { return released(a.Copy(pool)) },
	"ToDevice":      func(a *Array, _, _ memmgr.Resource, _ *testing.T) error { return released(a.ToDevice(memmgr.Host())) },
	"Wait":          func(a *Array, _, _ memmgr.Resource, _ *testing.T) error { return a.Wait() },
	"Flush":         func(*Array, memmgr.Resource, memmgr.Resource, *testing.T) error { memmgr.Flush(); return nil },
	"TrimAll":       func(*Array, memmgr.Resource, memmgr.Resource, *testing.T) error { memmgr.TrimAll(); return nil },
}

// released releases the array of a call, and returns its error.
func released(a *Array, err error) error {
	if err == nil {
		a.Release()
	}
	return err
}

// eachCUDACall calls f for each function, device and kind. Other memory, of the pool and of none, waits for work of CUDA
// meanwhile.
func eachCUDACall(t *testing.T, f func(t *testing.T, name string, a *Array, call func() error)) {
	for device, q := range testcuda.Queues(t) {
		for _, kind := range cudaKinds {
			pool := testenv.Must(memmgr.Default(q, kind))(t)
			unpooled := memmgr.USM(q, kind)
			for name, call := range cudaCalls {
				t.Run(fmt.Sprintf("%s/%v/%d", name, kind, device), func(t *testing.T) {
					a := onCUDA(t, q, kind, 7)
					testenv.Must(a.DLPackWith(ExportOptions{CUDA: true}))(t).Release()
					for _, r := range []memmgr.Resource{pool, unpooled} {
						b := testenv.Must(New(r, Uint8, []int{64}))(t)
						testenv.Must(b.DLPackWith(ExportOptions{CUDA: true}))(t).Release()
						b.Release()
					}
					f(t, name, a, func() error { return call(a, pool, unpooled, t) })
					require.NoError(t, call(a, pool, unpooled, t), "afterwards")
					a.Release()
					memmgr.Flush()
				})
			}
			require.NoError(t, unpooled.(io.Closer).Close())
		}
	}
}

// TestCUDACurrent: no call changes the context that is current in the thread.
func TestCUDACurrent(t *testing.T) {
	devices := len(testcuda.Queues(t))
	eachCUDACall(t, func(t *testing.T, _ string, _ *Array, call func() error) {
		for mine := -1; mine < devices; mine++ {
			testcuda.SetCurrent(t, mine)
			before := testcuda.Current()
			require.NoError(t, call())
			require.Equal(t, before, testcuda.Current(), "device %d was current", mine)
		}
		testcuda.SetCurrent(t, -1)
	})
}

// cudaWaits are the calls that wait for work of libraries of CUDA.
var cudaWaits = []string{"export", "export to SYCL", "import", "ToSlice", "CopyFromSlice", "Copy", "ToDevice", "Wait"}

// TestCUDACapture: during a capture, waits fail with ErrCapture, and requests for memory succeed and leave it alone.
func TestCUDACapture(t *testing.T) {
	eachCUDACall(t, func(t *testing.T, name string, a *Array, call func() error) {
		end := testcuda.Capture(t)
		defer end()
		err := call()
		invalidated := testcuda.Invalidated()
		end()
		require.EqualValues(t, 7, testenv.Must(ToSlice[byte](a))(t)[0])
		switch {
		case slices.Contains(cudaWaits, name):
			require.ErrorIs(t, err, syclobj.ErrCapture)
		case name != "Flush" && name != "TrimAll": // these two wait, and cannot fail
			require.Zero(t, invalidated)
			fallthrough
		default:
			require.NoError(t, err)
		}
	})
}

// TestCUDAFailed: after failed work, waits and allocations fail with ErrAsync. Requests that the pool serves succeed.
func TestCUDAFailed(t *testing.T) {
	eachCUDACall(t, func(t *testing.T, name string, a *Array, call func() error) {
		if name == "TrimAll" {
			return // keeps memory for good that cannot be freed; test_cuda_two.py has it in a process of its own
		}
		end := testcuda.Fail(t, "*", 700)
		defer end()
		err := call()
		end()
		require.EqualValues(t, 7, testenv.Must(ToSlice[byte](a))(t)[0])
		switch {
		case slices.Contains(append([]string{"New without a pool", "New of a large array"}, cudaWaits...), name):
			require.ErrorIs(t, err, syclobj.ErrAsync)
		case name == "Zeros":
			require.NotErrorIs(t, err, memmgr.ErrOutOfMemory)
		default:
			require.NoError(t, err)
		}
	})
}

// TestCUDAFull: a request that a full device cannot serve waits for returned memory, and is refused only without some.
func TestCUDAFull(t *testing.T) {
	for device, q := range testcuda.Queues(t) {
		for kind, function := range map[syclobj.USMKind]string{
			syclobj.USMDevice: "cuMemAlloc_v2", syclobj.USMShared: "cuMemAllocManaged", syclobj.USMHost: "cuMemHostAlloc",
		} {
			upstream := memmgr.USM(q, kind)
			pool := memmgr.NewPool(upstream)
			a := testenv.Must(New(pool, Uint8, []int{1 << 20}))(t)
			testenv.Must(a.DLPackWith(ExportOptions{CUDA: true}))(t).Release()
			address := cells.Of(a.Buffer()).Address
			fail, end := testcuda.Fail(t, function, 2), testcuda.Hold(t, device)
			time.AfterFunc(50*time.Millisecond, end)
			a.Release()
			begin := time.Now()
			b, err := New(pool, Uint8, []int{int(pool.Stats().ReservedBytes.Current)})
			require.NoError(t, err)
			require.Greater(t, time.Since(begin), 40*time.Millisecond)
			require.Equal(t, address, cells.Of(b.Buffer()).Address)
			require.ErrorIs(t, released(New(pool, Uint8, []int{1 << 20})), memmgr.ErrOutOfMemory)
			fail()
			b.Release()
			require.NoError(t, pool.Close())
			require.NoError(t, upstream.(io.Closer).Close())
		}
	}
}
