//go:build cgo && linux

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
)

// rows defines short functions with plain arguments. A slot makes several calls of them in a row.
const rows = `
import threading
gates, count = {}, 0
def shut(n): gates[n] = threading.Event()
def gate(n):
    e = gates.get(n)
    if e: e.wait()
    return n
def lift(n): gates.pop(n).set()
def inc():
    global count
    count += 1
    return count
def spin(n, x):
    for _ in range(n): pass
    return x
def do(name, *args): # one function, whose calls begin in order of arrival
    import models
    return (globals().get(name) or getattr(models, name))(*args)
`

// row opens an executor and makes calls that form one row: all slots are occupied until all calls
// wait. Each of the returned functions frees one slot.
func row(t *testing.T, slots int, calls ...func(*executor.Executor) error) (*executor.Executor, *errgroup.Group, []func()) {
	t.Helper()
	py, _ := start(t)
	testenv.Held(py.Module("rows", rows))(t)
	e, _ := open(t, executor.Config{Slots: slots})
	ctx := context.Background()
	for range 20 { // until the executor knows that they are short
		for _, c := range []struct {
			function string
			args     []any
		}{{"gate", []any{0}}, {"spin", []any{0, 0}}, {"do", []any{"spin", 0, 0}}, {"inc", nil}, {"shut", []any{0}}, {"lift", []any{0}}} {
			_, err := e.Call(ctx, "rows:"+c.function, c.args...)
			require.NoError(t, err)
		}
	}
	var group errgroup.Group
	free := make([]func(), slots)
	for i := range slots {
		began, running := begun(t)
		ev, set := event(t)
		free[i] = set
		group.Go(func() error { _, err := e.Call(ctx, "models:wait", began, ev); return err })
		await(t, running)
	}
	for i, call := range calls {
		group.Go(func() error { return call(e) })
		require.Eventually(t, func() bool { return e.Stats().Waiting == i+1 }, soon, time.Millisecond)
	}
	return e, &group, free
}

func calling(function string, args ...any) func(*executor.Executor) error {
	return func(e *executor.Executor) error {
		return testenv.ErrorOf(e.Call(context.Background(), function, args...))
	}
}

// gate calls shut or lift for a gate, without the executor.
func gate(t *testing.T, action string, n int) {
	t.Helper()
	py, _ := start(t)
	m := testenv.Held(py.Import("rows"))(t)
	testenv.Must(m.Method(action, n))(t).Release()
}

// TestRowIsTakenApart checks that another slot runs the calls behind a call that takes long. Here the
// first call waits for the second.
func TestRowIsTakenApart(t *testing.T) {
	e, group, free := row(t, 2, calling("rows:gate", 1), calling("rows:lift", 1))
	gate(t, "shut", 1)
	free[0]()
	require.Eventually(t, func() bool { return e.Stats().Waiting <= 1 }, soon, time.Millisecond)
	free[1]()
	require.NoError(t, group.Wait())
	require.Zero(t, e.Stats().Waiting)
}

// TestTakenBackWakesASlot checks that an idle slot runs the calls that are taken back from a row.
func TestTakenBackWakesASlot(t *testing.T) {
	py, _ := start(t)
	for arranged := false; !arranged; {
		e, group, free := row(t, 2)
		free[0]()
		free[1]()
		require.NoError(t, group.Wait())
		require.Eventually(t, func() bool { return e.Stats().Running == 0 }, soon, time.Millisecond)
		gate(t, "shut", 4)
		// One slot waits for the GIL with a short call. Other short calls wait for it, while the second slot
		// is idle. They form a row then, whose first call waits for the second.
		err := py.With(func() error {
			for i, call := range []func(*executor.Executor) error{calling("rows:spin", 1, 1), calling("rows:gate", 4), calling("rows:lift", 4)} {
				group.Go(func() error { return call(e) })
				require.Eventually(t, func() bool { s := e.Stats(); return s.Running+s.Waiting == i+1 }, soon, time.Millisecond)
			}
			arranged = e.Stats().Waiting == 2 // not if a short call took long before
			return nil
		})
		require.NoError(t, err)
		over := make(chan struct{})
		go func() {
			defer close(over)
			err = group.Wait()
		}()
		await(t, over)
		require.NoError(t, err)
	}
}

// TestRowHandsOver checks that a result is delivered while a later call of its row still runs.
func TestRowHandsOver(t *testing.T) {
	short := make(chan error, 1)
	_, group, free := row(t, 1, func(e *executor.Executor) error {
		v, err := e.Call(context.Background(), "rows:do", "spin", 1, 5)
		if v != int64(5) {
			err = errors.Join(err, fmt.Errorf("%v", v))
		}
		short <- err
		return nil
	}, calling("rows:do", "gate", 2))
	gate(t, "shut", 2)
	free[0]()
	select {
	case err := <-short:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("the result waits for the next call's end")
	}
	gate(t, "lift", 2)
	require.NoError(t, group.Wait())
}

