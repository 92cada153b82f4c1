package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scriptedGo stands for the go command. Each run prints the next of the files 1, 2, ... beside it, and fails if
// the text contains FAIL.
const scriptedGo = `#!/usr/bin/env bash
cd "$(dirname "$0")"
echo x >>runs; n=$(wc -l <runs); cat "$n"; ! grep -q FAIL "$n"
`

func TestFuzzRunsAgain(t *testing.T) {
	t.Parallel()
	needCheckout(t)
	const (
		fine      = "fuzz: elapsed: 5s, execs: 9\nPASS\n"
		deadline  = "--- FAIL: FuzzIt (6.06s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
		finding   = "--- FAIL: FuzzIt (1.00s)\n    --- FAIL: FuzzIt (0.00s)\n        it_test.go:1: wrong\n    Failing input written to testdata/fuzz/FuzzIt/1\nFAIL\n"
		ofItsOwn  = "--- FAIL: FuzzIt (1.00s)\n    --- FAIL: FuzzIt (0.00s)\n        it_test.go:1: context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzIt/1\nFAIL\n"
		unreached = "must not run\nFAIL\n"
	)
	for _, test := range []struct {
		name  string
		runs  []string
		count int
		fails bool
	}{
		{"passes", []string{fine, unreached}, 1, false},
		{"the coordinator's deadline, then passes", []string{deadline, fine, unreached}, 2, false},
		{"the deadline twice, then passes", []string{deadline, deadline, fine, unreached}, 3, false},
		{"the deadline three times", []string{deadline, deadline, deadline, unreached}, 3, true},
		{"an input that fails", []string{finding, unreached}, 1, true},
		{"an input that fails with a deadline", []string{ofItsOwn, unreached}, 1, true},
		{"the deadline, then an input that fails", []string{deadline, finding, unreached}, 2, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			gocmd := filepath.Join(dir, "go")
			require.NoError(t, os.WriteFile(gocmd, []byte(scriptedGo), 0o700)) //nolint:gosec // It is run.
			for i, text := range test.runs {
				require.NoError(t, os.WriteFile(filepath.Join(dir, string(rune('1'+i))), []byte(text), 0o600))
			}
			cmd := exec.CommandContext(t.Context(), "bash", "fuzz.sh", "5s", "^dlpack FuzzCheck$")
			cmd.Env = append(os.Environ(), "GO="+gocmd)
			out, err := cmd.CombinedOutput()
			assert.Equal(t, test.fails, err != nil, "%s", out)
			runs, err := os.ReadFile(filepath.Join(dir, "runs")) //nolint:gosec // The test's own file.
			require.NoError(t, err)
			assert.Equal(t, test.count, strings.Count(string(runs), "\n"), "%s", out)
		})
	}
}
