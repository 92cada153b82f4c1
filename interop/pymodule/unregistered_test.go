//go:build cgo && linux

package pymodule_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestUnregistered runs programs that start Python without a call of Register.
func TestUnregistered(t *testing.T) {
	if code, ok := os.LookupEnv(childEnv); ok {
		fmt.Println(handOver(t, code))
		return
	}
	const remedy = "pymodule.Register before Python starts"
	for _, c := range []struct{ name, code, want string }{
		{"hand-over first", "", "[1 2 3] <nil>"},
		{"import first", "import usmbridge; usmbridge.zeros(3)", "[1 2 3] <nil>"},
		{"blocked import", "import sys; sys.modules['usmbridge'] = None", remedy},
		{"another module of the name", "import sys, types; sys.modules['usmbridge'] = types.ModuleType('usmbridge')", remedy},
		{"an import that fails", "import sys\nclass Finder:\n  def find_spec(self, *args): raise ImportError('its own')\nsys.meta_path.insert(0, Finder())", "ImportError: its own"},
		{"an import that lacks another module", "import sys\nclass Finder:\n  def find_spec(self, name, *args):\n    if name == 'usmbridge': import nowhere\nsys.meta_path.insert(0, Finder())", "ModuleNotFoundError: No module named 'nowhere'"},
		{"an import that raises", "import sys\nclass Finder:\n  def find_spec(self, *args): raise LookupError('its own')\nsys.meta_path.insert(0, Finder())", "LookupError: its own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testpython.Need(t, "numpy")
			require.Contains(t, inProcess(t, c.code), c.want)
		})
	}
}

// handOver passes an array to Python, runs code, and gets the array back.
func handOver(t *testing.T, code string) (string, error) {
	py := testenv.Must(python.Start())(t)
	require.NoError(t, testenv.ErrorOf(py.Run("import numpy\n"+code, nil)))
	a := testenv.Held(usmarray.FromSlice(memmgr.Host(), []int32{1, 2, 3}, []int{3}))(t)
	x, err := pymodule.ToPython(a)
	if err != nil {
		y, evalErr := py.Eval("__import__('numpy').zeros(3)", nil)
		require.NoError(t, evalErr)
		defer y.Release()
		_, fromErr := pymodule.FromPython(y)
		require.EqualError(t, fromErr, err.Error())
		return "", err
	}
	defer x.Release()
	b, err := pymodule.FromPython(x)
	if err != nil {
		return "", err
	}
	defer b.Release()
	return b.String(), nil
}
