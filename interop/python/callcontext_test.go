//go:build linux && cgo

package python_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

// contextCode defines the functions that these tests call.
const contextCode = `
def forever(begun):
    begun()
    while True: pass
def stubborn(begun):
    try:
        begun()
        while True: pass
    except BaseException as e:
        return type(e).__name__
def changed(begun):
    try:
        begun()
        while True: pass
    except BaseException:
        raise ValueError("on the way out")
def hidden(begun):
    try:
        begun()
        while True: pass
    except BaseException: pass
    raise ValueError("of its own")
def spin(n):
    x = 0
    for i in range(n): x += i
    return x
`

func contextModule(t *testing.T, py *python.Interpreter) *python.Object {
	t.Helper()
	return testenv.Held(py.Module("gocontext", contextCode))(t)
}

func testCallContext(t *testing.T, py *python.Interpreter) {
	m := contextModule(t, py)
	spin := testenv.Held(m.Attr("spin"))(t)
	reason := errors.New("the client has gone")

	// A call that ends before its context behaves as an ordinary call.
	ctx, cancel := context.WithCancelCause(context.Background())
	r := testenv.Must(spin.CallContext(ctx, 10))(t)
	require.Equal(t, int64(45), testenv.Must(r.Int())(t))
	r.Release()
	_, err := spin.CallContext(ctx, "x")
	require.ErrorIs(t, err, python.TypeError)
	require.NotErrorIs(t, err, python.ErrNotStopped)
	require.ErrorContains(t, testenv.ErrorOf(spin.CallContext(ctx, make(chan int))), "chan int")
	cancel(reason)
	r = testenv.Must(spin.CallContext(context.Background(), 10))(t)
	r.Release()

	// The context ended before the call.
	_, err = spin.CallContext(ctx, 10)
	failed := testenv.As[*python.OpError](t, err)
	require.Equal(t, python.ErrNotBegun, failed.Kind)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)

	for _, c := range []struct {
		name string
		kind error
		is   error // the exception, or nil
		says string
	}{
		{"forever", python.ErrInterrupted, python.KeyboardInterrupt, ""},
		{"changed", python.ErrInterrupted, python.ValueError, "on the way out"},
		{"stubborn", python.ErrNotStopped, nil, "it caught the exception"},
		{"hidden", python.ErrNotStopped, python.ValueError, "of its own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, held := range []bool{false, true} {
				ctx, cancel := context.WithCancelCause(context.Background())
				begun := testenv.Held(py.New(func(python.Args) (any, error) { go cancel(reason); return nil, nil }))(t)
				call := func() error {
					f := testenv.Held(m.Attr(c.name))(t)
					o, err := f.CallContext(ctx, begun)
					require.Nil(t, o)
					return err
				}
				var err error
				if held {
					err = py.With(call) // Python releases the GIL between byte codes.
				} else {
					err = call()
				}
				require.ErrorAs(t, err, &failed)
				require.Equal(t, c.kind, failed.Kind, "%v", err)
				require.ErrorIs(t, err, context.Canceled)
				testenv.Failed(t, err, reason, c.says)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
					e := testenv.As[*python.Error](t, err)
					require.Contains(t, e.Traceback, "in "+c.name)
				}
			}
		})
	}
}

// testCallContextInC checks that a C function is not interrupted, and that the error reports
// it.
func testCallContextInC(t *testing.T, py *python.Interpreter) {
	sleep := testenv.Held(py.Eval("__import__('time').sleep", nil))(t)
	// The callable is a C function, so no byte code follows that could raise the exception.
	// On a loaded machine the deadline may pass before the call begins or after it ends. The
	// test then tries again.
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := sleep.CallContext(ctx, 0.5)
		cancel()
		if errors.Is(err, python.ErrNotBegun) {
			continue
		}
		if err == nil {
			continue // The timer fired after the sleep.
		}
		require.ErrorIs(t, err, python.ErrNotStopped)
		testenv.Failed(t, err, context.DeadlineExceeded, "C code is not stopped")
		return
	}
	t.Fatal("in 100 trials, no deadline of 20 ms passed during a sleep of 500 ms")
}

