package checks

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// needCheckout skips the test outside of a git checkout: the scripts list fuzz targets with git.
func needCheckout(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../../../.git"); err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
}

// stages returns the names of the stages of long.sh that match a regular expression.
func stages(t *testing.T, only string) []string {
	t.Helper()
	needCheckout(t)
	out, err := exec.CommandContext(t.Context(), "bash", "long.sh", "-l", "-o", only, "5").Output()
	require.NoError(t, err, only)
	var names []string
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutSuffix(line, ":\n"); ok && !strings.HasPrefix(line, " ") {
			names = append(names, name)
		}
	}
	return names
}

// TestLongStagesOfEachSurface checks that each row of docs/fuzzing.md selects stages, and that every
// stage is in a row.
func TestLongStagesOfEachSurface(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	page, err := os.ReadFile("../../../docs/fuzzing.md")
	if err != nil {
		t.Skip("the documentation is not here: ", err)
	}
	rows := regexp.MustCompile("(?m)^\\|[^|]*\\|[^|]*\\| `(.*?)` \\|").FindAllStringSubmatch(strings.ReplaceAll(string(page), `\|`, "\x00"), -1)
	require.Greater(t, len(rows), 15)
	for _, row := range rows[1:] { // after the heading
		only := strings.ReplaceAll(row[1], "\x00", "|")
		names := stages(t, only)
		require.NotEmpty(t, names, only)
		for _, name := range names {
			listed[name] = true
		}
	}
	for _, name := range stages(t, ".") {
		require.True(t, listed[name], "%s: no row of docs/fuzzing.md selects it", name)
	}
}
