//go:build cgo && linux

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// soon is the maximum wait for an event that is expected immediately, on a machine under load.
const soon = 60 * time.Second

// begun returns a Python function, and the channel that it closes when it is called.
func begun(t *testing.T) (*python.Object, <-chan struct{}) {
	t.Helper()
	py, _ := start(t)
	c := make(chan struct{})
	o := testenv.Held(py.New(func(python.Args) (any, error) { close(c); return nil, nil }))(t)
	return o, c
}

// object returns a Python object, and a function that calls its method.
func object(t *testing.T, expression, method string) (*python.Object, func()) {
	t.Helper()
	py, _ := start(t)
	o := testenv.Held(py.Eval(expression, nil))(t)
	return o, func() {
		testenv.Must(o.Method(method))(t).Release()
	}
}

// event returns a threading.Event, and a function that sets it.
func event(t *testing.T) (*python.Object, func()) {
	t.Helper()
	return object(t, "__import__('threading').Event()", "set")
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatal("it did not begin")
	}
}

// busy makes a call that runs until end is called, and one that waits for it.
func busy(t *testing.T, e *executor.Executor) (group *errgroup.Group, end func()) {
	t.Helper()
	group = new(errgroup.Group)
	began, running := begun(t)
	ev, end := event(t)
	group.Go(func() error { return calling("models:wait", began, ev)(e) })
	await(t, running)
	group.Go(func() error { return calling("models:add", 1)(e) })
	require.Eventually(t, func() bool { return e.Stats().Waiting == 1 }, soon, time.Millisecond)
	return group, end
}

func TestCalls(t *testing.T) {
	e, r := open(t, executor.Config{Slots: 2})
	require.NoError(t, e.Ready(t.Context()))
	require.NoError(t, e.Health())
	v := testenv.Must(e.Call(t.Context(), "models:add", 2, python.Kwargs{"b": 40}))(t)
	require.Equal(t, int64(42), v)
	v = testenv.Must(e.Call(t.Context(), "models:Group.Inner.f"))(t)
	require.Equal(t, "inner", v)

	// Arrays as arguments and as results, also inside containers.
	x := testenv.Held(usmarray.FromSlice(r, []float64{1, 2, 3}, []int{3}))(t)
	v = testenv.Must(e.Call(t.Context(), "models:double", x))(t)
	require.Nil(t, v)
	v = testenv.Must(e.Call(t.Context(), "models:doubled", python.Kwargs{"x": x, "note": []any{"n", x}}))(t)
	out := v.(map[string]any)
	for name, want := range map[string][]float64{"y": {4, 8, 12}, "same": {2, 4, 6}} {
		a := out[name].(*usmarray.Array)
		require.Equal(t, want, testenv.Must(usmarray.ToSlice[float64](a))(t))
		require.Equal(t, name == "same", a.Pointer() == x.Pointer())
		a.Release()
	}
	note := out["note"].([]any)
	require.Equal(t, "n", note[0])
	note[1].(*usmarray.Array).Release()
}

