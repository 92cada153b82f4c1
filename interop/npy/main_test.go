package npy_test

import (
	"os"
	"testing"

	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(fullEnv); path != "" {
		os.Exit(writeToFullDisk(path))
	}
	transfertest.Main(m)
}

var (
	everyMemory = transfertest.EveryMemory
	newPool     = transfertest.Pool
	own         = transfertest.Own
	content     = transfertest.Content
	list        = transfertest.List
)

// runPython runs a script with NumPy and ml_dtypes in a directory.
func runPython(t testing.TB, dir, script string) {
	t.Helper()
	python := transfertest.Python(t, "import numpy, ml_dtypes; assert int(numpy.__version__.split('.')[0]) >= 2")
	transfertest.RunPython(t, python, dir, script)
}