// testCallContextWaits checks that the wait for the GIL ends with the context, and that the
// call does not run later.
func testCallContextWaits(t *testing.T, py *python.Interpreter) {
	calls := 0
	count := testenv.Held(py.New(func(python.Args) (any, error) { calls++; return nil, nil }))(t)
	require.NoError(t, py.With(func() error {
		// This goroutine holds the GIL, so none of these calls can begin.
		testenv.Together(t, 16, func(int) error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_, err := count.CallContext(ctx)
			if !errors.Is(err, python.ErrNotBegun) || !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		})
		return nil
	}))
	testenv.Must(count.CallContext(t.Context()))(t).Release()
	require.Equal(t, 1, calls, "a dropped call ran later")
}

// testCallContextMisuse checks that a released argument panics on the caller's goroutine.
func testCallContextMisuse(t *testing.T, py *python.Interpreter) {
	o := testenv.Must(py.New(1))(t)
	f := testenv.Held(py.Eval("lambda x: x", nil))(t)
	o.Release()
	require.Panics(t, func() { _, _ = f.CallContext(t.Context(), o) })
	require.Panics(t, func() { _, _ = o.CallContext(t.Context()) })
	testenv.Must(f.CallContext(t.Context(), 1))(t).Release()
}

// testCallContextNested checks that both calls are interrupted if a call and a nested call
// share a context.
func testCallContextNested(t *testing.T, py *python.Interpreter) {
	m := contextModule(t, py)
	forever := testenv.Held(m.Attr("forever"))(t)
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		inner := make(chan error, 1)
		begun := testenv.Held(py.New(func(python.Args) (any, error) { go cancel(); return nil, nil }))(t)
		again := testenv.Must(py.New(func(python.Args) (any, error) {
			_, err := forever.CallContext(ctx, begun)
			inner <- err
			return nil, err
		}))(t)
		outer := testenv.Held(py.Eval("lambda f, g, b: (f(), g(b))", nil))(t)
		_, err := outer.CallContext(ctx, again, forever, begun)
		require.ErrorIs(t, <-inner, context.Canceled)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, python.ErrNotBegun)
		again.Release()
	}
}

// testCallContextSwallowed checks that a Go function that calls Python and discards the error
// does not lose the interrupt of the enclosing call, and that no interrupt is raised twice.
func testCallContextSwallowed(t *testing.T, py *python.Interpreter) {
	m := testenv.Held(py.Module("goswallow", `
stop, times = False, 0
def spin():
    while not stop: pass
def then_spin(f):
    f()
    while not stop: pass
def retries(f):
    while not stop:
        try: f()
        except Exception: pass
def caught(begun, cleanup):
    global times
    times = 0
    try:
        begun()
        while True: pass
    except KeyboardInterrupt:
        times += 1
        for i in range(3):
            try:
                cleanup()
                for i in range(1000): pass
            except KeyboardInterrupt: times += 1
    return times
`))(t)
	get := func(name string) *python.Object { return testenv.Held(m.Attr(name))(t) }
	spin := get("spin")
	toInt := testenv.Held(py.Eval("int", nil))(t)
	wait := testenv.Held(py.Eval("__import__('time').sleep", nil))(t)
	// ended discards the error of a call that must have failed.
	ended := func(_ *python.Object, err error) error {
		if err == nil {
			return errors.New("the inner call went on")
		}
		return nil
	}

	for _, c := range []struct {
		name, outer string
		f           func(ctx context.Context, cancel func()) error
	}{
		{"inner call of the same context", "then_spin", func(ctx context.Context, cancel func()) error {
			inner, stop := context.WithCancel(ctx)
			defer stop()
			time.AfterFunc(time.Millisecond, cancel)
			return ended(spin.CallContext(inner))
		}},
		{"inner call of no context", "then_spin", func(_ context.Context, cancel func()) error {
			time.AfterFunc(time.Millisecond, cancel)
			return ended(spin.CallContext(context.Background()))
		}},
		{"plain call", "then_spin", func(_ context.Context, cancel func()) error {
			time.AfterFunc(time.Millisecond, cancel)
			return ended(spin.Call())
		}},
		{"text of an error", "then_spin", func(ctx context.Context, cancel func()) error {
			py.WithoutGIL(cancel)
			for range 3 {
				if err := ended(toInt.Call("x")); err != nil {
					return err
				}
			}
			return nil
		}},
		{"error passed on", "retries", func(ctx context.Context, cancel func()) error {
			time.AfterFunc(time.Millisecond, cancel)
			return testenv.ErrorOf(spin.CallContext(ctx))
		}},
		{"interrupt wrapped", "retries", func(_ context.Context, cancel func()) error {
			time.AfterFunc(time.Millisecond, cancel)
			return fmt.Errorf("while it ran: %w", testenv.ErrorOf(spin.Call()))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer := get(c.outer)
			for range 5 {
				ctx, cancel := context.WithCancel(context.Background())
				f := testenv.Held(py.New(func() error { return c.f(ctx, cancel) }))(t)
				// ends a call whose interrupt was lost, so that the test fails instead of hanging
				lost := time.AfterFunc(5*time.Minute, func() { require.NoError(t, m.SetAttr("stop", true)) })
				_, err := outer.CallContext(ctx, f)
				require.True(t, lost.Stop(), "the interrupt was lost")
				require.ErrorIs(t, err, python.ErrInterrupted)
				cancel()
			}
		})
	}
	t.Run("once", func(t *testing.T) {
		outer := get("caught")
		for range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			begun := testenv.Held(py.New(func() { go cancel() }))(t)
			cleanup := testenv.Must(py.New(func() {
				inner, stop := context.WithTimeout(context.Background(), 5*time.Millisecond)
				defer stop()
				_, _ = wait.CallContext(inner, 0.05)
			}))(t)
			require.ErrorIs(t, testenv.ErrorOf(outer.CallContext(ctx, begun, cleanup)), python.ErrNotStopped)
			times := get("times")
			require.Equal(t, int64(1), testenv.Must(times.Int())(t))
			cleanup.Release()
			cancel()
		}
	})
}

