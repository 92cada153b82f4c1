//go:build cgo && linux

package workers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestErrors checks that exceptions and unsupported values are the same errors as in package executor.
func TestErrors(t *testing.T) {
	p := open(t, workers.Config{})
	ctx := limited(t)
	_, err := p.Call(ctx, "models:fail")
	pe := testenv.As[*python.Error](t, err)
	require.ErrorIs(t, err, python.KeyError)
	require.ErrorIs(t, err, python.LookupError, "bases count")
	require.NotErrorIs(t, err, python.ValueError)
	require.Contains(t, pe.Traceback, "in fail")
	require.Nil(t, pe.Exception())
	ee := testenv.As[*executor.Error](t, err)
	require.Equal(t, "models:fail", ee.Op)
	require.Equal(t, "workers: models:fail: python: KeyError: 'no such model'", err.Error())

	require.ErrorIs(t, testenv.ErrorOf(p.Call(ctx, "models:fail_own")), python.ValueError)
	require.ErrorIs(t, testenv.ErrorOf(p.Call(ctx, "models:absent")), python.AttributeError)
	require.ErrorIs(t, testenv.ErrorOf(p.Call(ctx, "nowhere:f")), python.ModuleNotFoundError)
	require.ErrorIs(t, testenv.ErrorOf(p.Call(ctx, "models")), python.ValueError)
	require.ErrorContains(t, testenv.ErrorOf(p.Call(ctx, "models:thing")), "object: not a plain value, and not readable as an array")

	cycle := []any{nil}
	cycle[0] = cycle
	for _, unfit := range []any{make(chan int), func() {}, struct{ A int }{1}, cycle, errors.New("x"), map[any]any{1: cycle}} {
		testenv.As[*python.ConversionError](t, testenv.ErrorOf(p.Call(ctx, "models:same", unfit)))
	}
	released := memory(t, segment.PeersWrite).floats(1, 2)
	released.Release()
	require.Panics(t, func() { _, _ = p.Call(ctx, "models:double", released) }, "as any use of it")
	require.Zero(t, p.Stats().Running)
	require.Equal(t, int64(5), testenv.Must(p.Call(ctx, "models:add", 2, 3))(t))
	require.NoError(t, p.Health())
	require.Zero(t, p.Workers()[0].Restarts)
}

// TestTooLong checks that arguments and results longer than Config.MaxMessage are errors of their call.
func TestTooLong(t *testing.T) {
	p := open(t, workers.Config{MaxMessage: 1 << 20, Modules: []workers.Module{{Name: "long", Source: "def f(n): return bytes(n)"}}})
	ctx := limited(t)
	require.ErrorIs(t, testenv.ErrorOf(p.Call(ctx, "models:same", make([]byte, 1<<20))), workers.ErrTooLong)
	require.ErrorIs(t, testenv.ErrorOf(p.Call(ctx, "long:f", 1<<20)), workers.ErrTooLong)
	require.Len(t, testenv.Must(p.Call(ctx, "long:f", 1<<20-100))(t), 1<<20-100)
	require.Zero(t, p.Workers()[0].Restarts)
}

// TestDeaths checks that the end of a worker is an error of the call that it ran only, and that it is replaced.
func TestDeaths(t *testing.T) {
	p := open(t, workers.Config{Workers: 2, Restarts: 100, Window: time.Millisecond})
	shared := memory(t, segment.PeersWrite)
	for _, c := range []struct {
		function string
		args     []any
		status   string
		last     string
	}{
		{"models:exit_at_once", []any{3}, "exit status 3", "about to leave"},
		{"models:exit_at_once", []any{0}, "exit status 0", "about to leave"},
		{"models:segfault", nil, "exit status 2", "in segfault"},
		{"models:fork", nil, "exit status 4", ""},
	} {
		t.Run(c.function, func(t *testing.T) {
			ctx := limited(t)
			begun, end := shared.flag(), shared.flag()
			other := started(p, ctx, "models:until", begun, end)
			eventually(t, func() bool { return isSet(begun) }, "the other call does not begin")
			_, err := p.Call(ctx, c.function, c.args...)
			require.ErrorIs(t, err, workers.ErrDied)
			d := testenv.As[*workers.Death](t, err)
			require.Contains(t, d.Status, c.status)
			require.Contains(t, d.LastOutput, c.last)
			require.NoError(t, end.SetAt(uint8(1), 0))
			require.NoError(t, <-other, "a call in another worker failed")
			eventually(t, func() bool {
				w := p.Workers()[d.Worker]
				return w.State == workers.Ready && w.PID != d.PID && w.Last.PID == d.PID
			}, "the worker is not replaced")
		})
	}
}

