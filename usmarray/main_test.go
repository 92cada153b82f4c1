package usmarray

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestMain(m *testing.M) {
	memtest.MainSYCL(m, func() error {
		if sharedRT == nil {
			return nil
		}
		return sharedRT.Close()
	})
}

// sharedRT is the runtime that the tests share, opened once because that takes
// seconds with a real driver.
var sharedRT *syclobj.Runtime

func openRT(t testing.TB) *syclobj.Runtime {
	t.Helper()
	if sharedRT == nil {
		rt, err := syclobj.Open()
		require.NoError(t, err)
		sharedRT = rt
	}
	return sharedRT
}

// realQueue is the default queue of a real device, or nil and the reason; with
// USMBRIDGE_REQUIRE_SYCL=1 there must be one.
func realQueue(t testing.TB) (*syclobj.Queue, error) {
	t.Helper()
	rt := openRT(t)
	if q := rt.DefaultQueue(); !q.IsHost() {
		return q, nil
	}
	if os.Getenv("USMBRIDGE_REQUIRE_SYCL") == "1" {
		t.Fatalf("USMBRIDGE_REQUIRE_SYCL=1 and there is no SYCL device: %v", rt.SYCLError())
	}
	return nil, rt.SYCLError()
}

// needSYCL skips where there is no real device.
func needSYCL(t testing.TB) (*syclobj.Runtime, *syclobj.Queue) {
	t.Helper()
	q, err := realQueue(t)
	if q == nil {
		t.Skipf("no SYCL device: %v", err)
	}
	return openRT(t), q
}

// otherQueue is a queue on the same device in a context of its own, which is
// not the default one.
func otherQueue(t testing.TB, rt *syclobj.Runtime, q *syclobj.Queue) *syclobj.Queue {
	t.Helper()
	ctx, err := rt.NewContext(q.Device())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	other, err := rt.NewQueue(ctx, q.Device(), syclobj.InOrder)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	return other
}

// backend is one sort of memory that tests run over.
type backend struct {
	name string
	r    memmgr.Resource
}

// backends lists plain host memory and, where there is a device, each kind of
// USM. The resources are closed after the test.
func backends(t testing.TB) []backend {
	t.Helper()
	all := []backend{{"host backend", memmgr.Host()}}
	q, err := realQueue(t)
	if q == nil {
		t.Logf("only the host backend is tested, there is no SYCL device: %v", err)
		return all
	}
	for _, k := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		all = append(all, backend{k.String(), usm(t, q, k)})
	}
	return all
}

func usm(t testing.TB, q *syclobj.Queue, k syclobj.USMKind) memmgr.Resource {
	t.Helper()
	r := memmgr.USM(q, k)
	if c, ok := r.(interface{ Close() error }); ok {
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	return r
}

// own releases an array at the end of the test.
func own(t testing.TB) func(a *Array, err error) *Array {
	return func(a *Array, err error) *Array {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(a.Release)
		return a
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// addressOf is the address of the first element as a number.
func addressOf(a *Array) uintptr { return uintptr(a.Pointer()) }

// owns reports whether an array holds a reference of its own.
func owns(a *Array) bool { return a.flags&flagOwner != 0 }

// on is where a device is asked for.
func on(d dlpack.Device) *dlpack.Device { return &d }

// newOn makes an array where a syclobj says.
func newOn(rt *syclobj.Runtime, obj SyclObj, kind syclobj.USMKind, dt DataType, shape []int) (*Array, error) {
	q, release, err := QueueOn(rt, obj)
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := memmgr.Default(q, kind)
	if err != nil {
		return nil, err
	}
	return New(r, dt, shape)
}
