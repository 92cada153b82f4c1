//go:build linux && cgo

package python_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/python/internal/testmod"
)

func testCallbacks(t *testing.T, py *python.Interpreter) {
	var kept *python.Object
	f := testenv.Held(py.Func("add", "adds two", func(a python.Args) (any, error) {
		require.True(t, python.Held())
		kept = a.Positional[0]
		x, err := a.Positional[0].Int()
		if err != nil {
			return nil, err
		}
		y, err := a.Keyword["y"].Int()
		return x + y, err
	}))(t)
	out := testenv.Must(py.Run("r = f(40, y=2); n = f.__name__; d = f.__doc__", python.Vars{"f": f}, "r", "n", "d"))(t)
	require.Equal(t, map[string]any{"r": int64(42), "n": "add", "d": "adds two"}, out)
	require.Panics(t, func() { _, _ = kept.Int() }, "arguments end with the call")
	require.ErrorIs(t, testenv.ErrorOf(f.Call("x", python.Kwargs{"y": 1})), python.TypeError)

	// An owned Object as the result is released. A result that cannot be converted is an error.
	id := testenv.Held(py.New(func(a python.Args) (any, error) { return a.Positional[0].Retain() }))(t)
	list := testenv.Held(py.New([]int{1}))(t)
	same := testenv.Must(id.Call(list))(t)
	require.Equal(t, list.Pointer(), same.Pointer())
	same.Release()
	arg := testenv.Held(py.New(python.Func(func(a python.Args) (any, error) { return a.Positional[0], nil })))(t)
	same = testenv.Must(arg.Call(list))(t)
	require.Equal(t, list.Pointer(), same.Pointer())
	same.Release()
	bad := testenv.Held(py.Func("bad", "", func(python.Args) (any, error) { return make(chan int), nil }))(t)
	_, err := bad.Call()
	testenv.Failed(t, err, python.TypeError, "result of bad")

	// Calls from Python threads, and recursion through both languages.
	out = testenv.Must(py.Run(`
import threading
results = []
threads = [threading.Thread(target=lambda i=i: results.append(f(i, y=i))) for i in range(8)]
for th in threads: th.start()
for th in threads: th.join()
results.sort()
`, python.Vars{"f": f}, "results"))(t)
	require.Len(t, out["results"], 8)
	var fact *python.Object
	fact = testenv.Held(py.Func("fact", "", func(a python.Args) (any, error) {
		n, err := a.Positional[0].Int()
		if err != nil || n <= 1 {
			return 1, err
		}
		r, err := fact.Call(n - 1)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		m, err := r.Int()
		return n * m, err
	}))(t)
	require.Equal(t, int64(479001600), testenv.Must(testenv.Held(fact.Call(12))(t).Int())(t))
}

func testBuiltinModule(t *testing.T, py *python.Interpreter) {
	out := testenv.Must(py.Run(`
import usmb_testmod, gc, weakref
v = usmb_testmod.Vector(5)
total, size, raw = v.sum(), v.size, memoryview(v).nbytes
try: v.sum(1)
except TypeError as e: text = str(e)
try: usmb_testmod.Vector.x = 1
except TypeError: fixed = True
for i in range(10000): usmb_testmod.Vector(100)
import sys
leak = sys.getrefcount(usmb_testmod.Vector)
for i in range(1000): usmb_testmod.Vector(1)
leak = sys.getrefcount(usmb_testmod.Vector) - leak
`, nil, "total", "size", "raw", "text", "fixed", "leak"))(t)
	require.Equal(t, map[string]any{"total": 10.0, "size": int64(5), "raw": int64(40),
		"text": "sum takes no arguments (1 given)", "fixed": true, "leak": int64(0)}, out)
	before := testmod.Drains()
	require.NoError(t, testenv.ErrorOf(py.Run("import usmb_testmod\nusmb_testmod.kick()\nx = [i for i in range(1000)]", nil)))
	require.NoError(t, py.With(func() error { return nil }))
	require.Greater(t, testmod.Drains(), before)
	n := testmod.Drains()
	for range 10 {
		require.NoError(t, py.With(func() error { return nil }))
	}
	require.Equal(t, n, testmod.Drains(), "drained without a request")
}

func testForeignThread(t *testing.T, py *python.Interpreter) {
	o, alive := watched(t, py)
	p := testenv.Must(python.NewReference(o))(t)
	o.Release()
	require.True(t, alive())
	testmod.DropOnThread(p)
	require.False(t, alive(), "the next entry did not release the reference")
}

