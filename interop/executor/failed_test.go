//go:build cgo && linux

package executor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// failing defines Python functions whose exceptions refer to their arguments.
const failing = `
def attribute(x, f): x.absent
def value(x, f): raise ValueError(x)
def cause(x, f):
    try: x.absent
    except AttributeError as e: raise RuntimeError("wrapped") from e
def group(x, f): raise ExceptionGroup("g", [ValueError(x)])
def go_error(x, f):
    try: f()
    except Exception as e:
        e.x = x
        raise
def stopped(x, f):
    try:
        f()
        while True: pass
    except KeyboardInterrupt: raise ValueError(x)
class Odd:
    def __init__(self, x): self.x = x
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **_): raise ValueError(self.x)
def result(x, f): return Odd(x)
`

// TestFailedCallsKeepNothing checks that the argument of a failed call can be freed when the call has
// returned, although its error is kept.
func TestFailedCallsKeepNothing(t *testing.T) {
	e, r := open(t, executor.Config{})
	py, _ := start(t)
	testenv.Held(py.Module("failing", failing))(t)
	const size = 1 << 20
	errOwn := errors.New("an error of Go's")
	var kept []error
	for _, c := range []struct {
		function string
		is       error
		f        func(cancel func()) error
	}{
		{"attribute", python.AttributeError, nil},
		{"value", python.ValueError, nil},
		{"cause", python.RuntimeError, nil},
		{"group", python.Exception("ExceptionGroup"), nil},
		{"go_error", errOwn, func(func()) error { return errOwn }},
		{"stopped", python.ErrInterrupted, func(cancel func()) error { cancel(); return nil }},
		{"result", python.ValueError, nil},
	} {
		t.Run(c.function, func(t *testing.T) {
			limit := memmgr.NewLimit(r, size)
			x := testenv.Held(usmarray.Zeros(limit, usmarray.Uint8, []int{size}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var f any
			if c.f != nil {
				f = func() error { return c.f(cancel) }
			}
			_, err := e.Call(ctx, "failing:"+c.function, x, f)
			require.ErrorIs(t, err, c.is)
			if c.function == "stopped" {
				require.ErrorIs(t, err, python.ValueError)
			}
			pe := testenv.As[*python.Error](t, err)
			require.NotEmpty(t, pe.Traceback)
			require.Nil(t, pe.Exception())
			kept = append(kept, err)
			x.Release()
			require.Eventually(t, func() bool { return limit.Used() == 0 }, soon, time.Millisecond, "the error keeps the argument")
		})
	}
	require.NotEmpty(t, kept)
}
