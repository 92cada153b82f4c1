//go:build linux && cgo

package python_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

func testExceptions(t *testing.T, py *python.Interpreter) {
	_, err := py.Run(`
class Mine(LookupError): pass
def f():
    raise Mine("found", "nothing")
try:
    f()
except Mine as e:
    raise ValueError("outer") from e
`, nil)
	e := testenv.As[*python.Error](t, err)
	require.Equal(t, "ValueError", e.Type)
	require.Equal(t, "outer", e.Message)
	require.Equal(t, "python: ValueError: outer", err.Error())
	require.Contains(t, e.Traceback, "direct cause")
	require.Contains(t, e.Traceback, "in f")
	require.ErrorIs(t, err, python.ValueError)
	require.ErrorIs(t, err, python.Exception("Exception"))
	require.NotErrorIs(t, err, python.TypeError)
	require.NoError(t, e.Unwrap())
	cause := testenv.Held(e.Exception().Attr("__cause__"))(t)
	require.Equal(t, "__go__.Mine", testenv.Must(cause.Type())(t))

	require.EqualError(t, testenv.ErrorOf(py.Run("raise KeyError", nil)), "python: KeyError")
	require.ErrorContains(t, testenv.ErrorOf(py.Run("class E(Exception):\n def __str__(self): raise TypeError\nraise E", nil)), "str() of the exception failed")
	require.ErrorIs(t, testenv.ErrorOf(py.Run("import json\njson.loads('{')", nil)), python.Exception("json.decoder.JSONDecodeError"))
	require.ErrorIs(t, testenv.ErrorOf(py.Run("raise SystemExit(3)", nil)), python.SystemExit, "a SystemExit is not returned as an error")
}

type ownError struct{ n int }

func (e *ownError) Error() string { return fmt.Sprintf("own error %d", e.n) }

func testGoErrors(t *testing.T, py *python.Interpreter) {
	var raise error
	f := testenv.Held(py.Func("f", "raises", func(python.Args) (any, error) { return nil, raise }))(t)
	for _, c := range []struct {
		err   error
		class python.Exception
	}{
		{&ownError{1}, python.RuntimeError},
		{fmt.Errorf("%w: %w", python.BufferError, io.EOF), python.BufferError},
		{fmt.Errorf("%w: wrong size", python.ValueError), python.ValueError},
		{fmt.Errorf("read: %w", os.ErrNotExist), "FileNotFoundError"},
		{os.ErrPermission, "PermissionError"},
		{os.ErrExist, "FileExistsError"},
		{os.ErrDeadlineExceeded, "TimeoutError"},
		{errors.ErrUnsupported, python.NotImplementedError},
		{&python.ConversionError{From: "a", To: "b"}, python.TypeError},
		{fmt.Errorf("%w", python.Exception("json.decoder.JSONDecodeError")), python.RuntimeError}, // The class needs more arguments.
		{fmt.Errorf("%w", python.Exception("no.such.Class")), python.RuntimeError},
		{fmt.Errorf("%w", python.Exception("int")), python.RuntimeError},
		{io.EOF, python.RuntimeError},
		{errors.New("not \xff UTF-8"), python.RuntimeError},
	} {
		raise = c.err
		out := testenv.Must(py.Run("try:\n  f()\nexcept Exception as e:\n  name = type(e).__name__; text = str(e)", python.Vars{"f": f}, "name", "text"))(t)
		require.Equal(t, string(c.class), out["name"], "%v", c.err)
		require.Equal(t, strings.ToValidUTF8(c.err.Error(), "�"), out["text"])
		_, err := py.Run("f()", python.Vars{"f": f})
		require.ErrorIs(t, err, c.err, "the Go error is lost in Python")
		require.ErrorIs(t, err, c.class)
	}
	raise = &ownError{7}
	_, err := f.Call()
	own := testenv.As[*ownError](t, err)
	require.Equal(t, 7, own.n)

	// A Python exception that passes through Go is raised as the same object.
	thrower := testenv.Held(py.Eval("lambda exc: (_ for _ in ()).throw(exc)", nil))(t)
	through := testenv.Held(py.Func("through", "", func(a python.Args) (any, error) {
		return thrower.Call(a.Positional[0])
	}))(t)
	wrapping := testenv.Held(py.Func("wrapping", "", func(a python.Args) (any, error) {
		_, err := thrower.Call(a.Positional[0])
		return nil, fmt.Errorf("in Go: %w", err)
	}))(t)
	out := testenv.Must(py.Run(`
exc = KeyError("k")
try: through(exc)
except KeyError as e: same = e is exc
try: wrapping(exc)
except KeyError as e: cause = e.__cause__ is exc; text = str(e.args[0])
`, python.Vars{"through": through, "wrapping": wrapping}, "same", "cause", "text"))(t)
	require.Equal(t, map[string]any{"same": true, "cause": true, "text": "in Go: python: KeyError: 'k'"}, out)

	exc := testenv.Held(py.New(fmt.Errorf("%w: as a value", python.ValueError)))(t)
	require.Equal(t, "ValueError", testenv.Must(exc.Type())(t))
}