func TestErrors(t *testing.T) {
	e, r := open(t, executor.Config{})
	for _, c := range []struct {
		name, function string
		args           []any
		is             error
		says           string
	}{
		{"exception", "models:fail", nil, python.KeyError, "no such model"},
		{"module", "nowhere:f", nil, python.ModuleNotFoundError, "nowhere"},
		{"function", "models:nothing", nil, python.AttributeError, "nothing"},
		{"name", "models", nil, python.ValueError, `"module:name"`},
		{"argument", "models:add", []any{make(chan int)}, nil, "chan int"},
		{"result", "models:odd", nil, nil, "[1]: object: not a plain value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := e.Call(t.Context(), c.function, c.args...)
			require.Nil(t, v)
			failed := testenv.As[*executor.Error](t, err)
			require.Equal(t, c.function, failed.Op)
			require.ErrorContains(t, err, c.says)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
	// A panic of Go code fails this call only.
	x := testenv.Must(usmarray.FromSlice(r, []float64{1}, []int{1}))(t)
	x.Release()
	_, err := e.Call(t.Context(), "models:double", x)
	testenv.As[*python.PanicError](t, err)
	require.Equal(t, int64(2), testenv.Must(e.Call(t.Context(), "models:add", 1))(t))
	require.Equal(t, uint64(7), e.Stats().Failed)
	require.Equal(t, uint64(8), e.Stats().Calls)
}

// TestCyclicArguments checks that arguments that contain themselves are refused, also if they do so in
// several places.
func TestCyclicArguments(t *testing.T) {
	e, _ := open(t, executor.Config{})
	list := []any{nil, nil}
	list[0], list[1] = list, list
	dict := map[string]any{"list": list}
	dict["a"], dict["b"] = dict, dict
	for _, v := range []any{list, dict, python.Tuple(list)} {
		require.ErrorIs(t, testenv.ErrorOf(e.Call(t.Context(), "models:add", v)), python.ErrCycle)
	}
	twice := []any{int64(1)}
	require.Equal(t, []any{twice, twice, []any{}}, testenv.Must(e.Call(t.Context(), "models:add", []any{}, []any{twice, twice, []any{}}))(t))
}

// TestHandedOver checks that a result does not wait for the end of the next call, even if earlier calls
// of that function were short.
func TestHandedOver(t *testing.T) {
	e, _ := open(t, executor.Config{Queue: 8})
	py, _ := start(t)
	nothing := testenv.Held(py.Eval("lambda: None", nil))(t)
	quick, set := event(t)
	set()
	for range 8 {
		began, running := begun(t)
		lock, free := event(t)
		var group errgroup.Group
		group.Go(func() error { _, err := e.Call(t.Context(), "models:Group.wait", began, lock); return err })
		await(t, running)
		short := make(chan error, 1)
		go func() { _, err := e.Call(t.Context(), "models:wait", nothing, quick); short <- err }()
		require.Eventually(t, func() bool { return e.Stats().Waiting == 1 }, soon, time.Millisecond)
		long, end := event(t)
		group.Go(func() error { _, err := e.Call(t.Context(), "models:wait", nothing, long); return err })
		require.Eventually(t, func() bool { return e.Stats().Waiting == 2 }, soon, time.Millisecond)
		free()
		select {
		case err := <-short:
			require.NoError(t, err)
		case <-time.After(soon):
			end()
			t.Fatal("the result waits for the next call's end")
		}
		end()
		require.NoError(t, group.Wait())
		for range 4 { // until its calls count as short again
			require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "models:wait", nothing, quick)))
		}
	}
}

func TestConfig(t *testing.T) {
	py, _ := start(t)
	for name, c := range map[string]executor.Config{
		"none may be negative":           {Slots: -1},
		"a name in Serial is empty":      {Serial: []string{""}},
		`step 1 of Steps, "import", has`: {Steps: []executor.Step{{Name: "import"}}},
	} {
		require.ErrorContains(t, testenv.ErrorOf(executor.New(py, c)), name)
	}
	require.ErrorIs(t, testenv.ErrorOf(executor.New(nil, executor.Config{})), python.ErrNotStarted)
}

// TestInterrupt checks that the end of a context ends a waiting and a running call, that the error
// reports the outcome, and that the slot makes further calls.
func TestInterrupt(t *testing.T) {
	e, _ := open(t, executor.Config{Grace: soon})
	began, running := begun(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error {
		_, err := e.Call(ctx, "models:forever", began)
		if !errors.Is(err, python.ErrInterrupted) || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the running call: %w", err)
		}
		return nil
	})
	await(t, running)
	require.Equal(t, 1, e.Stats().Running)
	waits, giveUp := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer giveUp()
	_, err := e.Call(waits, "models:add", 1)
	require.ErrorIs(t, err, python.ErrNotBegun)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 0, e.Stats().Waiting, "its place is free")
	cancel()
	require.NoError(t, group.Wait())
	require.ErrorIs(t, testenv.ErrorOf(e.Call(ctx, "models:add", 1)), python.ErrNotBegun)
	require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "models:add", 1)))
	s := e.Stats()
	require.Equal(t, uint64(1), s.Interrupted)
	require.Equal(t, uint64(2), s.NotBegun)
}

