package safetensors_test

import (
	"context"
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) {
	transfertest.MainSaving(m, func(path string, inPlace bool) error {
		a, err := usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{1 << 19})
		if err != nil {
			return err
		}
		defer a.Release()
		tensors := map[string]*usmarray.Array{"a": a, "b": a}
		return safetensors.Save(context.Background(), path, tensors, safetensors.WriteOptions{InPlace: inPlace})
	})
}

// runPython runs a script with safetensors, NumPy and ml_dtypes in a directory.
func runPython(t testing.TB, dir, script string) {
	t.Helper()
	python := testenv.Interpreter(t, "import safetensors, numpy, ml_dtypes; assert safetensors.__version__ >= '0.8'")
	transfertest.RunPython(t, python, dir, script)
}
