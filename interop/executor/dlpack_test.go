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
	py := testenv.Must(python.Start(python.WithEnvironment(env)))(t)
	m := testenv.Must(py.Module("usm", `
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
`))(t)
	m.Release()
	e := testenv.Must(executor.New(py, executor.Config{}))(t)
	for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost, syclobj.USMDevice} {
		t.Run(kind.String(), func(t *testing.T) {
			r := testenv.Must(memmgr.Default(rt.DefaultQueue(), kind))(t)
			const n = 1 << 20
			x := testenv.Held(usmarray.Full(r, usmarray.Float32, []int{n}, 2))(t)
			for i := range 10 {
				y := testenv.Must(usmarray.Zeros(r, usmarray.Float32, []int{n}))(t)
				function := []string{"usm:sines", "usm:by_dictionary"}[i%2]
				_, err = e.Call(t.Context(), function, x, python.Kwargs{"outputs": map[string]any{"y": []any{y}}, "n": 20})
				require.NoError(t, err)
				got := testenv.Must(usmarray.ToSlice[float32](y))(t)
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
