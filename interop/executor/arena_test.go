//go:build cgo && linux

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// requests is the Python code of these tests.
const requests = `
import gc, threading
import numpy, usmbridge

kept = []

def make(n, fail=False):
    x = usmbridge.empty(n, "uint8", device="host")
    y = usmbridge.zeros(n, "uint8", device="host")
    y[...] = 3
    if fail: raise ValueError("no")
    return y

def churn(n, times):
    for _ in range(times): usmbridge.empty(n, "uint8", device="host")

def copies(x):      # of all kinds that allocate
    a = usmbridge.asarray([1, 2, 3], dtype="float32", device="host")
    b = usmbridge.asarray(numpy.arange(1000.0), device="host", copy=True)
    c = x.copy()
    d = x.astype("float64")
    e = usmbridge.full_like(x, 7)
    return a.nbytes + b.nbytes + c.nbytes + d.nbytes + e.nbytes, used()

def keep(n): kept.append(usmbridge.empty(n, "uint8", device="host"))
def last(): return kept[-1]
def drop(): kept.clear()

def in_thread(n):
    made = []
    t = threading.Thread(target=lambda: made.append(usmbridge.empty(n, "uint8", device="host")))
    t.start(); t.join()
    return used(), made[0].nbytes

def nested(call, n):
    x = usmbridge.empty(n, "uint8", device="host")
    inside = call()
    y = usmbridge.empty(n, "uint8", device="host")
    return inside, used()

def hold(begun, n):
    held = [usmbridge.empty(n, "uint8", device="host")]
    begun()
    while True: pass
`

// service opens an executor. In its Python code, used() returns the number of used bytes of the arena in
// the context of the call.
func service(t *testing.T, c executor.Config) (*executor.Executor, memmgr.Resource) {
	t.Helper()
	py, _ := start(t)
	m := testenv.Held(py.Module("requests", requests))(t)
	used := testenv.Must(py.New(func(ctx context.Context) int64 {
		if a := arena.FromContext(ctx); a != nil {
			return int64(a.Used())
		}
		return -1
	}))(t)
	defer used.Release()
	require.NoError(t, m.SetAttr("used", used))
	return open(t, c)
}

// ended ends an arena and checks that no memory is left. Memory that Python released on another thread,
// or that the traceback of an exception held, can be freed a moment later.
func ended(t *testing.T, a *arena.Arena) {
	t.Helper()
	a.End()
	require.Eventually(t, func() bool { return a.Left().Blocks == 0 }, soon, time.Millisecond, "%s", a.Left())
}

func TestRequestsMemoryEndsWithIt(t *testing.T) {
	e, r := service(t, executor.Config{})
	a := arena.New(arena.Options{Name: "request", Limit: 1 << 20})
	ctx := arena.NewContext(t.Context(), a)
	out := testenv.Must(e.Call(ctx, "requests:make", 1000))(t)
	y := out.(*usmarray.Array)
	require.EqualValues(t, 1000, a.Used(), "the result; the other array is gone")
	from, ok := y.Buffer().Resource().(interface{ Upstream() memmgr.Resource })
	require.True(t, ok)
	require.Same(t, a.Over(from.Upstream()), y.Buffer().Resource(), "the memory is the arena's")
	require.NoError(t, a.Own(y), "the caller owns results, and may give them to the arena")
	require.NoError(t, testenv.ErrorOf(e.Call(ctx, "requests:churn", 200000, 1000)), "released memory makes room again")
	x := testenv.Must(usmarray.Zeros(a.Over(r), usmarray.Int32, []int{100}))(t)
	out = testenv.Must(e.Call(ctx, "requests:copies", x))(t)
	sum, used := out.(python.Tuple)[0].(int64), out.(python.Tuple)[1].(int64)
	require.EqualValues(t, sum+400+1000, used, "every one of the copies is the arena's")
	require.Zero(t, a.End())
	require.False(t, y.Valid())
	require.False(t, x.Valid())

	// Without an arena in the context, the memory comes from the default resource.
	out = testenv.Must(e.Call(t.Context(), "requests:make", 1000))(t)
	require.Equal(t, r, out.(*usmarray.Array).Buffer().Resource())
	out.(*usmarray.Array).Release()
}

