package safetensors_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
)

func TestMain(m *testing.M) { transfertest.Main(m) }

var (
	everyMemory = transfertest.EveryMemory
	newPool     = transfertest.Pool
	own         = transfertest.Own
	content     = transfertest.Content
	list        = transfertest.List
)

// runPython runs a script with safetensors, NumPy and ml_dtypes in a directory.
func runPython(t testing.TB, dir, script string) {
	t.Helper()
	python := transfertest.Python(t, "import safetensors, numpy, ml_dtypes; assert safetensors.__version__ >= '0.8'")
	transfertest.RunPython(t, python, dir, script)
}
