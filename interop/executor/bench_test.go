//go:build cgo && linux

package executor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// clients is the number of goroutines that call at a time.
const clients = 32

const numbaModel = `
import numba
@numba.njit
def energy(x):
    e = 0.0
    for i in range(x.size): e += x[i] * x[i]
    return e
`

// BenchmarkNumbaCalls makes 32 goroutines call a compiled function, each on its own array of this
// library: directly, and through executors, in turns within one run. The ratios compare an executor
// with direct calls: calls per second (want at least 1.2) and CPU time per call (want at most 0.8).
// Direct calls vary by a factor of two between processes. To compare two versions of an executor,
// multiply its ratio by bare-calls/s.
func BenchmarkNumbaCalls(b *testing.B) {
	testpython.Need(b, "numpy", "numba")
	py, r := start(b)
	m := testenv.Held(py.Module("numbamodel", numbaModel))(b)
	f := testenv.Held(m.Attr("energy"))(b)
	for _, size := range []struct {
		name     string
		elements int
	}{{"1KiB", 256}, {"16KiB", 4096}, {"1MiB", 1 << 18}} {
		b.Run(size.name, func(b *testing.B) { compareCalls(b, py, f, arrays(b, r, size.elements)) })
	}
}

func arrays(b *testing.B, r memmgr.Resource, n int) []*usmarray.Array {
	list := make([]*usmarray.Array, clients)
	for i := range list {
		a := testenv.Held(usmarray.Full(r, usmarray.Float32, []int{n}, 1.0))(b)
		list[i] = a
	}
	return list
}

func compareCalls(b *testing.B, py *python.Interpreter, f *python.Object, arrays []*usmarray.Array) {
	bare := func(ctx context.Context, a *usmarray.Array) error {
		o, err := pymodule.ToPython(a)
		if err != nil {
			return err
		}
		defer o.Release()
		v, err := f.Call(o)
		if err != nil {
			return err
		}
		defer v.Release()
		_, err = v.Float()
		return err
	}
	ways := []struct {
		name string
		call func(context.Context, *usmarray.Array) error
	}{{"bare", bare}}
	for _, c := range []struct {
		name   string
		config executor.Config
	}{{"1slot", executor.Config{}}, {"2slots", executor.Config{Slots: 2}}} {
		e := testenv.Must(executor.New(py, c.config))(b)
		defer func() { require.NoError(b, e.Close(context.Background())) }()
		ways = append(ways, struct {
			name string
			call func(context.Context, *usmarray.Array) error
		}{c.name, func(ctx context.Context, a *usmarray.Array) error {
			return testenv.ErrorOf(e.Call(ctx, "numbamodel:energy", a))
		}})
	}
	rate, cpu := make([]float64, len(ways)), make([]float64, len(ways))
	rounds := 0.0
	for b.Loop() {
		for i, w := range ways {
			r, c := clientsCall(b, w.call, arrays)
			rate[i] += r
			cpu[i] += c
		}
		rounds++
	}
	b.ReportMetric(rate[0]/rounds, "bare-calls/s")
	b.ReportMetric(cpu[0]/rounds, "bare-CPU-us/call")
	for i, w := range ways[1:] {
		b.ReportMetric(rate[i+1]/rate[0], w.name+"-rate-ratio")
		b.ReportMetric(cpu[i+1]/cpu[0], w.name+"-CPU-ratio")
	}
}

// clientsCall makes all clients call for a while. It returns the calls per second and the CPU time per
// call in microseconds.
func clientsCall(b *testing.B, call func(context.Context, *usmarray.Array) error, arrays []*usmarray.Array) (rate, cpu float64) {
	const while = 300 * time.Millisecond
	require.NoError(b, call(b.Context(), arrays[0])) // compiles the function and starts the threads
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var over atomic.Bool
	var group sync.WaitGroup
	began, used := time.Now(), cpuTime(b)
	for _, a := range arrays {
		group.Go(func() {
			for !over.Load() {
				if err := call(ctx, a); err != nil {
					failed.Store(&err)
					return
				}
				calls.Add(1)
			}
		})
	}
	time.Sleep(while)
	over.Store(true)
	group.Wait()
	took, used := time.Since(began), cpuTime(b)-used
	if err := failed.Load(); err != nil {
		require.NoError(b, *err)
	}
	n := float64(calls.Load())
	return n / took.Seconds(), float64(used.Microseconds()) / n
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