// TestCancelled checks that a call is interrupted when its context ends, and that its worker is killed if the call
// does not stop.
func TestCancelled(t *testing.T) {
	for _, c := range []struct {
		function string
		kind     error
	}{
		{"models:forever", python.ErrInterrupted},
		{"models:stubborn", executor.ErrStuck},
		{"models:in_c", executor.ErrStuck},
		{"models:held", executor.ErrStuck},
	} {
		t.Run(c.function, func(t *testing.T) {
			p := open(t, workers.Config{Grace: graceOf(c.kind)})
			flag := memory(t, segment.PeersWrite).flag()
			before := p.Workers()[0].PID
			cause := errors.New("the client has gone")
			ctx, cancel := context.WithCancelCause(limited(t))
			over := make(chan struct{})
			go func() {
				defer close(over)
				for !isSet(flag) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel(cause)
			}()
			_, err := p.Call(ctx, c.function, flag)
			cancel(cause)
			<-over // the call reads memory of this test until it ends
			require.ErrorIs(t, err, c.kind)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
			require.EqualValues(t, 1, p.Stats().Interrupted)
			v := testenv.Must(p.Call(limited(t), "models:pid"))(t)
			if c.kind == executor.ErrStuck {
				require.NotEqual(t, int64(before), v)
			} else {
				require.Equal(t, int64(before), v)
			}
		})
	}
}

// TestSameText checks that an interrupted call has the same error text in a worker as in the program's
// own interpreter, apart from the name of the package.
func TestSameText(t *testing.T) {
	shared := memory(t, segment.PeersWrite)
	interrupted := func(r executor.Runner) string {
		ctx, cancel := context.WithCancelCause(limited(t))
		flag := shared.flag()
		over := make(chan struct{})
		go func() {
			defer close(over)
			for !isSet(flag) && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel(errors.New("the client has gone"))
		}()
		_, err := r.Call(ctx, "models:forever", flag)
		cancel(nil)
		<-over
		require.ErrorIs(t, err, python.ErrInterrupted)
		_, err2 := r.Call(ctx, "models:pid")
		require.ErrorIs(t, err2, python.ErrNotBegun)
		return err.Error() + "\n" + err2.Error()
	}
	here := interrupted(embedded(t))
	there := interrupted(open(t, workers.Config{Grace: time.Hour}))
	require.Equal(t, strings.ReplaceAll(here, "executor: ", "workers: "), there)
}

// graceOf returns a short Config.Grace if the worker should be killed, else one that is longer than the test.
func graceOf(kind error) time.Duration {
	if kind == executor.ErrStuck {
		return 50 * time.Millisecond
	}
	return time.Hour
}

// TestQueue checks that calls wait in a bounded queue, and leave it when their contexts end.
func TestQueue(t *testing.T) {
	p := open(t, workers.Config{Queue: 1})
	shared := memory(t, segment.PeersWrite)
	begun, end := shared.flag(), shared.flag()
	ctx := limited(t)
	first := started(p, ctx, "models:until", begun, end)
	eventually(t, func() bool { return isSet(begun) }, "the call does not begin")
	short, cancel := context.WithCancel(ctx)
	second := started(p, short, "models:pid")
	eventually(t, func() bool { return p.Stats().Waiting == 1 }, "the call does not wait")
	_, err := p.Call(ctx, "models:pid")
	require.ErrorIs(t, err, executor.ErrFull)
	require.EqualError(t, err, "workers: models:pid: the queue is full; try again later or increase Config.Queue")
	cancel()
	err = <-second
	require.ErrorIs(t, err, python.ErrNotBegun)
	require.ErrorIs(t, err, context.Canceled)
	s := p.Stats()
	require.Equal(t, 1, s.Running)
	require.Zero(t, s.Waiting)
	require.EqualValues(t, 1, s.Refused)
	require.EqualValues(t, 1, s.NotBegun)
	require.Equal(t, "models:until", p.Workers()[0].Function)
	require.NoError(t, end.SetAt(uint8(1), 0))
	require.NoError(t, <-first)
	require.ErrorIs(t, testenv.ErrorOf(p.Call(short, "models:pid")), python.ErrNotBegun)
}

