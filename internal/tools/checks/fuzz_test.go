package checks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFuzzRunsAgain checks which failures of a fuzz target count. A script stands for the go command: each run prints
// the next of the files 0, 1, ... beside it, and fails if the text contains FAIL.
func TestFuzzRunsAgain(t *testing.T) {
	needCheckout(t)
	const (
		script   = "#!/usr/bin/env bash\ncd \"$(dirname \"$0\")\"\nn=$(cat runs); echo $((n + 1)) >runs; cat \"$n\"; ! grep -q FAIL \"$n\"\n"
		fine     = "fuzz: elapsed: 5s, execs: 9\nPASS\n"
		deadline = "--- FAIL: FuzzIt (6.06s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
		finding  = "--- FAIL: FuzzIt (1.00s)\n    --- FAIL: FuzzIt (0.00s)\n        it_test.go:1: context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzIt/1\nFAIL\n"
	)
	for name, test := range map[string]struct {
		runs  []string
		count int
		fails bool
	}{
		"passes": {[]string{fine, finding}, 1, false},
		"the coordinator's deadline, then passes": {[]string{deadline, deadline, fine, finding}, 3, false},
		"the deadline three times":                {[]string{deadline, deadline, deadline, fine}, 3, true},
		"an input that fails with a deadline":     {[]string{finding, fine}, 1, true},
		"the deadline, then an input that fails":  {[]string{deadline, finding, fine}, 2, true},
	} {
		dir := t.TempDir()
		for i, text := range append(test.runs, "") {
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(text), 0o600))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "runs"), []byte("0"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700)) //nolint:gosec // It is run.
		cmd := exec.Command("bash", "fuzz.sh", "5s", "^dlpack FuzzCheck$")
		cmd.Env = append(os.Environ(), "GO="+filepath.Join(dir, "go"))
		out, err := cmd.CombinedOutput()
		require.Equal(t, test.fails, err != nil, "%s: %s", name, out)
		runs, err := os.ReadFile(filepath.Join(dir, "runs"))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(test.count), strings.TrimSpace(string(runs)), "%s: %s", name, out)
	}
}
