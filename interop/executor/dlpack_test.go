//go:build cgo && linux

package executor_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestWritesAreDone checks that Call waits for writes of dpnp to an argument that are pending when the
// function returns, with both protocols.
func TestWritesAreDone(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		inChild(t, "TestWritesAreDone", "usm")
		return
	}
	env := testpython.Need(t, "numpy", "dpnp")
	rt, err := syclobj.Open()
	if err != nil || rt.DefaultQueue().IsHost() {
		testenv.Missing(t, fmt.Sprint("no SYCL device: ", err), testenv.SYCL)
	}
	require.NoError(t, pymodule.Register(pymodule.SetRuntime(rt)))
	py, err := python.Start(python.WithEnvironment(env))
	require.NoError(t, err)
	m, err := py.Module("usm", `
import dpnp
def sines(x, *, outputs, n):
    a = dpnp.from_dlpack(x)
    y = dpnp.from_dlpack(outputs["y"][0])
    for _ in range(n): dpnp.multiply(a, 2, out=y); dpnp.sin(y, out=y)
    dpnp.multiply(a, 3, out=y)
def by_dictionary(x, *, outputs, n):
    a = dpnp.tensor.asarray(x)
    y = dpnp.tensor.asarray(outputs["y"][0])
    for _ in range(n): dpnp.tensor.multiply(a, 2, out=y); dpnp.tensor.sin(y, out=y)
    dpnp.tensor.multiply(a, 3, out=y)
`)
	require.NoError(t, err)
	m.Release()
	e, err := executor.New(py, executor.Config{})
	require.NoError(t, err)
	for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost, syclobj.USMDevice} {
		t.Run(kind.String(), func(t *testing.T) {
			r, err := memmgr.Default(rt.DefaultQueue(), kind)
			require.NoError(t, err)
			const n = 1 << 20
			x, err := usmarray.Full(r, usmarray.Float32, []int{n}, 2)
			require.NoError(t, err)
			defer x.Release()
			for i := range 10 {
				y, err := usmarray.Zeros(r, usmarray.Float32, []int{n})
				require.NoError(t, err)
				function := []string{"usm:sines", "usm:by_dictionary"}[i%2]
				_, err = e.Call(t.Context(), function, x, python.Kwargs{"outputs": map[string]any{"y": []any{y}}, "n": 20})
				require.NoError(t, err)
				got, err := usmarray.ToSlice[float32](y)
				require.NoError(t, err)
				require.Equal(t, []float32{6, 6}, []float32{got[0], got[n-1]}, "time %d", i)
				y.Release()
			}
		})
	}
	require.NoError(t, e.Close(t.Context()))
	if !t.Failed() {
		// The race detector ends the process by C's exit. Exit handlers of dpnp's libraries crash then.
		fmt.Println("--- PASS: TestWritesAreDone")
		syscall.Exit(0)
	}
}