// testLateInterrupts checks that an interrupt near the end of a call never reaches the next
// call on its thread.
func testLateInterrupts(t *testing.T, py *python.Interpreter) {
	m := contextModule(t, py)
	spin := testenv.Held(m.Attr("spin"))(t)
	// With a short switch interval, more interrupts arrive while calls run.
	require.NoError(t, testenv.ErrorOf(py.Run("import sys; sys.setswitchinterval(2e-5)", nil)))
	defer func() {
		require.NoError(t, testenv.ErrorOf(py.Run("import sys; sys.setswitchinterval(0.005)", nil)))
	}()
	const rounds = 500
	var mu sync.Mutex
	outcomes := map[error]int{}
	round := func(i int) error {
		// The call signals that it is near its end, so that the context ends at about that time
		// on machines of any speed.
		near := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		f, err := py.New(func(python.Args) (any, error) { close(near); return nil, nil })
		if err != nil {
			return err
		}
		defer f.Release()
		tail, err := py.Eval("lambda near, spin, n: (near(), spin(n))[1]", nil)
		if err != nil {
			return err
		}
		defer tail.Release()
		go func() {
			<-near
			for range rand.N(200) {
				runtime.Gosched()
			}
			cancel()
		}()
		o, err := tail.CallContext(ctx, f, spin, rand.N(20_000))
		var failed *python.OpError
		switch {
		case err == nil:
			o.Release()
		case !errors.As(err, &failed) || !errors.Is(err, context.Canceled):
			return fmt.Errorf("round %d: %w", i, err)
		default:
			mu.Lock()
			outcomes[failed.Kind]++
			mu.Unlock()
		}
		// The next calls on this thread execute many byte codes.
		for range 3 {
			o, err := spin.Call(200)
			if err != nil {
				return fmt.Errorf("round %d: the next call: %w", i, err)
			}
			o.Release()
		}
		return nil
	}
	testenv.Together(t, 4, func(int) error {
		// With holds the GIL on one thread, so that the next calls use the same thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for i := range rounds {
			if err := py.With(func() error { return round(i) }); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("of %d calls: %v", 4*rounds, outcomes)
	require.Positive(t, outcomes[python.ErrInterrupted], "no call was interrupted")
}
