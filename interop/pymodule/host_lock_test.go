//go:build cgo && linux

package pymodule_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// dpnp's tasks on the host need the GIL. Go code that holds it, and waits for memory on which dpnp computes or that a user
// was shown, releases it meanwhile.
func TestWaitsReleaseTheGIL(t *testing.T) {
	py, rt := start(t)
	testpython.Need(t, "dpnp")
	if rt.DefaultQueue().IsHost() {
		testenv.Missing(t, "no SYCL device", testenv.SYCL)
	}
	for name, wait := range map[string]func(a *usmarray.Array) error{
		"Wait": func(a *usmarray.Array) error { return a.Wait() },
		"WaitContext": func(a *usmarray.Array) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			return a.Buffer().WaitContext(ctx)
		},
		"ExportOn":     func(a *usmarray.Array) error { return a.Buffer().ExportOn(rt.DefaultQueue()) },
		"PendingEvent": func(a *usmarray.Array) error { a.Buffer().PendingEvent(); return nil },
		"SetPending": func(a *usmarray.Array) error {
			return a.Buffer().SetPending(rt.DefaultQueue(), nil)
		},
		"Copy":    func(a *usmarray.Array) error { _, err := usmarray.ToSlice[float64](a); return err },
		"TrimAll": func(*usmarray.Array) error { memmgr.TrimAll(); return nil },
	} {
		for _, shown := range []string{"", "x.sycl_queue, x._pointer, ub.ones(1 << 18, usm_type='shared').__dlpack__()"} {
			out := testenv.Must(py.Run("import usmbridge as ub\nx = ub.ones(1 << 18, usm_type='shared')\n"+shown, nil, "x"))(t)
			x := out["x"].(*python.Object)
			a := testenv.Must(pymodule.FromPython(x))(t)
			over := make(chan error, 1)
			go func() {
				over <- py.With(func() error {
					_, err := py.Run("for _ in range(20): x += x; x *= 0.5", python.Vars{"x": x})
					if err == nil {
						err = wait(a)
					}
					return err
				})
			}()
			select {
			case err := <-over:
				require.NoError(t, err, name)
			case <-time.After(2 * time.Minute):
				panic(name + " waits with the GIL held")
			}
			a.Release()
			x.Release()
		}
	}
	memmgr.Flush()
}
