//go:build linux && cgo

package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAdopt imports Go code into each Python as an extension module.
func TestAdopt(t *testing.T) {
	if os.Getenv(embedEnv) != "" {
		t.Skip("this process is a child for embedding")
	}
	list := pythons(t)
	if len(list) == 0 {
		skipWithoutPython(t, "there is no Python to import an extension module into")
	}
	dir := t.TempDir()
	lib := filepath.Join(dir, "usmb_adopted.abi3.so")
	out, err := exec.Command("go", "build", "-buildmode=c-shared", "-o", lib, "./testdata/adopt").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const program = `
import os, warnings, usmb_adopted
warnings.simplefilter("ignore", DeprecationWarning)
for i in range(3): usmb_adopted.run()
pid = os.fork()
if pid == 0:
    try: usmb_adopted.run()
    except RuntimeError: os._exit(42)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`
	for _, env := range list {
		t.Run(env.Version.String()+" "+filepath.Base(env.Prefix), func(t *testing.T) {
			cmd := exec.Command(env.Executable, "-c", program)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "42\n", string(out))
		})
	}
}
