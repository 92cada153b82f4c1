//go:build cgo && linux

package workers_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// roleEnv is the environment variable with the role of this binary as another program of a test.
const roleEnv = "USMBRIDGE_TEST_WORKERS_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "early" {
		roleEarly() // must run before Main
	}
	workers.Main()
	if role := os.Getenv(roleEnv); role != "" {
		roles[role]()
		os.Exit(0)
	}
	memtest.Main(m)
}

// models is the Python code of the tests. A function that waits sets a byte in shared memory first, so that tests do
// not depend on time.
const models = `
import ctypes, os, time
import numpy

def add(a, b=1): return a + b
def same(*args, **names): return {"args": list(args), "names": names}
def pid(): return os.getpid()
def nothing(x): pass
def fail(): raise KeyError("no such model")
def fail_own():
    class Odd(ValueError): pass
    raise Odd("odd")
def thing(): return [1, object()]
def doubled(x): return numpy.asarray(x) * 2
def double(x):
    v = numpy.asarray(x)
    v *= 2
def into(x, *, outputs): numpy.asarray(outputs["y"])[...] = numpy.asarray(x) + 1
def own(n):
    import usmbridge
    a = usmbridge.zeros(n, dtype="float32", device="host")
    numpy.asarray(a)[...] = 7
    return a
def facts(x): return {"readonly": x.readonly, "shape": list(x.shape), "strides": list(x.strides), "interprocess": x.interprocess,
                      "usm": x.usm_type, "sum": float(numpy.asarray(x).sum())}
def address(x): return numpy.asarray(x).ctypes.data
kept = []
def keep(x): kept.append(x)
def forget(): kept.clear()

def begun(flag): numpy.asarray(flag)[0] = 1
def forever(flag):
    begun(flag)
    while True: pass
def stubborn(flag):
    while True:
        try:
            begun(flag)
            while True: pass
        except BaseException: pass
def in_c(flag):
    libc = ctypes.CDLL(None)
    while True:
        try: begun(flag); libc.sleep(1000)
        except BaseException: pass # the interrupt was raised before the C call
def held(flag):             # waits in C with the interpreter's lock held
    libc = ctypes.PyDLL(None)
    while True:
        try: begun(flag); libc.sleep(100000)
        except BaseException: pass
def until(flag, go, x=None):
    begun(flag)
    go = numpy.asarray(go)
    while not go[0]: time.sleep(0.001)
    return os.getpid()
def exit_at_once(status):
    print("about to leave")
    os._exit(status)
def segfault():
    print("about to fault")
    ctypes.string_at(8)
def busy(seconds):
    end = time.perf_counter() + seconds
    n = 0
    while time.perf_counter() < end: n += 1
    return n
def fork():
    if os.fork() == 0:
        time.sleep(100000)
    os._exit(4)
`

// sink collects the output of workers and logs it if the test fails.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// configured sets the fields of a Config that all tests share.
func configured(t testing.TB, c workers.Config) workers.Config {
	t.Helper()
	c.Python = testpython.Need(t, "numpy")
	c.Modules = append([]workers.Module{{Name: "models", Source: models}}, c.Modules...)
	if c.Output == nil {
		out := &sink{}
		c.Output = out
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the workers wrote:\n%s", out)
			}
		})
	}
	return c
}

// open returns a Pool that is ready. It is closed at the end of the test.
func open(t testing.TB, c workers.Config) *workers.Pool {
	t.Helper()
	p := opening(t, c)
	require.NoError(t, p.Ready(limited(t)))
	return p
}

func opening(t testing.TB, c workers.Config) *workers.Pool {
	t.Helper()
	p := testenv.Must(workers.New(configured(t, c)))(t)
	t.Cleanup(func() {
		require.NoError(t, p.Close(context.Background()))
		for _, w := range p.Workers() {
			require.Equal(t, workers.Dead, w.State)
		}
	})
	return p
}

// soon is the maximum wait for expected events, such as repeated restarts of workers, on a machine under load.
const soon = 5 * time.Minute

// started makes a call on a goroutine of its own and returns the channel of its error.
func started(p *workers.Pool, ctx context.Context, function string, args ...any) <-chan error {
	over := make(chan error, 1)
	go func() { over <- testenv.ErrorOf(p.Call(ctx, function, args...)) }()
	return over
}

// limited returns a context with the deadline soon.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what func() bool, message string) {
	t.Helper()
	require.Eventually(t, what, soon, 2*time.Millisecond, message)
}

// memory returns a resource of memory that workers can map.
func memory(t testing.TB, a segment.Audience) *testMemory {
	t.Helper()
	r := testenv.Must(segment.Default(nil, syclobj.USMUnknown, a))(t)
	return &testMemory{t, r}
}

type testMemory struct {
	t testing.TB
	r memmgr.Resource
}

func (m *testMemory) floats(values ...float32) *usmarray.Array {
	m.t.Helper()
	return testenv.Held(usmarray.FromSlice(m.r, values, []int{len(values)}))(m.t)
}

// flag returns an array of one byte, 0, for a worker to set.
func (m *testMemory) flag() *usmarray.Array {
	m.t.Helper()
	return testenv.Held(usmarray.Zeros(m.r, usmarray.Uint8, []int{1}))(m.t)
}

// isSet reports whether a worker has set the flag. It does not fail the test, so any goroutine can call it.
func isSet(flag *usmarray.Array) bool {
	v, err := flag.At(0)
	return err == nil && v == uint8(1)
}

func floatsOf(t testing.TB, v any) []float32 {
	t.Helper()
	a, ok := v.(*usmarray.Array)
	require.True(t, ok, "%T", v)
	return testenv.Must(usmarray.ToSlice[float32](a))(t)
}
