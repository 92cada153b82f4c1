//go:build linux && cgo

package python_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

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
	out, err := py.Run(`
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
`, vars, "r", "errors", "late")
	require.NoError(t, err)
	require.Equal(t, []any{int64(4), "a-b", "", python.Tuple{2.0, 1.0}, nil, "", nil, true, true}, out["r"])
	require.Equal(t, []any{int64(0), int64(1), int64(2), int64(3)}, out["late"], "on threads that Python made")
	for i, says := range []string{"RuntimeError: code 3", "TypeError: ", "TypeError: ", "TypeError: argument 1", "TypeError: ",
		"RuntimeError: panic in Go: oh", "TypeError: "} {
		require.Contains(t, out["errors"].([]any)[i], says)
	}
	// The types of errors come back out of Python.
	_, err = py.Run("half(3)", python.Vars{"half": vars["half"]})
	var mine *myError
	require.ErrorAs(t, err, &mine)
	require.Equal(t, 3, mine.code)
	_, err = py.Run("wrong()", python.Vars{"wrong": vars["wrong"]})
	require.ErrorIs(t, err, errMine)
	// A first context is that of the call.
	f := ok[*python.Object](t)(py.Eval("lambda f: f()", nil))
	defer f.Release()
	o := ok[*python.Object](t)(f.CallContext(context.WithValue(t.Context(), key{}, "the caller"), vars["who"]))
	require.Equal(t, "the caller", ok[string](t)(o.Text()))
	o.Release()
	// It goes with the Python object.
	freed := make(chan struct{})
	func() {
		kept := new([1 << 10]byte)
		once := sync.OnceFunc(func() { close(freed) })
		addCleanup(kept, once)
		o := ok[*python.Object](t)(py.New(func(i int) int { return int(kept[i]) }))
		o.Release()
	}()
	collected(t, freed)
}

// addCleanup calls f when Go has collected what p points to.
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
	}, time.Minute, time.Millisecond, "the function is kept")
}

func generic[T any](v T) T { return v }

// testGenericNames: Python shows the name of a generic function.
func testGenericNames(t *testing.T, py *python.Interpreter) {
	for _, f := range []any{generic[int], generic[map[string]int]} {
		out, err := py.Run("n = f.__name__", python.Vars{"f": f}, "n")
		require.NoError(t, err)
		require.Equal(t, "generic", out["n"])
	}
}
