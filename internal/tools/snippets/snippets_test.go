// Package snippets tests the code blocks of README.md, of the README of the wheel and of the guides in docs.
//
//   - A Go block that begins with a package clause is a program: it is compiled and run, and must print the
//     text block that follows it.
//   - Any other Go block must stand in a Go file of the repository that the tests compile and run.
//   - The Python blocks of a page are one script, which usmpython runs. The pages docs/python*.md are
//     doctests of the Python suite instead.
//
// Programs and scripts run with SYCL and on the host backend. The comment "<!-- not run: REASON -->" before a
// block excludes it.
package snippets

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/python"
)

// block is one fenced block of a page.
type block struct {
	page, language, text string
	notRun               bool
}

var fence = regexp.MustCompile("(?ms)^(<!-- not run: [^\n]+ -->\n\n?)?( *)```([a-z]*)\n(.*?)^ *```$")

// blocks returns the blocks of the pages.
func blocks(t *testing.T) []block {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(testenv.Root(), "docs", "*.md"))
	require.NoError(t, err)
	var all []block
	pages = append(pages, filepath.Join(testenv.Root(), "README.md"), filepath.Join(testenv.Root(), "internal", "pypackage", "README.md"))
	for _, path := range pages {
		name, err := filepath.Rel(testenv.Root(), path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			code := strings.ReplaceAll("\n"+m[4], "\n"+m[2], "\n")[1:] // without the indentation of a list
			all = append(all, block{filepath.ToSlash(name), m[3], code, m[1] != ""})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// run runs a program with SYCL, if the Python environment has it, and on the host backend. It gives what the
// program prints to check.
func run(t *testing.T, env *python.Environment, check func(t *testing.T, out string), name string, args ...string) {
	for _, backend := range []string{"SYCL", "host"} {
		t.Run(backend, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), name, args...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "VIRTUAL_ENV="+env.Prefix)
			if backend == "host" {
				cmd.Env = append(cmd.Env, "USMBRIDGE_SYCL=off")
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			check(t, string(out))
		})
	}
}

// listed returns the files of the repository that match the patterns, relative to its root. They are listed by git:
// the test is skipped outside a checkout.
func listed(t *testing.T, patterns ...string) []string {
	t.Helper()
	list := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard"}, patterns...)...)
	list.Dir = testenv.Root()
	out, err := list.Output()
	if err != nil {
		t.Skip("the files are listed by git, and this is not a checkout: ", err)
	}
	return strings.Fields(string(out))
}

func TestGoPrograms(t *testing.T) {
	env := testpython.Need(t, "numpy")
	all := blocks(t)
	programs := 0
	for i, b := range all {
		if b.language != "go" || !strings.HasPrefix(b.text, "package main\n") {
			continue
		}
		programs++
		require.Equal(t, "text", all[i+1].language, "%s: a program is followed by the text that it prints", b.page)
		source := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(source, []byte(b.text), 0o600))
		t.Run(fmt.Sprintf("%s %d", b.page, programs), func(t *testing.T) {
			run(t, env, func(t *testing.T, out string) { require.Equal(t, all[i+1].text, out) }, testenv.Build(t, source))
		})
	}
	require.NotZero(t, programs)
}

func TestGoFragments(t *testing.T) {
	lines := func(text string) string {
		var trimmed []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				trimmed = append(trimmed, strings.Join(strings.Fields(line), " "))
			}
		}
		return "\n" + strings.Join(trimmed, "\n") + "\n"
	}
	var sources []string
	for _, path := range listed(t, "*_test.go", "examples/*.go") {
		text, err := os.ReadFile(filepath.Join(testenv.Root(), path))
		if err == nil { // a deleted file is still in the index
			sources = append(sources, lines(string(text)))
		}
	}
	for _, b := range blocks(t) {
		if b.language != "go" || b.notRun || strings.HasPrefix(b.text, "package main\n") {
			continue
		}
		found := false
		for _, source := range sources {
			found = found || strings.Contains(source, lines(b.text))
		}
		require.True(t, found, "%s: no test or example has these lines:\n%s", b.page, b.text)
	}
}

func TestPython(t *testing.T) {
	env := testpython.Need(t, "numpy", "dpnp", "numba", "distributed")
	host := testenv.Build(t, filepath.Join(testenv.Root(), "interop", "cmd", "usmpython"))
	scripts := map[string]string{}
	for _, b := range blocks(t) {
		if b.language == "python" && !b.notRun && !strings.HasPrefix(b.page, "docs/python") {
			scripts[b.page] += b.text
		}
	}
	require.NotEmpty(t, scripts["README.md"])
	for page, script := range scripts {
		t.Run(page, func(t *testing.T) {
			run(t, env, func(*testing.T, string) {}, host, "-c", script)
		})
	}
}
