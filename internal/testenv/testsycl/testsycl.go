// Package testsycl has the SYCL device that the tests of a package share. Only tests import it.
//
// The runtime is opened at the first use, because a real driver takes seconds, and stays open until the
// tests end: packages that use it call [Main] in TestMain.
package testsycl

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

var open = sync.OnceValues(func() (*syclobj.Runtime, error) {
	rt, err := syclobj.Open()
	shared = rt
	return rt, err
})

// shared is the runtime that open has opened, or nil.
var shared *syclobj.Runtime

// Main is memtest.Main for packages that use the shared runtime. After the last test it closes the default
// pools and the runtime, and fails if SYCL objects are still alive.
func Main(m *testing.M) {
	memtest.Main(m, func() error {
		err := memmgr.CloseDefaults()
		if shared != nil {
			err = errors.Join(err, shared.Close())
		}
		if live := syclobj.LiveObjects(); err == nil && live != (syclobj.Live{}) {
			err = fmt.Errorf("SYCL objects are still alive: %+v", live)
		}
		return err
	})
}

// Runtime returns the shared runtime. On a machine without SYCL its default queue is that of the host.
func Runtime(t testing.TB) *syclobj.Runtime {
	t.Helper()
	rt, err := open()
	require.NoError(t, err)
	return rt
}

// Need returns the shared runtime and the default queue of its device. Without a device the test ends as
// [testenv.Missing] describes.
func Need(t testing.TB) (*syclobj.Runtime, *syclobj.Queue) {
	t.Helper()
	q, err := Find(t)
	if q == nil {
		testenv.Missing(t, fmt.Sprintf("no SYCL device: %v", err), testenv.SYCL)
	}
	return Runtime(t), q
}

// Queue returns the queue of [Need].
func Queue(t testing.TB) *syclobj.Queue {
	t.Helper()
	_, q := Need(t)
	return q
}

// Find returns the default queue of the device, or nil and the reason that there is no device. The test
// fails if the environment declares one.
func Find(t testing.TB) (*syclobj.Queue, error) {
	t.Helper()
	rt := Runtime(t)
	if q := rt.DefaultQueue(); !q.IsHost() {
		return q, nil
	}
	require.False(t, testenv.Declared(testenv.SYCL), "%s=1, but no SYCL device: %v", testenv.SYCL, rt.SYCLError())
	return nil, rt.SYCLError()
}

// NewQueue returns a queue of the default queue's context and device, which is closed after the test.
func NewQueue(t testing.TB, rt *syclobj.Runtime, properties syclobj.QueueProperty) *syclobj.Queue {
	t.Helper()
	q := rt.DefaultQueue()
	made, err := rt.NewQueue(q.Context(), q.Device(), properties)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, made.Close()) })
	return made
}

// USM returns memory of the kind without a pool, and closes it after the test.
func USM(t testing.TB, q *syclobj.Queue, kind syclobj.USMKind) memmgr.Resource {
	t.Helper()
	r := memmgr.USM(q, kind)
	t.Cleanup(func() { require.NoError(t, memmgr.Close(r)) })
	return r
}

// SeparateContexts reports whether memory of another context of the queue's device is not memory of the queue's
// context. The contexts of a CUDA device share its memory.
func SeparateContexts(t testing.TB, rt *syclobj.Runtime, q *syclobj.Queue) bool {
	t.Helper()
	other, err := rt.NewContext(q.Device())
	require.NoError(t, err)
	oq, err := rt.NewQueue(other, q.Device(), syclobj.InOrder)
	require.NoError(t, err)
	p, err := oq.Alloc(syclobj.USMShared, 64, 0)
	require.NoError(t, err)
	place, err := rt.PlaceOf(q.Context(), nil, uintptr(p), uintptr(p)+64)
	if err == nil {
		place.Release()
	}
	require.NoError(t, syclobj.Free(p))
	require.NoError(t, oq.Close())
	require.NoError(t, other.Close())
	return err != nil
}
