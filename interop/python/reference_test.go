//go:build linux && cgo

package python_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/python/internal/testmod"
)

// watched returns a new object and a function that reports whether it is alive. The
// function's weak reference is never released.
func watched(t *testing.T, py *python.Interpreter) (*python.Object, func() bool) {
	t.Helper()
	o := testenv.Must(py.Eval("type('Watched', (), {})()", nil))(t)
	weakref := testenv.Must(py.Import("weakref"))(t)
	defer weakref.Release()
	ref := testenv.Must(weakref.Method("ref", o))(t)
	// A list keeps the weak reference, so that no Object owns it and ObjectCounts does not
	// count it.
	refs := testenv.Must(py.Eval("__import__('sys').modules.setdefault('watched_refs', [])", nil))(t)
	defer refs.Release()
	testenv.Must(refs.Method("append", ref))(t).Release()
	weak := python.Borrow(ref.Pointer())
	ref.Release()
	return o, func() bool {
		v := testenv.Must(weak.Call())(t)
		defer v.Release()
		return !v.IsNone()
	}
}

func testReferences(t *testing.T, py *python.Interpreter) {
	for _, c := range []struct {
		name string
		use  func(o *python.Object)
	}{
		{"nothing", func(*python.Object) {}},
		{"attr", func(o *python.Object) {
			require.NoError(t, o.SetAttr("x", 1))
			testenv.Must(o.Attr("x"))(t).Release()
			require.Error(t, testenv.ErrorOf(o.Attr("y")))
		}},
		{"call", func(o *python.Object) {
			f := testenv.Must(py.Eval("lambda *a, **k: (a, k)", nil))(t)
			defer f.Release()
			testenv.Must(f.Call(o, o, python.Kwargs{"k": o}))(t).Release()
			require.Error(t, testenv.ErrorOf(o.Call(o)))
			require.Error(t, testenv.ErrorOf(o.Method("no", o)))
		}},
		{"value", func(o *python.Object) {
			l := testenv.Must(py.New(map[string]any{"a": []any{o, python.Tuple{o}}}))(t)
			v := testenv.Must(l.Value())(t)
			l.Release()
			in := v.(map[string]any)["a"].([]any)
			in[0].(*python.Object).Release()
			in[1].(python.Tuple)[0].(*python.Object).Release()
		}},
		{"as fails", func(o *python.Object) {
			l := testenv.Must(py.New([]any{o, o}))(t)
			defer l.Release()
			require.Error(t, testenv.ErrorOf(python.As[[]int](l)))
		}},
		{"run", func(o *python.Object) {
			require.Error(t, testenv.ErrorOf(py.Run("y = x", python.Vars{"x": o}, "missing")))
			require.Error(t, testenv.ErrorOf(py.Run("raise ValueError(1)", python.Vars{"x": o})))
		}},
		{"bad list", func(o *python.Object) {
			require.Error(t, testenv.ErrorOf(py.New([]any{o, make(chan int)})))
			require.Error(t, testenv.ErrorOf(py.New(map[string]any{"a": o, "b": make(chan int)})))
		}},
		{"callback", func(o *python.Object) {
			f := testenv.Must(py.New(func(a python.Args) (any, error) {
				return a.Keyword["k"], nil
			}))(t)
			defer f.Release()
			testenv.Must(f.Call(o, python.Kwargs{"k": o}))(t).Release()
		}},
		{"error frames", func(o *python.Object) {
			_, err := py.Run("def f(o):\n  local = o\n  raise ValueError\nf(x)", python.Vars{"x": o})
			e := testenv.As[*python.Error](t, err)
			require.NoError(t, o.SetAttr("error", nil))
			runtime.KeepAlive(e)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, _ := python.ObjectCounts()
			o, alive := watched(t, py)
			c.use(o)
			require.True(t, alive())
			o.Release()
			// An *Error keeps its exception until Go collects the *Error.
			require.Eventually(t, func() bool {
				runtime.GC()
				collect(t, py)
				return !alive()
			}, time.Minute, time.Millisecond)
			live, _ := python.ObjectCounts()
			require.LessOrEqual(t, live, before) // less if Go collected Objects of earlier tests
		})
	}
}