func testPanics(t *testing.T, py *python.Interpreter) {
	f := testenv.Held(py.Func("boom", "", func(python.Args) (any, error) { panic("kaboom") }))(t)
	_, err := py.Run("f()", python.Vars{"f": f})
	require.ErrorIs(t, err, python.RuntimeError)
	p := testenv.As[*python.PanicError](t, err)
	require.Equal(t, "kaboom", p.Value)
	require.Contains(t, p.Stack, "embed_test.go")
	require.PanicsWithValue(t, "out", func() { _ = py.With(func() error { panic("out") }) })
	require.False(t, python.Held())
	require.NoError(t, py.With(func() error { return nil }))
}

// testErrorsKeepNothing checks that an error does not keep the object of an AttributeError or
// the local variables of frames in tracebacks: those of its exception, of causes and contexts
// and of group members.
func testErrorsKeepNothing(t *testing.T, py *python.Interpreter) {
	m := testenv.Must(py.Module("keeping", `
import weakref

made = []

class Thing:
    def __init__(self): made.append(weakref.ref(self))

class Odd(AttributeError):
    def __setattr__(self, name, value): raise RuntimeError

def local(cls=KeyError):
    thing = Thing()
    raise cls
def attribute(): Thing().absent
def odd(): raise Odd(obj=Thing())
def cause():
    thing = Thing()
    try: thing.absent
    except AttributeError as e: raise ValueError from e
def context():
    try: local()
    finally: attribute()
def suppressed():
    try: local()
    except KeyError: raise ValueError from None
def deep(n=300):
    e = None
    for _ in range(n):
        try: attribute()
        except AttributeError as new: new.__cause__, e = e, new
    raise e
def caught(f):
    try: f()
    except Exception as e: return e
def group(): raise ExceptionGroup("g", [caught(cause), ExceptionGroup("h", [caught(context)])])
def cycle():
    a, b = caught(attribute), caught(local)
    a.__cause__, b.__cause__ = b, a
    raise a
def alive(): return sum(r() is not None for r in made), len(made)
`))(t)
	defer m.Release()
	var kept []error
	for _, name := range []string{"local", "attribute", "odd", "cause", "context", "suppressed", "deep", "group", "cycle"} {
		_, err := m.Method(name)
		var e *python.Error
		require.ErrorAs(t, err, &e, name)
		kept = append(kept, err)
		counts := testenv.Held(m.Method("alive"))(t)
		n := testenv.Must(counts.Value())(t).(python.Tuple)
		require.NotZero(t, n[1], name)
		require.Zero(t, n[0], "%s: its error keeps objects alive, of %d", name, n[1])
	}
	// The causes are kept.
	e := testenv.As[*python.Error](t, kept[3])
	require.Contains(t, e.Traceback, "has no attribute 'absent'")
	cause := testenv.Held(e.Exception().Attr("__cause__"))(t)
	require.Equal(t, "AttributeError", testenv.Must(cause.Type())(t))
	require.True(t, testenv.Held(cause.Attr("obj"))(t).IsNone())
	require.NotEmpty(t, kept)
}

// testHandledExceptionsStay checks that a failed call does not clear the exceptions that
// enclosing Python code is handling, although they are the context of its exception.
func testHandledExceptionsStay(t *testing.T, py *python.Interpreter) {
	f := testenv.Held(py.Func("fails", "", func(python.Args) (any, error) {
		require.ErrorIs(t, testenv.ErrorOf(py.Run("raise KeyError", nil)), python.KeyError)
		return nil, nil
	}))(t)
	out := testenv.Must(py.Run(`
def local():
    word = "here"
    raise ValueError
try: local()
except ValueError as outer:
    try: "text".absent
    except AttributeError as inner:
        f()
        obj = inner.obj
    word = outer.__traceback__.tb_next.tb_frame.f_locals.get("word")
`, python.Vars{"f": f}, "obj", "word"))(t)
	require.Equal(t, map[string]any{"obj": "text", "word": "here"}, out)

	// A suspended generator that caught the cause of the error can continue.
	out = testenv.Must(py.Run(`
def connection():
    n = 0
    while True:
        n += 1
        try:
            if n % 2: raise OSError
            yield n
        except OSError as e:
            failed.append(e)
            yield -1
failed, numbers = [], connection()
def read():
    n = next(numbers)
    if n < 0: raise ValueError from failed[-1]
    return n
`, nil, "read"))(t)
	read := out["read"].(*python.Object)
	defer read.Release()
	for range 3 {
		require.ErrorIs(t, testenv.ErrorOf(read.Call()), python.ValueError)
		require.Positive(t, testenv.Must(python.As[int](testenv.Held(read.Call())(t)))(t))
	}
}
