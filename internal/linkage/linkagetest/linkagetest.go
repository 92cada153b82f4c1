// Package linkagetest builds statically linked programs for tests.
package linkagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds ./testdata/static as a statically linked program and returns its path. It skips
// the test if there is no go command or no static C library.
func Build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "static")
	build := exec.Command("go", "build", "-o", program, "-ldflags", "-linkmode external -extldflags -static", "./testdata/static")
	build.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("no static C library to link with: %v\n%s", err, out)
	}
	return program
}