// TestRequestsAreBounded checks that a request uses the memory of the tenant of its client, up to the
// limit of its arena.
func TestRequestsAreBounded(t *testing.T) {
	e, r := service(t, executor.Config{})
	pool, ok := memmgr.As[*memmgr.Pool](r)
	require.True(t, ok)
	tenant := testenv.Must(pool.NewTenant("client", memmgr.TenantOptions{Hard: 1 << 20}))(t)
	defer func() {
		require.Eventually(t, func() bool { return tenant.Stats().Allocation.Current == 0 }, soon, time.Millisecond)
		require.NoError(t, tenant.Close())
	}()
	a := arena.New(arena.Options{Name: "request", Limit: 100000, Choose: func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) { return tenant, nil }})
	ctx := arena.NewContext(t.Context(), a)
	out := testenv.Must(e.Call(ctx, "requests:make", 30000))(t)
	require.EqualValues(t, 30000, a.Used())
	require.EqualValues(t, 1, tenant.Stats().Allocation.Current)
	_, err := e.Call(ctx, "requests:make", 50000)
	testenv.Failed(t, err, python.MemoryError, "the arena's limit is reached")
	require.ErrorContains(t, err, `by tenant "request"`)
	out.(*usmarray.Array).Release()
	out = testenv.Must(e.Call(ctx, "requests:make", 50000))(t)
	out.(*usmarray.Array).Release()
	ended(t, a)
	// Memory that another thread releases leaves the arena's count before it returns to the tenant.
	require.Eventually(t, func() bool { return tenant.Stats().Allocation.Current == 0 }, soon, time.Millisecond)
	require.ErrorContains(t, testenv.ErrorOf(e.Call(ctx, "requests:make", 1)), "has ended", "a call after the end")

	// An allocation waits for the limit of the tenant until the context of the request ends.
	big := arena.New(arena.Options{Choose: func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) { return tenant, nil }})
	held := testenv.Must(memmgr.New(big.Over(tenant), memmgr.Request{Size: 600 << 10}))(t)
	short, cancel := context.WithTimeout(arena.NewContext(t.Context(), big), 20*time.Millisecond)
	_, err = e.Call(short, "requests:make", 600<<10)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	long, cancel := context.WithTimeout(arena.NewContext(t.Context(), big), soon)
	defer cancel()
	time.AfterFunc(20*time.Millisecond, held.Release)
	require.NoError(t, testenv.ErrorOf(e.Call(long, "requests:churn", 600<<10, 1)))
	ended(t, big)
}

// TestReportsMemoryKeptByPython checks that memory that Python keeps after the end of its arena remains
// valid, is reported, and is freed when Python releases it.
func TestReportsMemoryKeptByPython(t *testing.T) {
	e, _ := service(t, executor.Config{})
	before, _ := arena.Outstanding()
	a := arena.New(arena.Options{Name: "request"})
	ctx := arena.NewContext(t.Context(), a)
	require.NoError(t, testenv.ErrorOf(e.Call(ctx, "requests:keep", 5000)))
	left := a.End()
	require.Equal(t, []memmgr.Holder{{Tenant: "request", Tag: "python", Bytes: 5000, Count: 1}}, left.ByTag)
	now, _ := arena.Outstanding()
	require.Equal(t, before+1, now)
	out := testenv.Must(e.Call(t.Context(), "requests:last"))(t)
	kept := out.(*usmarray.Array)
	require.NoError(t, kept.Fill(7), "it is memory still")
	kept.Release()
	require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "requests:drop")))
	require.Eventually(t, func() bool { return a.Left().Blocks == 0 }, soon, time.Millisecond)
	now, _ = arena.Outstanding()
	require.Equal(t, before, now)

	// Results of the caller are not reported.
	b := arena.New(arena.Options{})
	out = testenv.Must(e.Call(arena.NewContext(t.Context(), b), "requests:make", 100))(t)
	answer := out.(*usmarray.Array)
	require.False(t, b.Keep(answer), "it was always the caller's")
	require.Zero(t, b.End())
	require.EqualValues(t, 3, testenv.Must(usmarray.Slice[uint8](answer))(t)[99])
	answer.Release()
}