// TestRowIsLeft checks that a call whose caller left its row is not made, and that the rest of the row
// is.
func TestRowIsLeft(t *testing.T) {
	py, _ := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	e, group, free := row(t, 1, calling("rows:do", "gate", 3), func(e *executor.Executor) error {
		defer close(left)
		_, err := e.Call(ctx, "rows:do", "inc")
		if !errors.Is(err, python.ErrNotBegun) {
			return fmt.Errorf("the call that was left: %w", err)
		}
		return nil
	}, calling("rows:do", "spin", 1, 1))
	m := testenv.Held(py.Import("rows"))(t)
	gate(t, "shut", 3)
	free[0]()
	require.Eventually(t, func() bool { return e.Stats().Waiting < 3 }, soon, time.Millisecond)
	cancel()
	await(t, left)
	gate(t, "lift", 3)
	require.NoError(t, group.Wait())
	require.EqualValues(t, 20, testenv.Must(testenv.Held(m.Attr("count"))(t).Int())(t))
}

// When the context of Close ends, Close refuses the calls in rows that have not begun.
func TestRowIsClosed(t *testing.T) {
	refused := func(e *executor.Executor) error {
		if _, err := e.Call(context.Background(), "rows:do", "inc"); !errors.Is(err, executor.ErrClosed) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	}
	began := make(chan struct{})
	py, _ := start(t)
	f := testenv.Held(py.New(func() { close(began) }))(t)
	e, group, free := row(t, 1, func(e *executor.Executor) error {
		_, err := e.Call(context.Background(), "rows:do", "forever", f)
		if !errors.Is(err, python.ErrInterrupted) || !errors.Is(err, executor.ErrClosed) {
			return fmt.Errorf("not interrupted: %w", err)
		}
		return nil
	}, refused, refused)
	free[0]()
	await(t, began)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// As in TestCloseInterrupts, an interrupt can take longer than Config.Grace.
	require.Eventually(t, func() bool { return e.Close(ended) == nil }, soon, time.Millisecond)
	require.NoError(t, group.Wait())
}

// TestRowsUnderCancellation checks that a context that ends at any time affects its own call only. All
// other calls of the rows return their results.
func TestRowsUnderCancellation(t *testing.T) {
	for _, slots := range []int{1, 3} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			py, _ := start(t)
			testenv.Held(py.Module("rows", rows))(t)
			e, _ := open(t, executor.Config{Slots: slots, Queue: 100})
			var ended, wanted atomic.Int64
			testenv.Together(t, 16, func(g int) error {
				random := rand.New(rand.NewPCG(1, uint64(g)))
				for i := range 300 {
					ctx, cancel := context.WithCancel(context.Background())
					mayEnd := random.IntN(3) == 0
					n := random.IntN(2000)
					if mayEnd {
						time.AfterFunc(time.Duration(random.IntN(400))*time.Microsecond, cancel)
						n *= 20
					}
					want := int64(g*1000 + i)
					v, err := e.Call(ctx, "rows:spin", n, want)
					cancel()
					switch {
					case err == nil && v == want:
						wanted.Add(1)
					case err != nil && mayEnd && errors.Is(err, context.Canceled):
						ended.Add(1)
					default:
						return fmt.Errorf("%v, %w for %d, of a context that may end: %v", v, err, want, mayEnd)
					}
				}
				return nil
			})
			require.EqualValues(t, 16*300, ended.Load()+wanted.Load())
			t.Logf("%d calls gave their results, %d ended with their contexts", wanted.Load(), ended.Load())
			require.Equal(t, int64(7), testenv.Must(e.Call(t.Context(), "rows:spin", 1, 7))(t))
		})
	}
}

// TestRowThatIsClosed checks that Close does not interrupt a call of another executor. A job that was
// delivered while its row still runs can be reused by that executor.
func TestRowThatIsClosed(t *testing.T) {
	py, _ := start(t)
	short := make(chan error, 8)
	var calls []func(*executor.Executor) error
	for range cap(short) {
		calls = append(calls, func(e *executor.Executor) error {
			err := calling("rows:do", "spin", 1, 1)(e)
			short <- err
			return nil
		})
	}
	e, group, free := row(t, 1, append(calls, func(e *executor.Executor) error {
		if err := calling("rows:do", "gate", 9)(e); !errors.Is(err, python.ErrInterrupted) && !errors.Is(err, python.ErrNotStopped) {
			return fmt.Errorf("the call that runs: %w", err)
		}
		return nil
	})...)
	other := testenv.Must(executor.New(py, executor.Config{}))(t)
	gate(t, "shut", 9)
	free[0]()
	for range cap(short) { // Then the last call of the row runs.
		require.NoError(t, <-short)
	}
	began, running := begun(t)
	ev, set := event(t)
	var waiting errgroup.Group
	waiting.Go(func() error { return calling("models:wait", began, ev)(other) })
	await(t, running)
	for range 4 * cap(short) {
		waiting.Go(func() error { return calling("rows:spin", 1, 1)(other) })
	}
	require.Eventually(t, func() bool { return other.Stats().Waiting == 4*cap(short) }, soon, time.Millisecond)

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	lifted := make(chan struct{})
	go func() {
		defer close(lifted)
		time.Sleep(100 * time.Millisecond) // Close has asked the call to stop by then.
		gate(t, "lift", 9)
	}()
	require.NoError(t, e.Close(ended))
	<-lifted
	require.NoError(t, group.Wait())
	set()
	require.NoError(t, waiting.Wait())
	require.NoError(t, other.Close(context.Background()))
}
