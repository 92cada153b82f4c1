//go:build cgo && linux

package pymodule_test

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestMain ends as doc.go advises, because tests here compute by dpnp. Each test that starts Python checks for leaks
// (balanced).
func TestMain(m *testing.M) { syscall.Exit(m.Run()) }

// embedded is the interpreter of this process. There can be only one.
var embedded struct {
	once sync.Once
	py   *python.Interpreter
	rt   *syclobj.Runtime
	err  error
	used []string // tags and kinds of the calls of the resource function
	mu   sync.Mutex
}

func resource(q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	embedded.mu.Lock()
	embedded.used = append(embedded.used, q.Device().FilterString()+" "+kind.String())
	embedded.mu.Unlock()
	p, err := memmgr.Default(q, kind)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// start starts the embedded Python with the module and returns it with its Runtime.
func start(t testing.TB) (*python.Interpreter, *syclobj.Runtime) {
	t.Helper()
	env := testpython.Need(t, "numpy")
	embedded.once.Do(func() {
		if embedded.rt, embedded.err = syclobj.Open(); embedded.err != nil {
			return
		}
		if embedded.err = pymodule.Register(pymodule.SetRuntime(embedded.rt), pymodule.SetResource(resource)); embedded.err != nil {
			return
		}
		embedded.py, embedded.err = python.Start(python.WithEnvironment(env))
	})
	require.NoError(t, embedded.err)
	balanced(t)
	return embedded.py, embedded.rt
}

// balanced checks at the end of the test that no more buffers are live than now.
func balanced(t testing.TB) {
	before, _ := memmgr.LiveCount()
	t.Cleanup(func() {
		require.Eventually(t, func() bool {
			now, _ := memmgr.LiveCount()
			return now <= before
		}, time.Minute, time.Millisecond, "memory was not given back")
	})
}

func eval(t *testing.T, py *python.Interpreter, expr string, vars python.Vars) *python.Object {
	t.Helper()
	return testenv.Held(py.Eval(expr, vars))(t)
}

func text(t *testing.T, o *python.Object) string {
	t.Helper()
	return testenv.Must(o.Str())(t)
}

// TestExamples runs the examples with the embedded Python and checks their output.
func TestExamples(t *testing.T) {
	start(t)
	require.Equal(t, "75\n[[10. 20. 30.]\n [ 4.  5.  6.]]\n", testenv.Printed(t, ExampleToPython))
	require.Equal(t, "4.999995e+11 [-1 -2 -3]\n", testenv.Printed(t, ExampleToPython_slice))
	require.Equal(t, "[2 3] [3 -1]\n[[2 1 0]\n [5 4 3]]\n", testenv.Printed(t, ExampleFromPython))
}

func TestToPython(t *testing.T) {
	py, rt := start(t)
	host := testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(t)
	a := testenv.Must(usmarray.FromSlice(host, []float32{0, 1, 2, 3, 4, 5}, []int{2, 3}))(t)
	o := testenv.Must(pymodule.ToPython(a))(t)
	v := testenv.Must(a.Transpose())(t)
	w := testenv.Must(pymodule.ToPython(v.AsReadOnly()))(t)
	address := uintptr(a.Pointer())
	a.Release()
	vars := python.Vars{"o": o, "w": w, "np": eval(t, py, "__import__('numpy')", nil)}
	require.Equal(t, "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]", text(t, eval(t, py, "np.from_dlpack(o).tolist()", vars)))
	require.Equal(t, "True", text(t, eval(t, py, "w.readonly and w.shape == (3, 2) and w.strides == (1, 3) and not o.readonly", vars)))
	require.Equal(t, int64(address), testenv.Must(eval(t, py, "np.asarray(o).ctypes.data", vars).Int())(t))
	o.Release()
	w.Release()
}

// TestHandOverGoesByNoName checks that a hand-over uses the types of the C module, even if sys.modules has another
// module named usmbridge.
func TestHandOverGoesByNoName(t *testing.T) {
	py, rt := start(t)
	host := testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(t)
	a := testenv.Held(usmarray.FromSlice(host, []float32{0, 1}, []int{2}))(t)
	testenv.Held(pymodule.ToPython(a))(t) // imports the package if necessary
	vars := python.Vars{"sys": eval(t, py, "__import__('sys')", nil)}
	vars["mine"] = eval(t, py, "sys.modules['usmbridge']", vars)
	eval(t, py, "sys.modules.update(usmbridge=None)", vars)
	defer eval(t, py, "sys.modules.update(usmbridge=mine)", vars)
	p := testenv.Held(pymodule.ToPython(a))(t)
	b := testenv.Must(pymodule.FromPython(p))(t)
	require.Equal(t, a.Pointer(), b.Pointer())
	b.Release()
}

// thereAndBack passes an array to Python and returns the array that Python passes back.
func thereAndBack(a *usmarray.Array) (*usmarray.Array, error) {
	o, err := pymodule.ToPython(a)
	if err != nil {
		return nil, err
	}
	defer o.Release()
	return pymodule.FromPython(o)
}

// BenchmarkHandOver measures the hand-over of an array in each direction, with its release, and an entry into
// Python without work.
func BenchmarkHandOver(b *testing.B) {
	py, rt := start(b)
	host := testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(b)
	a := testenv.Held(usmarray.FromSlice(host, []float32{0, 1, 2, 3, 4, 5}, []int{2, 3}))(b)
	o := testenv.Held(pymodule.ToPython(a))(b)
	np := testenv.Held(py.Eval("__import__('numpy').zeros((2, 3))", nil))(b)
	for name, f := range map[string]func() error{
		"entry":            func() error { return py.With(func() error { return nil }) },
		"ToPython":         releasing(func() (*python.Object, error) { return pymodule.ToPython(a) }),
		"FromPython/ours":  releasing(func() (*usmarray.Array, error) { return pymodule.FromPython(o) }),
		"FromPython/numpy": releasing(func() (*usmarray.Array, error) { return pymodule.FromPython(np) }),
		"ThereAndBack":     releasing(func() (*usmarray.Array, error) { return thereAndBack(a) }),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			if name == "ThereAndBack" { // The bound is 3 us. of-bound reports the ratio of the time to it.
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3000, "of-bound")
			}
		})
	}
}

