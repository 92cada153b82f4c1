// Package clienttest finds the unmodified tritonclient for tests, in the directory to which
// `make test-nested` fetches it.
package clienttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Command is the tests' Python with tritonclient, which runs in dir until the test ends. The
// test is skipped where it is not there, and fails where peers are required.
func Command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	packages := filepath.Join(filepath.Dir(here), "..", "..", "..", "..", "bin", "tritonclient")
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
		if os.Getenv("USMBRIDGE_REQUIRE_PEERS") != "" {
			t.Fatalf("no tritonclient in %s for %s; make bin/tritonclient/requirements.txt fetches it: %v\n%s", packages, exe, err, out)
		}
		t.Skipf("no tritonclient in %s for %s; make test-nested fetches it: %v", packages, exe, err)
	}
	return cmd
}