func TestFull(t *testing.T) {
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprintf("wait=%v", wait), func(t *testing.T) {
			e, _ := open(t, executor.Config{Queue: 1, Wait: wait})
			group, set := busy(t, e)
			if wait {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := e.Call(ctx, "models:add", 1)
				require.ErrorIs(t, err, python.ErrNotBegun)
				group.Go(func() error { _, err := e.Call(t.Context(), "models:add", 1); return err })
			} else {
				_, err := e.Call(t.Context(), "models:add", 1)
				require.ErrorIs(t, err, executor.ErrFull)
				require.EqualError(t, err, "executor: models:add: the queue is full; try again later or increase Config.Queue")
				require.Equal(t, uint64(1), e.Stats().Refused)
			}
			set()
			require.NoError(t, group.Wait())
		})
	}
}

// TestStuck checks that a slot whose call does not stop is reported, replaced, and counted until the
// call ends.
func TestStuck(t *testing.T) {
	e, _ := open(t, executor.Config{Grace: 10 * time.Millisecond, Spare: 1, Serial: []string{"models:hold"}})
	lock := func() (*python.Object, func()) {
		return object(t, "(lambda l: (l.acquire(), l)[1])(__import__('threading').Lock())", "release")
	}
	hold := func(function string) (free func()) {
		began, running := begun(t)
		l, release := lock()
		ctx, cancel := context.WithCancel(t.Context())
		var group errgroup.Group
		group.Go(func() error {
			_, err := e.Call(ctx, function, began, l)
			if !errors.Is(err, executor.ErrStuck) || !errors.Is(err, context.Canceled) {
				return fmt.Errorf("not stuck: %w", err)
			}
			return nil
		})
		await(t, running)
		cancel()
		require.NoError(t, group.Wait())
		return release
	}
	works := func() {
		require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "models:add", 1)))
		require.NoError(t, e.Health())
	}
	py, _ := start(t)
	m := testenv.Must(py.Import("models"))(t)
	same := testenv.Must(m.Attr("hold"))(t)
	require.NoError(t, m.SetAttr("hold_too", same))
	same.Release()
	m.Release()

	first := hold("models:hold_too") // the slot is replaced
	works()
	require.Equal(t, 1, e.Stats().Stuck)
	require.Positive(t, e.Stats().Oldest)
	second := hold("models:hold_too") // Spare is used up
	testenv.Failed(t, e.Health(), executor.ErrStuck, "models:hold_too")
	require.Equal(t, 2, e.Stats().Stuck)
	second()
	require.Eventually(t, func() bool { return e.Stats().Stuck == 1 }, soon, time.Millisecond)
	works()
	lane := hold("models:hold") // the lane is never replaced
	require.ErrorIs(t, e.Health(), executor.ErrStuck)
	require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "models:add", 1)), "the slots work on")
	first()
	lane()
	require.Eventually(t, func() bool { return e.Stats().Stuck == 0 && e.Stats().Running == 0 }, soon, time.Millisecond)
	works()
	require.Equal(t, 2, e.Stats().Slots, "one, and the lane")
	third := hold("models:hold_too") // the spare slot is available again
	defer third()
	require.NoError(t, e.Health())
	works()
}

// TestLane checks that serial functions run one at a time, although they let Python switch threads and
// there are more slots.
func TestLane(t *testing.T) {
	e, _ := open(t, executor.Config{Slots: 4, Serial: []string{"models:alone"}})
	testenv.Together(t, 16, func(int) error {
		v, err := e.Call(t.Context(), "models:alone")
		if err == nil && v != int64(1) {
			err = fmt.Errorf("%v at a time", v)
		}
		return err
	})
}

