//go:build cgo && linux

package pymodule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

const lateSource = `kernel void late(global long *x, long v, uint n, uint spins) {
  uint s = spins;
  for (uint i = 0; i < spins; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; }
  for (uint i = 0; i < n; i++) x[i] = v + (s == 0);
}`

// TestHeldViews returns views of an Array of Go from Python: Go gets Arrays on the memory of the Array, and reads of
// them wait for its kernels.
func TestHeldViews(t *testing.T) {
	py, rt := start(t)
	q := rt.DefaultQueue()
	if q.IsHost() {
		testenv.Missing(t, "no SYCL device", testenv.SYCL)
	}
	program := testenv.Must(q.BuildOpenCL(lateSource, ""))(t)
	late := testenv.Must(program.Kernel("late"))(t)
	const n = 1000
	launch := func(a *usmarray.Array, v int64, spins uint32) error {
		return kernel.Launch(q, late, kernel.Over(1), kernel.ReadWrite(a), kernel.Scalar(v), kernel.Scalar(uint32(n)), kernel.Scalar(spins))
	}
	for _, c := range []struct {
		code  string
		plain bool // the Array of the result is in plain memory, as the code asked
	}{
		{"r = x", false},
		{"r = numpy.asarray(x)", false},
		{"r = numpy.asarray(x)[:]", false},
		{"r = memoryview(x)", false},
		{"r = usmbridge.asarray(numpy.asarray(x))", false},
		{"r = numpy.from_dlpack(x, device='cpu')", true},
		{"r = usmbridge.from_dlpack(numpy.asarray(x))", true},
		{"r = usmbridge.asarray(x, device='host')", true},
	} {
		for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost} {
			t.Run(c.code+"/"+kind.String(), func(t *testing.T) {
				pool := testenv.Must(memmgr.Default(q, kind))(t)
				for v := int64(1); v <= 5; v++ {
					a := testenv.Must(usmarray.Zeros(pool, usmarray.Int64, []int{n}))(t)
					x := testenv.Must(pymodule.ToPython(a))(t)
					out := testenv.Must(py.Run("import numpy, usmbridge\n"+c.code, python.Vars{"x": x}, "r"))(t)
					object := out["r"].(*python.Object)
					r := testenv.Must(pymodule.FromPython(object))(t)
					require.NoError(t, launch(a, v, 2e6))
					require.Equal(t, v, testenv.Must(r.At(n-1))(t))
					if c.plain {
						require.True(t, r.Place().IsHost())
						require.ErrorIs(t, launch(r, v, 1), usmarray.ErrNotUSM)
					} else {
						require.Equal(t, a.Place(), r.Place())
						require.NoError(t, launch(r, v+1, 1))
						require.Equal(t, v+1, testenv.Must(a.At(0))(t))
					}
					object.Release()
					x.Release()
					r.Release()
					a.Release()
				}
			})
		}
	}
}

// TestGoViewObserves computes in Python on memory of which Go has a view.
func TestGoViewObserves(t *testing.T) {
	py, rt := start(t)
	if rt.DefaultQueue().IsHost() {
		testenv.Missing(t, "no SYCL device", testenv.SYCL)
	}
	pool := testenv.Must(memmgr.Default(rt.DefaultQueue(), syclobj.USMShared))(t)
	a := testenv.Must(usmarray.Zeros(pool, usmarray.Float32, []int{1 << 20}))(t)
	defer a.Release()
	x := testenv.Must(pymodule.ToPython(a))(t)
	defer x.Release()
	observed := func() bool { return cells.Of(a.Buffer()).Observed() }
	require.NoError(t, usmarray.View(a, func(s []float32) error {
		require.True(t, observed())
		for v := range 5 {
			clear(s)
			testenv.Must(py.Run("x += v; r = None", python.Vars{"x": x, "v": v + 1}, "r"))(t)
			require.Equal(t, float32(v+1), s[len(s)-1])
		}
		return usmarray.ReadView(a, func([]float32) error { return nil })
	}))
	require.False(t, observed())
	require.ErrorContains(t, usmarray.View(a, func([]float64) error { return nil }), "float32")
	require.False(t, observed())
}
