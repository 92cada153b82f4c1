package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runEnv makes this test binary run the program.
const runEnv = "USMBRIDGE_TEST_EMBEDDED"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestExtractsItsPython runs the program twice without an installed Python or SYCL. The second run finds
// the files of the first.
func TestExtractsItsPython(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		cmd := exec.Command(os.Args[0], "-dir", dir)
		cmd.Env = []string{runEnv + "=1", "PATH=" + t.TempDir(), "HOME=" + t.TempDir(), "USMBRIDGE_SYCL=off"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"of this program", "[4.         2.66666667", "sum: 32\n"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "python*", "bin", "python3.*")); len(found) == 0 {
		t.Error("no Python was extracted to the directory of -dir")
	}
}
