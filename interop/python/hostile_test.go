//go:build linux && cgo

package python_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/python/internal/testmod"
)

// nilError is an error whose nil pointer panics in Error.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// testErrorsThatPanic checks that a panic in a method of an error does not end the process.
func testErrorsThatPanic(t *testing.T, py *python.Interpreter) {
	f := testenv.Held(py.New(func() error { var e *nilError; return e }))(t)
	_, err := f.Call()
	require.ErrorIs(t, err, python.RuntimeError)
	testenv.As[*python.PanicError](t, err)
}

// testOddClasses checks exception classes whose instances are not exceptions or whose names
// are not text.
func testOddClasses(t *testing.T, py *python.Interpreter) {
	m := testenv.Must(py.Module("oddclasses", `
class Number(Exception):
    def __new__(cls, *args): return 5
class Meta(type):
    answer = None
    def __getattribute__(cls, name):
        if name == "__qualname__": return Meta.answer
        if name == "__mro__": return [cls]
        return type.__getattribute__(cls, name)
class Named(Exception, metaclass=Meta): pass
def name_it(x): Meta.answer = x
def fail(): raise Named("named")
named = Named()
`))(t)
	defer m.Release()
	f := testenv.Held(py.New(func() error {
		return fmt.Errorf("five: %w", python.Exception("oddclasses.Number"))
	}))(t)
	_, err := f.Call()
	testenv.Failed(t, err, python.RuntimeError, "five")

	named := testenv.Held(m.Attr("named"))(t)
	for _, name := range []any{5, bytes.Repeat([]byte{0x9c, 0x41, 0x41, 0x41}, 64), nil} {
		testenv.Must(m.Method("name_it", name))(t).Release()
		require.ErrorIs(t, testenv.ErrorOf(named.Type()), python.TypeError)
		_, err = m.Method("fail")
		e := testenv.As[*python.Error](t, err)
		require.Equal(t, "named", e.Message)
		out, err := py.Run("x = 1", nil, "x") // fails if an exception is still set
		require.NoError(t, err)
		require.Equal(t, int64(1), out["x"])
	}
}

// testBytearrayChangedDuringCopy checks that Bytes copies a consistent bytearray while another goroutine
// drops objects whose finalizers change it.
func testBytearrayChangedDuringCopy(t *testing.T, py *python.Interpreter) {
	// Inside With, dropped references are released at the beginning of the next operation, not
	// at the end of one, so that Go can read its result.
	kick := testenv.Held(py.Eval("__import__('usmb_testmod').kick", nil))(t)
	require.NoError(t, py.With(func() error {
		n := testmod.Drains()
		r, err := kick.Call()
		require.Equal(t, n, testmod.Drains())
		r.Release()
		require.Greater(t, testmod.Drains(), n, "the next operation did not begin with a drain")
		return err
	}))

	m := testenv.Must(py.Module("moving", `
size = 1000
data = bytearray(b"a" * size)
kept = []
class Mover:
    def __del__(self):
        data.clear()
        kept[:] = [bytearray(b"x" * size)]    # where the other was
        data.extend(b"a" * size)
`))(t)
	defer m.Release()
	data := testenv.Held(m.Attr("data"))(t)
	movers := make([]unsafe.Pointer, 300)
	for i := range movers {
		o := testenv.Must(m.Method("Mover"))(t)
		p := testenv.Must(python.NewReference(o))(t)
		o.Release()
		movers[i] = p
	}
	var dropped atomic.Bool
	var copies atomic.Int64
	go func() {
		defer dropped.Store(true)
		for _, p := range movers {
			for next := copies.Load() + 3; copies.Load() < next; {
			}
			for range rand.IntN(2000) { // until some point of the next copy
				runtime.KeepAlive(p)
			}
			python.DropLater(p)
		}
	}()
	want := bytes.Repeat([]byte("a"), 1000)
	for !dropped.Load() {
		require.NoError(t, py.With(func() error {
			for range 100 {
				b, err := data.Bytes()
				if err != nil {
					return err
				}
				copies.Add(1)
				if !bytes.Equal(b, want) {
					return fmt.Errorf("%q", b[:8])
				}
			}
			return nil
		}))
	}
}

// testNULs checks that source text with a NUL is an error.
func testNULs(t *testing.T, py *python.Interpreter) {
	require.ErrorIs(t, testenv.ErrorOf(py.Eval("1\x00+1", nil)), python.ValueError)
	require.ErrorIs(t, testenv.ErrorOf(py.Run("x = 1\x00\n", nil, "x")), python.ValueError)
	require.ErrorIs(t, testenv.ErrorOf(py.Module("nul", "x = 1\n\x00")), python.ValueError)
}

func testNarrowFloats(t *testing.T, py *python.Interpreter) {
	for _, c := range []struct {
		expression string
		fits       bool
	}{{"1e300", false}, {"-1e300", false}, {"float('inf')", true}, {"1.5", true}} {
		o := testenv.Must(py.Eval(c.expression, nil))(t)
		v, err := python.As[float32](o)
		if c.fits {
			require.NoError(t, err)
		} else {
			require.NotNil(t, testenv.As[*python.ConversionError](t, err), "%v", v)
		}
		o.Release()
	}
	o := testenv.Held(py.Eval("1e300j", nil))(t)
	testenv.As[*python.ConversionError](t, testenv.ErrorOf(python.As[complex64](o)))
	require.Equal(t, complex(0, 1e300), testenv.Must(python.As[complex128](o))(t))
}

// testAfterSubinterpreter checks the detection of the GIL after the creation of a
// subinterpreter, when PyGILState_Check returns 1 on every thread.
func testAfterSubinterpreter(t *testing.T, py *python.Interpreter) {
	_, err := py.Run(`
try: import _interpreters as i
except ImportError: import _xxsubinterpreters as i
i.destroy(i.create())
`, nil)
	require.NoError(t, err)
	require.False(t, python.Held())
	ran := false
	py.WithoutGIL(func() { ran = true })
	require.True(t, ran)
	require.NoError(t, py.With(func() error {
		require.True(t, python.Held())
		py.WithoutGIL(func() { require.False(t, python.Held()) })
		require.True(t, python.Held())
		return nil
	}))
}

// TestWidePaths checks that bytes of a path that are not UTF-8 become lone surrogates.
func TestWidePaths(t *testing.T) {
	require.Equal(t, []int32{'a', 0xDCEF, 'b', 0xFFFD, 0xDCFF, 0x1F600}, python.Wide("a\xefb\uFFFD\xff😀"))
}
