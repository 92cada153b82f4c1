package npy_test

import (
	"context"
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) {
	transfertest.MainSaving(m, func(path string, inPlace bool) error {
		a, err := usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{1 << 20})
		if err != nil {
			return err
		}
		defer a.Release()
		return npy.Save(context.Background(), path, a, npy.WriteOptions{InPlace: inPlace})
	})
}

// runPython runs a script with NumPy and ml_dtypes in a directory.
func runPython(t testing.TB, dir, script string) {
	t.Helper()
	python := testenv.Interpreter(t, "import numpy, ml_dtypes; assert int(numpy.__version__.split('.')[0]) >= 2")
	transfertest.RunPython(t, python, dir, script)
}