func TestFromPython(t *testing.T) {
	py, _ := start(t)
	np := eval(t, py, "__import__('numpy')", nil)
	x := eval(t, py, "np.arange(6, dtype='int32').reshape(2, 3)[:, ::-1]", python.Vars{"np": np})
	a := testenv.Must(pymodule.FromPython(x))(t)
	require.Equal(t, []int{2, 3}, a.Shape())
	require.Equal(t, []int{3, -1}, a.Strides())
	require.Equal(t, "[[2 1 0]\n [5 4 3]]", a.String())
	p := testenv.Must(eval(t, py, "x.__array_interface__['data'][0]", python.Vars{"x": x}).Int())(t)
	require.Equal(t, uintptr(p), uintptr(a.Pointer()))

	back := testenv.Must(pymodule.ToPython(a))(t)
	require.Equal(t, "True", text(t, eval(t, py, "b._pointer == x.__array_interface__['data'][0]", python.Vars{"b": back, "x": x})))
	back.Release()

	// By the buffer protocol and by DLPack. The memory itself is read-only, and not only this Array.
	for _, ro := range []string{"b'abc'", "np.broadcast_to(np.arange(3), (2, 3))"} {
		r := testenv.Must(pymodule.FromPython(eval(t, py, ro, python.Vars{"np": np})))(t)
		require.True(t, r.ReadOnly() && r.Buffer().ReadOnly(), ro)
		r.Release()
	}

	require.ErrorIs(t, testenv.ErrorOf(pymodule.FromPython(eval(t, py, "5", nil))), python.TypeError)
	// Any goroutine, without the GIL.
	done := make(chan struct{})
	go func() { a.Release(); close(done) }()
	<-done
}

// TestOwnersEndWithoutPython checks that the last release in Go releases the Python owner, even if no Python code
// runs afterwards.
func TestOwnersEndWithoutPython(t *testing.T) {
	py, _ := start(t)
	x := eval(t, py, "bytearray(64)", nil)
	var all []*usmarray.Array
	for range 100 {
		a := testenv.Must(pymodule.FromPython(x))(t)
		all = append(all, a)
	}
	for _, a := range all {
		a.Release()
	}
	// A bytearray can be resized only while it has no exported buffers.
	require.Eventually(t, func() bool {
		o, err := py.Eval("x.append(1)", python.Vars{"x": x})
		if err != nil {
			return false
		}
		o.Release()
		return true
	}, time.Minute, time.Millisecond)
}

func TestUSM(t *testing.T) {
	py, rt := start(t)
	if !rt.HasSYCL() || rt.DefaultDevice().IsHost() {
		testenv.Missing(t, "no SYCL device", testenv.SYCL)
	}
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		r := testenv.Must(memmgr.Default(rt.DefaultQueue(), kind))(t)
		a := testenv.Must(usmarray.FromSlice(r, []int64{1, 2, 3, 4}, []int{2, 2}))(t)
		o := testenv.Must(pymodule.ToPython(a))(t)
		b := testenv.Must(pymodule.FromPython(o))(t)
		require.Equal(t, uintptr(a.Pointer()), uintptr(b.Pointer()))
		require.Equal(t, kind, b.Place().Kind())
		require.Equal(t, "[[1 2]\n [3 4]]", b.String())
		require.Equal(t, kind.String(), text(t, eval(t, py, "o.usm_type", python.Vars{"o": o})))
		a.Release()
		b.Release()
		o.Release()
	}
	require.NoError(t, testenv.ErrorOf(py.Run("import usmbridge as ub\na = ub.empty(3, usm_type='shared')\ndel a", nil)))
	embedded.mu.Lock()
	defer embedded.mu.Unlock()
	require.Contains(t, embedded.used, rt.DefaultDevice().FilterString()+" shared")
}

func TestConcurrent(t *testing.T) {
	py, rt := start(t)
	host := testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				a, err := usmarray.FromSlice(host, []int32{int32(i)}, nil)
				if !assert.NoError(t, err) {
					return
				}
				b, err := thereAndBack(a)
				a.Release()
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, int32(i), *(*int32)(b.Pointer()))
				b.Release()
			}
		})
	}
	wg.Wait()
	runtime.KeepAlive(py)
}

func TestRegisterTwice(t *testing.T) {
	start(t)
	require.NoError(t, pymodule.Register())
	other := testenv.Must(syclobj.Open(syclobj.HostOnly()))(t)
	defer other.Close()
	require.ErrorIs(t, pymodule.Register(pymodule.SetRuntime(other)), pymodule.ErrRegistered)
	require.NotEqual(t, unsafe.Pointer(nil), pymodule.InitFunc())
}