func TestWarmUp(t *testing.T) {
	gate, order := make(chan struct{}), make(chan string, 3)
	step := func(name string, serial bool) executor.Step {
		return executor.Step{Name: name, Serial: serial, Run: func(ctx context.Context, py *python.Interpreter) error {
			order <- name
			if name == "second" {
				<-gate
			}
			return ctx.Err()
		}}
	}
	e, _ := open(t, executor.Config{Slots: 3, Serial: []string{"models:thread"}, Steps: []executor.Step{step("first", false), step("second", true), step("third", false)}})
	require.Equal(t, "first", <-order)
	require.Equal(t, "second", <-order)
	testenv.Failed(t, e.Health(), executor.ErrWarming, "1 of 3 steps done, now second")
	require.Equal(t, 1, e.Stats().WarmDone)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Ready(ctx), executor.ErrWarming)
	for _, function := range []string{"models:add", "models:thread"} {
		require.ErrorIs(t, testenv.ErrorOf(e.Call(ctx, function, 1)), python.ErrNotBegun, "calls wait for the warm-up")
	}
	close(gate)
	require.NoError(t, e.Ready(t.Context()))
	require.Equal(t, 3, e.Stats().WarmDone)
	require.NoError(t, e.Health())
	require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "models:thread")))
}

// TestWarm checks that Modules are created first and that the functions of Warm run in order, also those that
// Serial names.
func TestWarm(t *testing.T) {
	const source = `
seen = []
def first(): seen.append("first")
class Group:
    @staticmethod
    def second(): seen.append("second")
def result(): return list(seen)
async def coroutine(): pass
def generator(): yield
async def both(): yield
`
	e, _ := open(t, executor.Config{
		Modules: []executor.Module{{Name: "warm_models", Source: source}},
		Warm:    []string{"warm_models:first", "warm_models:Group.second"},
		Serial:  []string{"warm_models:Group.second"},
	})
	require.NoError(t, e.Ready(t.Context()))
	require.Equal(t, 3, e.Stats().WarmDone)
	require.Equal(t, []any{"first", "second"}, testenv.Must(e.Call(t.Context(), "warm_models:result"))(t))

	py, _ := start(t)
	for text, c := range map[string]executor.Config{
		"names no function":               {Warm: []string{"warm_models"}},
		"a module of Modules has no name": {Modules: []executor.Module{{Source: source}}},
	} {
		require.ErrorContains(t, testenv.ErrorOf(executor.New(py, c)), text)
	}
	for function, text := range map[string]string{
		"nothing": "step 1, warm_models:nothing", "coroutine": "its result is of type coroutine",
		"generator": "its result is of type generator", "both": "its result is of type async_generator",
	} {
		failing := testenv.Must(executor.New(py, executor.Config{Warm: []string{"warm_models:" + function}}))(t)
		require.ErrorContains(t, failing.Ready(t.Context()), text)
		require.NoError(t, failing.Close(t.Context()))
	}
}

func TestWarmUpFails(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(context.Context, *python.Interpreter) error
		says string
	}{
		"error":            {func(context.Context, *python.Interpreter) error { return errors.New("no compiler") }, "no compiler"},
		"panic":            {func(context.Context, *python.Interpreter) error { panic("oh") }, "panic in Go: oh"},
		"exit":             {func(context.Context, *python.Interpreter) error { runtime.Goexit(); return nil }, "ended its goroutine"},
		"exit of the lane": {func(context.Context, *python.Interpreter) error { runtime.Goexit(); return nil }, "ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			serial := name == "panic" || name == "exit of the lane"
			e, _ := open(t, executor.Config{Slots: 2, Serial: []string{"models:add"}, Steps: []executor.Step{{Name: "numba", Run: c.run, Serial: serial}}})
			for _, err := range []error{e.Ready(t.Context()), e.Health()} {
				require.ErrorContains(t, err, "step 1, numba")
				require.ErrorContains(t, err, c.says)
			}
			for _, function := range []string{"models:add", "models:fail"} {
				require.ErrorContains(t, testenv.ErrorOf(e.Call(t.Context(), function, 1)), c.says)
			}
		})
	}
}

// TestClose checks that Close waits for all calls. When its context ends, waiting calls are refused and
// running ones interrupted.
func TestClose(t *testing.T) {
	e, _ := open(t, executor.Config{})
	group, set := busy(t, e)
	closed := make(chan error, 1)
	go func() { closed <- e.Close(t.Context()) }()
	require.Eventually(t, func() bool { return errors.Is(e.Health(), executor.ErrClosed) }, soon, time.Millisecond)
	require.ErrorIs(t, testenv.ErrorOf(e.Call(t.Context(), "models:add", 1)), executor.ErrClosed)
	set()
	require.NoError(t, <-closed)
	require.NoError(t, group.Wait())
	require.NoError(t, e.Close(t.Context()), "again")
}