func testGIL(t *testing.T, py *python.Interpreter) {
	counter := testenv.Held(py.New([]int{}))(t)
	back := testenv.Held(py.New(func(a python.Args) (any, error) {
		n, err := a.Positional[0].Int()
		return n + 1, err
	}))(t)
	step := testenv.Held(py.Eval("lambda c, f: c.append(f(1))", nil))(t)
	const goroutines, rounds = 32, 50
	var inside atomic.Int32
	testenv.Together(t, goroutines, func(int) error {
		for i := range rounds {
			err := py.With(func() error {
				if inside.Add(1) != 1 {
					return errors.New("two holders of the GIL")
				}
				n, err := counter.Len()
				inside.Add(-1) // before Python code can release the GIL
				if err != nil || n > goroutines*rounds {
					return fmt.Errorf("length %d: %w", n, err)
				}
				return py.With(func() error {
					r, err := step.Call(counter, back)
					r.Release()
					return err
				})
			})
			if err != nil {
				return err
			}
			if i%10 == 0 {
				if _, err := py.Run("x = sum(range(1000))", nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.Equal(t, goroutines*rounds, testenv.Must(counter.Len())(t))
}

func testWithoutGIL(t *testing.T, py *python.Interpreter) {
	// Inside With, wait for a goroutine that needs Python.
	require.NoError(t, py.With(func() error {
		done := make(chan error)
		go func() { done <- testenv.ErrorOf(py.Run("x = 1", nil)) }()
		var err error
		py.WithoutGIL(func() {
			require.False(t, python.Held())
			err = <-done
			_, again := py.Run("y = 2", nil) // With inside WithoutGIL inside With
			err = errors.Join(err, again)
		})
		require.True(t, python.Held())
		return err
	}))
	py.WithoutGIL(func() {}) // The GIL is not held.
	f := testenv.Held(py.New(func(python.Args) (any, error) {
		var err error
		py.WithoutGIL(func() { _, err = py.Run("z = 3", nil) })
		return nil, err
	}))(t)
	testenv.Must(f.Call())(t).Release()
}

func testFork(t *testing.T, py *python.Interpreter) {
	f := testenv.Held(py.New(func(python.Args) (any, error) { return 1, nil }))(t)
	out := testenv.Must(py.Run(`
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork in a process of many threads
pid = os.fork()
if pid == 0:
    try:
        f()
    except RuntimeError as e:
        del f, e  # frees the function: nothing of it may enter Go
        os._exit(42)
    except BaseException:
        os._exit(2)
    os._exit(1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
parent = f()
`, python.Vars{"f": f}, "status", "parent"))(t)
	require.Equal(t, map[string]any{"status": int64(42), "parent": int64(1)}, out)
}

var errMine = errors.New("mine")

type myError struct{ code int }

func (e *myError) Error() string { return fmt.Sprint("code ", e.code) }

func testTypedFuncs(t *testing.T, py *python.Interpreter) {
	type key struct{}
	vars := python.Vars{
		"half": func(n int) (int, error) {
			if n%2 != 0 {
				return 0, &myError{n}
			}
			return n / 2, nil
		},
		"join":   func(sep string, parts ...string) string { return strings.Join(parts, sep) },
		"swap":   func(x, y float64) (float64, float64) { return y, x },
		"nobody": func() {},
		"who":    func(ctx context.Context) string { s, _ := ctx.Value(key{}).(string); return s },
		"same":   func(o *python.Object) (*python.Object, error) { return o.Retain() },
		"boom":   func(int) error { panic("oh") },
		"wrong":  func() error { return errMine },
		"none":   (func(int) int)(nil),
	}
	out := testenv.Must(py.Run(`
import threading
r = [half(8), join("-", "a", "b"), join("-"), swap(1, 2), nobody(), who(), none, half.__name__ != ""]
x = object()
r.append(same(x) is x)
def text(f, *a, **k):
    try: f(*a, **k)
    except Exception as e: return type(e).__name__ + ": " + str(e).splitlines()[0]
errors = [text(half, 3), text(half), text(half, 1, 2), text(half, "x"), text(half, n=2), text(boom, 1), text(join)]
threads = [threading.Thread(target=lambda i=i: r.append(half(2 * i))) for i in range(4)]
for th in threads: th.start()
for th in threads: th.join()
late = sorted(r[-4:])
r = r[:-4]
`, vars, "r", "errors", "late"))(t)
	require.Equal(t, []any{int64(4), "a-b", "", python.Tuple{2.0, 1.0}, nil, "", nil, true, true}, out["r"])
	require.Equal(t, []any{int64(0), int64(1), int64(2), int64(3)}, out["late"], "on threads of Python")
	for i, says := range []string{"RuntimeError: code 3", "TypeError: ", "TypeError: ", "TypeError: argument 1", "TypeError: ",
		"RuntimeError: panic in Go: oh", "TypeError: "} {
		require.Contains(t, out["errors"].([]any)[i], says)
	}
	// A Go error keeps its type on its way through Python.
	_, err := py.Run("half(3)", python.Vars{"half": vars["half"]})
	mine := testenv.As[*myError](t, err)
	require.Equal(t, 3, mine.code)
	require.ErrorIs(t, testenv.ErrorOf(py.Run("wrong()", python.Vars{"wrong": vars["wrong"]})), errMine)
	// A context as the first parameter is that of the call.
	f := testenv.Held(py.Eval("lambda f: f()", nil))(t)
	o := testenv.Must(f.CallContext(context.WithValue(t.Context(), key{}, "the caller"), vars["who"]))(t)
	require.Equal(t, "the caller", testenv.Must(o.Text())(t))
	o.Release()
	// The Go function is freed with the Python object.
	freed := make(chan struct{})
	func() {
		kept := new([1 << 10]byte)
		once := sync.OnceFunc(func() { close(freed) })
		addCleanup(kept, once)
		testenv.Must(py.New(func(i int) int { return int(kept[i]) }))(t).Release()
	}()
	collected(t, freed)
}

// addCleanup calls f after Go has collected *p.
func addCleanup(p *[1 << 10]byte, f func()) {
	runtime.AddCleanup(p, func(struct{}) { f() }, struct{}{})
}

func collected(t *testing.T, freed <-chan struct{}) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	}, time.Minute, time.Millisecond, "the function is not freed")
}

func generic[T any](v T) T { return v }

// testGenericNames checks the Python name of a generic function.
func testGenericNames(t *testing.T, py *python.Interpreter) {
	for _, f := range []any{generic[int], generic[map[string]int]} {
		require.Equal(t, "generic", testenv.Must(py.Run("n = f.__name__", python.Vars{"f": f}, "n"))(t)["n"])
	}
}
