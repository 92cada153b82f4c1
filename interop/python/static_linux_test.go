//go:build cgo

package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/python"
)

// A statically linked program cannot load libpython, and Start says so.
func TestStaticProgram(t *testing.T) {
	env, err := python.Find()
	if err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "static")
	build := exec.Command("go", "build", "-o", program, "-ldflags", "-linkmode external -extldflags -static", "./testdata/static")
	build.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("no static C library to link with: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "USMBRIDGE_PYTHON="+env.Executable)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "linked statically")
}
