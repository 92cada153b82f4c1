package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// logicalLines returns the lines of a text that are neither empty nor comments. It joins the lines that a backslash
// continues.
func logicalLines(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// hashedEntry matches one package of a requirements file.
var hashedEntry = regexp.MustCompile(`^[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*( +; platform_machine == "x86_64")?( +--hash=sha256:[0-9a-f]{64})+$`)

func TestPackagesArePinnedByHash(t *testing.T) {
	for _, wrong := range []string{"numpy", "numpy==2.0", "numpy>=2 --hash=sha256:" + strings.Repeat("0", 64)} {
		require.NotRegexp(t, hashedEntry, wrong)
	}
	files, err := filepath.Glob("requirements-*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range logicalLines(string(text)) {
			require.True(t, hashedEntry.MatchString(line) || line == "-r requirements-run.txt", "%s: %.80s", file, line)
		}
	}
}

var (
	pipInShell = regexp.MustCompile(`(?:\bpip|\$\(PIP\)) +(?:--[a-z-]+ +)*(?:install|download|wheel) [^&]*`)
	pipInGo    = regexp.MustCompile(`"pip",[^)]*?"(?:install|download|wheel)"[^)]*\)`) // arguments of exec.Command
)

// pipCalls returns how many calls of pip a file has that install or download packages, and those that use an index and
// accept files of any hash.
func pipCalls(name, text string) (count int, unverified []string) {
	call := pipInGo
	if !strings.HasSuffix(name, ".go") {
		call, text = pipInShell, strings.Join(logicalLines(text), "&&")
	}
	for _, found := range call.FindAllString(text, -1) {
		count++
		if !strings.Contains(found, "--require-hashes") && !strings.Contains(found, "--no-index") {
			unverified = append(unverified, found)
		}
	}
	return count, unverified
}

func TestEveryPipCallVerifiesHashes(t *testing.T) {
	_, wrong := pipCalls("x.sh", "# pip install a\n$(PIP) --quiet install \\\n  a && pip install --no-index b\n")
	require.Len(t, wrong, 1)
	_, wrong = pipCalls("x.go", `exec.Command("python", "-m", "pip", "install", "a")`)
	require.Len(t, wrong, 1)

	list := exec.Command("git", "ls-files", "*Makefile", "*.sh", "*.go", ".ci")
	list.Dir = testenv.Root()
	out, err := list.Output()
	if err != nil {
		t.Skip("the files are listed by git, and this is not a checkout: ", err)
	}
	calls := 0
	for name := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join(testenv.Root(), name))
		if err == nil && filepath.Base(name) != "pins_test.go" { // a deleted file is still in the index
			count, unverified := pipCalls(name, string(text))
			assert.Empty(t, unverified, name)
			calls += count
		}
	}
	assert.Equal(t, 10, calls, "all calls were found")
}