// TestKilledFromOutside kills a worker during a call, several times. Only its own call may fail.
func TestKilledFromOutside(t *testing.T) {
	p := open(t, workers.Config{Workers: 2, Restarts: 1000, Window: time.Millisecond})
	shared := memory(t, segment.PeersWrite)
	kept := testenv.Must(p.Call(limited(t), "models:own", 4))(t)
	defer kept.(*usmarray.Array).Release()
	x := shared.floats(1, 2, 3)
	for range 6 {
		ctx := limited(t)
		begun, end := shared.flag(), shared.flag()
		killed := started(p, ctx, "models:until", begun, end, x)
		eventually(t, func() bool { return isSet(begun) || len(killed) > 0 }, "the call does not begin")
		select {
		case err := <-killed:
			require.NoError(t, err)
		default:
		}
		for _, w := range p.Workers() {
			if w.Function == "models:until" {
				require.NoError(t, syscall.Kill(w.PID, syscall.SIGKILL))
			}
		}
		err := <-killed
		testenv.Failed(t, err, workers.ErrDied, "signal: killed")
		require.NoError(t, testenv.ErrorOf(p.Call(ctx, "models:add", 1)))
		begun.Release()
		end.Release()
	}
	require.Equal(t, []float32{7, 7, 7, 7}, floatsOf(t, kept), "memory of a worker that ended stays valid")
	v, err := p.Call(limited(t), "models:doubled", kept)
	require.NoError(t, err, "and is passed to the next one")
	require.Equal(t, []float32{14, 14, 14, 14}, floatsOf(t, v))
	v.(*usmarray.Array).Release()
}

// TestRestartsAreBounded checks that a worker that cannot start is restarted a bounded number of times, and that
// calls are then refused.
func TestRestartsAreBounded(t *testing.T) {
	for name, source := range map[string]string{
		"exception": "raise ImportError('no weights here')",
		"exit":      "import os; print('no weights here'); os._exit(9)",
	} {
		t.Run(name, func(t *testing.T) {
			p := opening(t, workers.Config{Workers: 2, Restarts: 1, Window: time.Hour, Modules: []workers.Module{{Name: "broken", Source: source}}})
			waiting := started(p, limited(t), "models:pid")
			err := p.Ready(limited(t))
			testenv.Failed(t, err, workers.ErrRestarts, "no weights here")
			if name == "exception" {
				require.ErrorIs(t, err, python.ImportError)
			}
			require.ErrorIs(t, <-waiting, workers.ErrRestarts)
			require.ErrorIs(t, testenv.ErrorOf(p.Call(limited(t), "models:pid")), workers.ErrRestarts)
			require.ErrorIs(t, p.Health(), workers.ErrRestarts)
			for _, w := range p.Workers() {
				require.Equal(t, 1, w.Restarts)
				require.Equal(t, workers.Dead, w.State)
				require.NotNil(t, w.Last)
				require.False(t, w.Next.IsZero())
			}
		})
	}
}

// TestMainIsNotCalled checks the error of a Config.Program that does not call Main.
func TestMainIsNotCalled(t *testing.T) {
	c := workers.Config{Restarts: 1, Window: time.Hour, Program: []string{"/bin/true"}}
	p := opening(t, c)
	require.ErrorContains(t, p.Ready(limited(t)), "call workers.Main first")
}

// TestWarmUp checks that Workers reports the steps of the warm-up, and that Health fails until they are done.
func TestWarmUp(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/slow.py", []byte("import os, time\ndef prepare():\n    while not os.path.exists("+
		"os.path.join(os.path.dirname(__file__), 'go')): time.sleep(0.001)\n"), 0o600))
	p := opening(t, workers.Config{Path: []string{dir}, Import: []string{"json"}, Warm: []string{"models:pid", "slow:prepare"}})
	eventually(t, func() bool { return p.Workers()[0].Step == "slow:prepare" }, "the step does not show")
	w := p.Workers()[0]
	require.Equal(t, workers.Warming, w.State)
	require.NotZero(t, w.PID)
	s := p.Stats()
	require.Equal(t, 1, s.WarmDone)
	require.Equal(t, 2, s.WarmAll)
	testenv.Failed(t, p.Health(), executor.ErrWarming, "slow:prepare")
	early := started(p, limited(t), "models:pid")
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	require.NoError(t, p.Ready(limited(t)))
	require.NoError(t, <-early)
	require.Equal(t, 2, p.Stats().WarmDone)
}