func TestCancelledCallsLeaveNothing(t *testing.T) {
	e, _ := service(t, executor.Config{Slots: 2, Grace: soon})
	for range 20 {
		f, c := begun(t)
		a := arena.New(arena.Options{})
		ctx, cancel := context.WithCancel(arena.NewContext(t.Context(), a))
		over := make(chan error, 1)
		go func() { _, err := e.Call(ctx, "requests:hold", f, 4096); over <- err }()
		await(t, c)
		require.EqualValues(t, 4096, a.Used())
		cancel()
		require.ErrorIs(t, <-over, python.ErrInterrupted)
		ended(t, a)
	}
}

// TestNestedCallsAndThreads checks that the context of the innermost call applies, and that threads
// that a call starts have none.
func TestNestedCallsAndThreads(t *testing.T) {
	e, _ := service(t, executor.Config{})
	py, _ := start(t)
	make := testenv.Held(py.Eval("__import__('requests').make", nil))(t)
	outer, inner := arena.New(arena.Options{Name: "outer"}), arena.New(arena.Options{Name: "inner"})
	for _, c := range []struct {
		name         string
		ctx          func(context.Context) context.Context
		outer, inner int64
	}{
		{"the same", func(ctx context.Context) context.Context { return ctx }, 1100, 0},
		{"another", func(ctx context.Context) context.Context { return arena.NewContext(ctx, inner) }, 1000, 100},
		{"none", func(ctx context.Context) context.Context { return arena.NewContext(ctx, nil) }, 1000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := testenv.Must(py.New(func(ctx context.Context) (int64, error) {
				o, err := make.CallContext(c.ctx(ctx), 100)
				if err != nil {
					return 0, err
				}
				defer o.Release()
				if got := int64(outer.Used()); got != c.outer-500 {
					return 0, fmt.Errorf("outer has %d", got)
				}
				return int64(inner.Used()), nil
			}))(t)
			defer call.Release()
			out := testenv.Must(e.Call(arena.NewContext(t.Context(), outer), "requests:nested", call, 500))(t)
			require.Equal(t, python.Tuple{c.inner, int64(1000)}, out)
		})
	}
	require.Equal(t, python.Tuple{int64(0), int64(300)}, testenv.Must(e.Call(arena.NewContext(t.Context(), outer), "requests:in_thread", 300))(t))
	ended(t, outer)
	ended(t, inner)
}

// Thousands of requests, several at a time, leave no memory behind.
func TestTenThousandRequestsAreFlat(t *testing.T) {
	e, r := service(t, executor.Config{Slots: 2, Queue: 100})
	n := 10000
	if testing.Short() {
		n = 500
	}
	blocks, bytes := arena.Outstanding()
	testenv.Together(t, 8, func(int) error {
		for range n / 8 {
			a := arena.New(arena.Options{Name: "request", Limit: 64 << 10})
			x, err := usmarray.Zeros(a.Over(r), usmarray.Uint8, []int{1000})
			if err != nil {
				return err
			}
			ctx := arena.NewContext(context.Background(), a)
			if _, err = e.Call(ctx, "requests:copies", x); err != nil {
				return err
			}
			out, err := e.Call(ctx, "requests:make", 10000)
			if err != nil {
				return err
			}
			if err = a.Own(out.(*usmarray.Array)); err != nil {
				return err
			}
			if left := a.End(); left.Blocks != 0 {
				return errors.New(left.String())
			}
		}
		return nil
	})
	nowBlocks, nowBytes := arena.Outstanding()
	require.Equal(t, blocks, nowBlocks)
	require.Equal(t, bytes, nowBytes)
}
