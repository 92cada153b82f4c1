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
	var e *python.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "ValueError", e.Type)
	require.Equal(t, "outer", e.Message)
	require.Equal(t, "python: ValueError: outer", err.Error())
	require.Contains(t, e.Traceback, "direct cause")
	require.Contains(t, e.Traceback, "in f")
	require.ErrorIs(t, err, python.ValueError)
	require.ErrorIs(t, err, python.Exception("Exception"))
	require.NotErrorIs(t, err, python.TypeError)
	require.NoError(t, e.Unwrap())
	cause := ok[*python.Object](t)(e.Exception().Attr("__cause__"))
	require.Equal(t, "__go__.Mine", ok[string](t)(cause.Type()))
	cause.Release()

	_, err = py.Run("raise KeyError", nil)
	require.EqualError(t, err, "python: KeyError")
	_, err = py.Run("class E(Exception):\n def __str__(self): raise TypeError\nraise E", nil)
	require.ErrorContains(t, err, "str() of the exception failed")
	_, err = py.Run("import json\njson.loads('{')", nil)
	require.ErrorIs(t, err, python.Exception("json.decoder.JSONDecodeError"))
	_, err = py.Run("raise SystemExit(3)", nil)
	require.ErrorIs(t, err, python.SystemExit, "a SystemExit is an error like others")
}

type ownError struct{ n int }

func (e *ownError) Error() string { return fmt.Sprintf("own error %d", e.n) }

var errMapped = errors.New("mapped")

func testGoErrors(t *testing.T, py *python.Interpreter) {
	python.MapError(func(err error) python.Exception {
		if errors.Is(err, errMapped) {
			return python.BufferError
		}
		return ""
	})
	var raise error
	f := ok[*python.Object](t)(py.Func("f", "raises", func(python.Args) (any, error) { return nil, raise }))
	defer f.Release()
	for _, c := range []struct {
		err   error
		class python.Exception
	}{
		{&ownError{1}, python.RuntimeError},
		{fmt.Errorf("wrapped: %w", errMapped), python.BufferError},
		{fmt.Errorf("%w: wrong size", python.ValueError), python.ValueError},
		{fmt.Errorf("read: %w", os.ErrNotExist), "FileNotFoundError"},
		{os.ErrPermission, "PermissionError"},
		{os.ErrExist, "FileExistsError"},
		{os.ErrDeadlineExceeded, "TimeoutError"},
		{errors.ErrUnsupported, python.NotImplementedError},
		{&python.ConversionError{From: "a", To: "b"}, python.TypeError},
		{fmt.Errorf("%w", python.Exception("json.decoder.JSONDecodeError")), python.RuntimeError}, // needs more arguments
		{fmt.Errorf("%w", python.Exception("no.such.Class")), python.RuntimeError},
		{fmt.Errorf("%w", python.Exception("int")), python.RuntimeError},
		{io.EOF, python.RuntimeError},
		{errors.New("not \xff UTF-8"), python.RuntimeError},
	} {
		raise = c.err
		out, err := py.Run("try:\n  f()\nexcept Exception as e:\n  name = type(e).__name__; text = str(e)", python.Vars{"f": f}, "name", "text")
		require.NoError(t, err)
		require.Equal(t, string(c.class), out["name"], "%v", c.err)
		require.Equal(t, strings.ToValidUTF8(c.err.Error(), "�"), out["text"])
		_, err = py.Run("f()", python.Vars{"f": f})
		require.ErrorIs(t, err, c.err, "the Go error comes back out of Python")
		require.ErrorIs(t, err, c.class)
	}
	raise = &ownError{7}
	_, err := f.Call()
	var own *ownError
	require.ErrorAs(t, err, &own)
	require.Equal(t, 7, own.n)

	// A Python exception passes through Go as the same object.
	thrower := ok[*python.Object](t)(py.Eval("lambda exc: (_ for _ in ()).throw(exc)", nil))
	defer thrower.Release()
	through := ok[*python.Object](t)(py.Func("through", "", func(a python.Args) (any, error) {
		return thrower.Call(a.Positional[0])
	}))
	defer through.Release()
	wrapping := ok[*python.Object](t)(py.Func("wrapping", "", func(a python.Args) (any, error) {
		_, err := thrower.Call(a.Positional[0])
		return nil, fmt.Errorf("in Go: %w", err)
	}))
	defer wrapping.Release()
	out, err := py.Run(`
exc = KeyError("k")
try: through(exc)
except KeyError as e: same = e is exc
try: wrapping(exc)
except KeyError as e: cause = e.__cause__ is exc; text = str(e.args[0])
`, python.Vars{"through": through, "wrapping": wrapping}, "same", "cause", "text")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"same": true, "cause": true, "text": "in Go: python: KeyError: 'k'"}, out)

	exc := ok[*python.Object](t)(py.New(fmt.Errorf("%w: as a value", python.ValueError)))
	require.Equal(t, "ValueError", ok[string](t)(exc.Type()))
	exc.Release()
}

func testPanics(t *testing.T, py *python.Interpreter) {
	f := ok[*python.Object](t)(py.Func("boom", "", func(python.Args) (any, error) { panic("kaboom") }))
	defer f.Release()
	_, err := py.Run("f()", python.Vars{"f": f})
	require.ErrorIs(t, err, python.RuntimeError)
	var p *python.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "kaboom", p.Value)
	require.Contains(t, p.Stack, "embed_test.go")
	require.PanicsWithValue(t, "out", func() { _ = py.With(func() error { panic("out") }) })
	require.False(t, python.Held())
	require.NoError(t, py.With(func() error { return nil }))
}