// collect runs Python's garbage collector.
func collect(t *testing.T, py *python.Interpreter) {
	gc := testenv.Must(py.Import("gc"))(t)
	defer gc.Release()
	testenv.Must(gc.Method("collect"))(t).Release()
}

func testForgotten(t *testing.T, py *python.Interpreter) {
	before, lost := python.ObjectCounts()
	_, alive := watched(t, py)
	require.Eventually(t, func() bool {
		runtime.GC()
		return !alive()
	}, time.Minute, time.Millisecond, "a collected Object did not release its reference")
	live, lostNow := python.ObjectCounts()
	require.LessOrEqual(t, live, before)
	require.Greater(t, lostNow, lost)
}

func testFuncFreed(t *testing.T, py *python.Interpreter) {
	var freed atomic.Bool
	func() {
		big := new([64]byte)
		runtime.AddCleanup(big, func(struct{}) { freed.Store(true) }, struct{}{})
		f := testenv.Must(py.New(func(python.Args) (any, error) { return int(big[0]), nil }))(t)
		testenv.Must(f.Call())(t).Release()
		f.Release()
	}()
	require.Eventually(t, func() bool { runtime.GC(); return freed.Load() }, time.Minute, time.Millisecond,
		"Go keeps a Func after Python released its last reference")
}

func testClose(t *testing.T, py *python.Interpreter) {
	file := filepath.Join(t.TempDir(), "atexit")
	_, err := py.Run("import atexit, sys\natexit.register(lambda: open(name, 'w').write('ran'))\nsys.stdout.write('flushed by Close\\n')",
		python.Vars{"name": file})
	require.NoError(t, err)
	o := testenv.Must(py.New("x"))(t)
	spare := testenv.Must(python.NewReference(o))(t)
	require.NoError(t, py.Close())
	require.NoError(t, py.Close())
	require.Equal(t, "ran", string(testenv.Must(os.ReadFile(file))(t)))
	require.Equal(t, 1, testmod.Exits())
	require.False(t, python.Alive())
	require.ErrorIs(t, testenv.ErrorOf(py.Import("sys")), python.ErrGone)
	require.ErrorIs(t, testenv.ErrorOf(o.Str()), python.ErrGone)
	require.ErrorIs(t, testenv.ErrorOf(py.New(1)), python.ErrGone)
	require.ErrorIs(t, py.With(func() error { return nil }), python.ErrGone)
	require.ErrorIs(t, testenv.ErrorOf(python.Start()), python.ErrGone)
	o.Release() // leaks the reference
	python.Raise(io.EOF)
	testmod.DropOnThread(spare)
}

// testThreadState checks that thread-local objects of Python persist between entries and are
// released when the OS thread ends.
func testThreadState(t *testing.T, py *python.Interpreter) {
	local := testenv.Must(py.Eval("__import__('threading').local()", nil))(t)
	defer local.Release()
	const threads = 6
	var left []func() bool
	var group sync.WaitGroup
	errs := make(chan error, threads)
	hold := make(chan struct{})
	for range threads {
		o, alive := watched(t, py)
		left = append(left, alive)
		group.Add(1)
		go func() {
			runtime.LockOSThread() // not unlocked, so that the thread ends with the goroutine
			defer group.Done()
			errs <- keepLocal(local, o)
			<-hold // Each goroutine uses a different thread.
		}()
	}
	for range threads {
		require.NoError(t, <-errs)
	}
	require.ErrorIs(t, testenv.ErrorOf(local.Attr("x")), python.AttributeError, "this thread sees the object of another thread")
	close(hold)
	group.Wait()
	// Two of the threads may keep their objects: the main thread of the process never ends,
	// and Python's main thread keeps its state.
	require.Eventually(t, func() bool {
		left = slices.DeleteFunc(left, func(alive func() bool) bool { return !alive() })
		return len(left) <= 2
	}, time.Minute, time.Millisecond)
}

// keepLocal stores o as a thread-local object, releases it, and reads it in a later entry.
func keepLocal(local, o *python.Object) error {
	if err := local.SetAttr("x", o); err != nil {
		return err
	}
	o.Release()
	x, err := local.Attr("x")
	x.Release()
	return err
}
