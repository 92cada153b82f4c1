// Package clienttest finds the unmodified tritonclient for tests, in the directory to which
// `make test-nested` fetches it.
package clienttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// Command returns a command of the tests' Python with tritonclient. It runs in dir until the test ends. If
// tritonclient is not installed, the test is skipped, or fails if peers are required.
func Command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	packages := filepath.Join(testenv.Root(), "bin", "tritonclient")
	exe := "python3"
	if env := os.Getenv("VIRTUAL_ENV"); env != "" {
		exe = filepath.Join(env, "bin", "python")
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	probe := exec.Command(exe, "-c", "import numpy, tritonclient.grpc, tritonclient.http, pytest")
	probe.Env = cmd.Env
	if out, err := probe.CombinedOutput(); err != nil {
		testenv.Missing(t, fmt.Sprintf("no tritonclient in %s for %s; make test-nested fetches it: %v\n%s", packages, exe, err, out), testenv.Peers)
	}
	return cmd
}
