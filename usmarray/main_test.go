package usmarray

import (
	"testing"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestMain(m *testing.M) { testsycl.Main(m) }

// otherQueue is a queue on the same device in a context of its own, which is
// not the default one.
func otherQueue(t testing.TB, rt *syclobj.Runtime, q *syclobj.Queue) *syclobj.Queue {
	t.Helper()
	ctx := testenv.Opened(rt.NewContext(q.Device()))(t)
	return testenv.Opened(rt.NewQueue(ctx, q.Device(), syclobj.InOrder))(t)
}

// backend is a kind of memory for tests.
type backend struct {
	name string
	r    memmgr.Resource
}

// backends lists plain host memory and, where there is a device, each kind of
// USM. The resources are closed after the test.
func backends(t testing.TB) []backend {
	t.Helper()
	all := []backend{{"host backend", memmgr.Host()}}
	q, err := testsycl.Find(t)
	if q == nil {
		t.Logf("only the host backend is tested, there is no SYCL device: %v", err)
		return all
	}
	for _, k := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		all = append(all, backend{k.String(), testsycl.USM(t, q, k)})
	}
	return all
}

// addressOf returns the address of the first element as a number.
func addressOf(a *Array) uintptr { return uintptr(a.Pointer()) }

// owns reports whether an array holds a reference of its own.
func owns(a *Array) bool { return a.flags&flagOwner != 0 }

// on returns a pointer to a device, for ExportOptions.
func on(d dlpack.Device) *dlpack.Device { return &d }

// newOn allocates an array on the queue or device of a syclobj.
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
