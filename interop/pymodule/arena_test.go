//go:build cgo && linux

package pymodule_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestArenasHaveAllKindsOfMemory checks that Python code called with an arena in its context creates arrays in
// memory of the arena, for each kind of memory and each function that creates arrays.
func TestArenasHaveAllKindsOfMemory(t *testing.T) {
	py, rt := start(t)
	m := testenv.Must(py.Module("arenas", `
import usmbridge
def make(**where):
    x = usmbridge.zeros(1000, "float32", **where)
    return [x, x.copy(), x.astype("float64"), x[::2].copy(), usmbridge.ones_like(x), x.to_device("host"), x.T]
`))(t)
	defer m.Release()
	f := testenv.Held(m.Attr("make"))(t)
	where := []python.Kwargs{{"device": "host"}}
	if rt.HasSYCL() && !rt.DefaultQueue().IsHost() {
		for _, kind := range []string{"device", "shared", "host"} {
			where = append(where, python.Kwargs{"usm_type": kind})
		}
		where = append(where, python.Kwargs{"device": rt.DefaultQueue().Device().FilterString()})
	} else {
		require.False(t, testenv.Declared(testenv.SYCL), "no SYCL device: %v", rt.SYCLError())
	}
	for _, w := range where {
		a := arena.New(arena.Options{Name: "request"})
		o, err := f.CallContext(arena.NewContext(t.Context(), a), w)
		require.NoError(t, err, "%v", w)
		n := testenv.Must(o.Len())(t)
		for i := range n {
			item := testenv.Must(o.Item(i))(t)
			x := testenv.Must(pymodule.FromPython(item))(t)
			mine := x.Buffer().Resource()
			from, ok := mine.(interface{ Upstream() memmgr.Resource })
			require.True(t, ok, "%v: array %d is of %T", w, i, mine)
			require.Same(t, a.Over(from.Upstream()), mine, "%v: array %d", w, i)
			x.Release()
			item.Release()
		}
		left := a.End()
		require.NotZero(t, left.Blocks, "the list is held")
		o.Release()
		require.Eventually(t, func() bool { return a.Left().Blocks == 0 }, time.Minute, time.Millisecond, "%v: %v", w, a.Left())
	}
}

// TestArenaWithoutResource checks that Python raises the error of Options.Choose, and that later calls work.
func TestArenaWithoutResource(t *testing.T) {
	py, _ := start(t)
	f := testenv.Held(py.Eval("lambda: __import__('usmbridge').empty(10, device='host')", nil))(t)
	a := arena.New(arena.Options{Choose: func(*syclobj.Queue, syclobj.USMKind) (r memmgr.Resource, err error) {
		return nil, errors.New("no tenant")
	}})
	defer a.End()
	testenv.Failed(t, testenv.ErrorOf(f.CallContext(arena.NewContext(t.Context(), a))), python.RuntimeError, "no tenant")
	o := testenv.Must(f.CallContext(t.Context()))(t)
	o.Release()
}

// needing is a resource whose Allocate first calls done.
type needing struct {
	memmgr.Resource
	done func() error
}

func (n needing) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if err := n.done(); err != nil {
		return memmgr.Block{}, err
	}
	return n.Resource.Allocate(r)
}

// TestExchangeAllocatorWaitsWithoutTheGIL checks that the allocator of the exchange API releases the GIL while it
// waits for memory, because another Python thread may have to free that memory.
func TestExchangeAllocatorWaitsWithoutTheGIL(t *testing.T) {
	py, rt := start(t)
	tests := testenv.Must(filepath.Abs("tests"))(t)
	out := testenv.Must(py.Run(`
import sys
sys.path.insert(0, tests)
import ctypes as ct, capi, usmbridge
sys.path.remove(tests)
api = capi.exchange(usmbridge.Array)
def allocate():
    errors, out = [], ct.c_void_p()
    p = capi.Producer(dtype=(2, 32, 1), shape=(100,))
    @capi.SET_ERROR
    def set_error(ctx, kind, message): errors.append(message.decode())
    if capi.ALLOCATE(api.allocate)(ct.byref(p.m.t), ct.byref(out), None, set_error) < 0: return errors
    capi.delete(out.value)
`, python.Vars{"tests": tests}, "allocate"))(t)
	f := out["allocate"].(*python.Object)
	defer f.Release()
	host := testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(t)
	a := arena.New(arena.Options{Choose: func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) {
		return needing{host, func() error {
			done := make(chan error, 1)
			go func() { done <- py.With(func() error { return nil }) }()
			select {
			case err := <-done:
				return err
			case <-time.After(time.Minute):
				return errors.New("Python is locked meanwhile")
			}
		}}, nil
	}})
	defer a.End()
	o := testenv.Held(f.CallContext(arena.NewContext(t.Context(), a)))(t)
	require.True(t, o.IsNone(), "%v", o)
}