// TestClose checks that Close waits for calls, and interrupts them when its context ends.
func TestClose(t *testing.T) {
	p := open(t, workers.Config{Grace: time.Hour})
	shared := memory(t, segment.PeersWrite)
	begun := shared.flag()
	running := started(p, limited(t), "models:forever", begun)
	eventually(t, func() bool { return isSet(begun) }, "the call does not begin")
	waiting := started(p, limited(t), "models:pid")
	eventually(t, func() bool { return p.Stats().Waiting == 1 }, "the call does not wait")
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- p.Close(ctx) }()
	eventually(t, func() bool { return errors.Is(p.Health(), executor.ErrClosed) }, "it is not closed")
	require.ErrorIs(t, testenv.ErrorOf(p.Call(limited(t), "models:pid")), executor.ErrClosed)
	cancel()
	require.ErrorIs(t, <-waiting, executor.ErrClosed)
	err := <-running
	require.ErrorIs(t, err, python.ErrInterrupted)
	require.ErrorIs(t, err, executor.ErrClosed)
	require.NoError(t, <-closed)
}

// TestCloseKills checks that Close kills the worker of a call that cannot be interrupted.
func TestCloseKills(t *testing.T) {
	p := open(t, workers.Config{Grace: 50 * time.Millisecond})
	begun := memory(t, segment.PeersWrite).flag()
	running := started(p, limited(t), "models:held", begun)
	eventually(t, func() bool { return isSet(begun) }, "the call does not begin")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, p.Close(ctx))
	err := <-running
	require.ErrorIs(t, err, executor.ErrClosed)
	require.ErrorIs(t, err, workers.ErrDied)
}

// TestCallsKeepNoArguments checks that the memory of an argument can be reused when the caller has released it:
// the handle is revoked if the call does not begin, and neither the worker nor the error of a failed call keeps it.
func TestCallsKeepNoArguments(t *testing.T) {
	p := open(t, workers.Config{Modules: []workers.Module{{Name: "failing", Source: `
def attribute(x): x.absent
def value(x): raise ValueError(x)
def cause(x):
    try: x.absent
    except AttributeError as e: raise RuntimeError("wrapped") from e
`}}})
	r := testenv.Must(segment.NewHost(segment.PeersWrite))(t)
	pool := memmgr.NewPool(r)
	var kept []error
	for _, function := range []string{
		"models:absent", "failing:attribute", "failing:value", "failing:cause", "models:fail", "models:exit_at_once", "models:nothing",
	} {
		x := testenv.Must(usmarray.Zeros(pool, usmarray.Uint8, []int{10}))(t)
		_, err := p.Call(limited(t), function, x)
		require.Equal(t, function == "models:nothing", err == nil, function)
		kept = append(kept, err)
		x.Release()
		eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "the memory is not released: "+function)
	}
	require.Len(t, kept, 7)
	require.NoError(t, pool.Close())
	require.NoError(t, r.Close())
}

// TestAtExit checks that workers run the functions of atexit when they end.
func TestAtExit(t *testing.T) {
	out := &sink{}
	p := open(t, workers.Config{Output: out, Modules: []workers.Module{{Name: "leaving", Source: "import atexit; atexit.register(print, 'good', 'bye')"}}})
	require.NoError(t, p.Close(context.Background()))
	require.Equal(t, "good bye\n", out.String())
	require.Equal(t, "exit status 0", p.Workers()[0].Last.Status)
}

// TestConcurrent makes calls from many goroutines. Some calls are cancelled and some end their worker.
func TestConcurrent(t *testing.T) {
	p := open(t, workers.Config{Workers: 2, Queue: 100, Restarts: 1000, Window: time.Millisecond})
	shared := memory(t, segment.PeersWrite)
	ctx := limited(t)
	testenv.Together(t, 8, func(i int) error {
		x, err := usmarray.FromSlice(shared.r, []float32{float32(i)}, []int{1})
		if err != nil {
			return err
		}
		defer x.Release()
		for n := range 40 {
			switch {
			case i == 0 && n%20 == 19:
				if _, err = p.Call(ctx, "models:exit_at_once", 1); !errors.Is(err, workers.ErrDied) {
					return fmt.Errorf("not dead: %w", err)
				}
			case i == 1 && n%10 == 9:
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				_, err = p.Call(short, "models:busy", 0.01)
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
			default:
				v, err := p.Call(ctx, "models:doubled", x)
				if err != nil {
					return err
				}
				got, err := usmarray.ToSlice[float32](v.(*usmarray.Array))
				v.(*usmarray.Array).Release()
				if err != nil || got[0] != 2*float32(i) {
					return fmt.Errorf("got %v: %w", got, err)
				}
			}
		}
		return nil
	})
}