// TestWaitEndsWithClose checks that Close refuses a caller that waits for a place immediately, although
// the call on the slot still runs.
func TestWaitEndsWithClose(t *testing.T) {
	e, _ := open(t, executor.Config{Queue: 1, Wait: true})
	group, set := busy(t, e)
	waits := make(chan error, 1)
	go func() { _, err := e.Call(t.Context(), "models:add", 1); waits <- err }()
	closed := make(chan error, 1)
	go func() { closed <- e.Close(t.Context()) }()
	select {
	case err := <-waits:
		require.ErrorIs(t, err, executor.ErrClosed)
	case <-time.After(soon):
		set()
		t.Fatal("the caller still waits for a place")
	}
	set()
	require.NoError(t, <-closed)
	require.NoError(t, group.Wait())
}

// TestSlowImport checks that the executor does not read the arguments of a caller that returned during
// an import, and does not make the call if its context has ended.
func TestSlowImport(t *testing.T) {
	e, _ := open(t, executor.Config{Grace: time.Millisecond})
	py, _ := start(t)
	began, running := begun(t)
	ev, set := event(t)
	out := testenv.Must(py.Run(`
import sys, importlib.abc, importlib.machinery
class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == "slow_module": return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec): return None
    def exec_module(self, module):
        begun()
        event.wait()
        module.f = lambda *a: None
sys.meta_path.insert(0, Slow())
`, python.Vars{"begun": began, "event": ev}))(t)
	require.Empty(t, out)
	defer func() {
		require.NoError(t, testenv.ErrorOf(py.Run("import sys\ndel sys.meta_path[0], sys.modules['slow_module']", nil)))
	}()
	args := map[string]int{"a": 1}
	for i := range 1000 {
		args[fmt.Sprint(i)] = i
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := e.Call(ctx, "slow_module:f", args); failed <- err }()
	await(t, running)
	cancel()
	require.ErrorIs(t, <-failed, executor.ErrStuck)
	set()
	for e.Stats().Running > 0 { // a data race if the executor still reads the arguments
		args["b"]++
		delete(args, "a")
	}
}

func TestCloseInterrupts(t *testing.T) {
	e, _ := open(t, executor.Config{})
	began, running := begun(t)
	runs, waits := make(chan error, 1), make(chan error, 1)
	go func() { _, err := e.Call(t.Context(), "models:forever", began); runs <- err }()
	await(t, running)
	go func() { _, err := e.Call(t.Context(), "models:add", 1); waits <- err }()
	require.Eventually(t, func() bool { return e.Stats().Waiting == 1 }, soon, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// On a machine under load an interrupt can take longer than Config.Grace. Then Close returns ErrStuck.
	require.Eventually(t, func() bool { return e.Close(ctx) == nil }, soon, time.Millisecond)
	err := <-runs
	require.ErrorIs(t, err, python.ErrInterrupted)
	require.ErrorIs(t, err, executor.ErrClosed)
	require.ErrorIs(t, <-waits, executor.ErrClosed)
}

// TestManyClients makes calls with deadlines of various lengths, on arrays, from many goroutines. It
// checks that each returns its own result or an error, and that no memory is left.
func TestManyClients(t *testing.T) {
	e, r := open(t, executor.Config{Slots: 2, Queue: 8, Wait: true})
	testenv.Together(t, 32, func(i int) error {
		x, err := usmarray.Full(r, usmarray.Float64, []int{64}, float64(i))
		if err != nil {
			return err
		}
		defer x.Release()
		for k := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(k+1)*time.Millisecond)
			v, err := e.Call(ctx, "models:doubled", x)
			cancel()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
				continue
			}
			out := v.(map[string]any)
			y, same := out["y"].(*usmarray.Array), out["same"].(*usmarray.Array)
			got, err := usmarray.ToSlice[float64](y)
			y.Release()
			same.Release()
			if err != nil || got[63] != 2*float64(i) {
				return fmt.Errorf("client %d got %v: %w", i, got, err)
			}
		}
		return nil
	})
}
