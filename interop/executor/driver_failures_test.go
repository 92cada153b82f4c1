//go:build cgo && linux

package executor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testfaults"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// onDevice is the Python code of TestDriverFails.
const onDevice = `
import usmbridge as ub
def made(n):
    a = ub.full(n, 12345, "int32", usm_type="shared")
    a.__sycl_usm_array_interface__  # a consumer may have submitted work
    return a
def same(a): return [a, ub.asarray(a).copy()]
`

// TestDriverFails: while calls of the real SYCL library fail, calls into Python return right arrays or an error
// without the elements. Afterwards all is well and nothing is left.
func TestDriverFails(t *testing.T) {
	testfaults.Child(t, rand.Uint64(), nil, func(faults *testfaults.Faults) {
		env := testpython.Need(t, "numpy")
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
		require.NoError(t, pymodule.Register(pymodule.SetRuntime(rt)))
		py := testenv.Must(python.Start(python.WithEnvironment(env)))(t)
		testenv.Held(py.Module("on_device", onDevice))(t)
		e := testenv.Must(executor.New(py, executor.Config{Slots: 2}))(t)
		p := memmgr.NewPool(memmgr.USM(rt.DefaultQueue(), syclobj.USMDevice))

		faults.Fail(t, "DPCTLEvent_WaitAndThrow", 1)
		_, err := e.Call(t.Context(), "on_device:made", 10)
		testenv.Failed(t, err, python.RuntimeError, "work on the device failed")
		require.ErrorContains(t, err, "usmbridge.Array")
		require.NotContains(t, err.Error(), "12345")

		for round := range testfaults.Rounds() {
			faults.Rate([]uint32{1000, 20000, 200000}[round%3])
			testenv.Together(t, 3, func(int) error {
				for range 20 {
					if err := exchangeOnDevice(e, p); err != nil && (errors.Is(err, errWrong) || strings.Contains(err.Error(), "12345")) {
						return err
					}
				}
				return nil
			})
		}
		faults.Rate(0)
		t.Logf("%d faults", faults.Failed())
		require.Greater(t, faults.Failed(), uint64(20))
		require.NoError(t, exchangeOnDevice(e, p))
		require.NoError(t, e.Close(context.Background()))
		require.NoError(t, p.Close())
	})
}

var errWrong = errors.New("wrong elements")

// exchangeOnDevice sends an array to Python, and checks the arrays that it receives.
func exchangeOnDevice(e *executor.Executor, p *memmgr.Pool) error {
	x, err := usmarray.Full(p, usmarray.Int32, []int{100}, 12345)
	if err != nil {
		return err
	}
	defer x.Release()
	result, err := e.Call(context.Background(), "on_device:same", x)
	if err != nil {
		return err
	}
	for _, v := range result.([]any) {
		a := v.(*usmarray.Array)
		defer a.Release()
		got, readErr := usmarray.ToSlice[int32](a)
		if readErr == nil && (len(got) != 100 || slices.Min(got) != 12345 || slices.Max(got) != 12345) {
			readErr = errWrong
		}
		err = errors.Join(err, readErr)
	}
	return err
}
