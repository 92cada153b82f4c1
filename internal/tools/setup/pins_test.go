package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
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

// moduleRoot is the directory of usmbridge's go.mod, seen from this package.
const moduleRoot = "../../.."

// logicalLines returns the lines of a text that are neither empty nor comments, with the lines
// that a backslash continues joined.
func logicalLines(text string) []string {
	var lines []string
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// hashedEntry matches one package of a requirements file; its first group is NAME==VERSION.
var hashedEntry = regexp.MustCompile(`^([A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*)( +; platform_machine == "x86_64")?( +--hash=sha256:[0-9a-f]{64})+$`)

func TestEveryPackageIsPinnedByHash(t *testing.T) {
	files, err := filepath.Glob("requirements-*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			entries := 0
			for _, line := range logicalLines(string(text)) {
				if file == "requirements-test.txt" && line == "-r requirements-run.txt" {
					continue
				}
				if !assert.Regexp(t, hashedEntry, line) {
					return // one entry is enough: long files have a hundred
				}
				entries++
			}
			require.Positive(t, entries)
		})
	}
}

// The environments of test-versions.sh take their entries from three files, each package from
// exactly one of them.
func TestVersionsArePinnedByHash(t *testing.T) {
	found := map[string]int{}
	for _, file := range []string{"requirements-run.txt", "requirements-test.txt", "requirements-versions.txt"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range logicalLines(string(text)) {
			if entry := hashedEntry.FindStringSubmatch(line); entry != nil {
				found[entry[1]]++
			}
		}
	}
	wanted := 0
	for _, file := range []string{"versions.txt", "../checks/test-versions.sh"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, pin := range regexp.MustCompile(`[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*`).FindAllString(string(text), -1) {
			assert.Equal(t, 1, found[pin], "entries with hashes for %s of %s", pin, file)
			wanted++
		}
	}
	require.Greater(t, wanted, 50)
}

// pipCalls finds the places in a file that run pip to install or download packages. In Go files
// they are arguments of exec.Command; there, the shell's form is advice in an error text.
func pipCalls(name, text string) []string {
	call := regexp.MustCompile(`(?:\bpip3?|\$\(PIP\)) +(?:--[a-z-]+ +)*(?:install|download|wheel) `)
	if strings.HasSuffix(name, ".go") {
		call = regexp.MustCompile(`(?s)"pip",[^)]*?"(?:install|download|wheel)"[^)]*\)`)
		return call.FindAllString(text, -1)
	}
	var calls []string
	for _, line := range logicalLines(text) {
		for _, command := range strings.Split(line, "&&") {
			if call.MatchString(command) {
				calls = append(calls, command)
			}
		}
	}
	return calls
}

func TestEveryPipCallVerifiesHashes(t *testing.T) {
	calls := map[string]int{}
	require.NoError(t, filepath.WalkDir(moduleRoot, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name == "bin" || name == "dist" || name == ".git" || name == ".venv" {
				return filepath.SkipDir
			}
			return nil
		}
		switch ext := filepath.Ext(name); {
		case name == "pins_test.go":
			return nil
		case name == "Makefile", ext == ".sh", ext == ".go", filepath.Base(filepath.Dir(path)) == ".ci":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(moduleRoot, path)
		if err != nil {
			return err
		}
		for _, call := range pipCalls(name, string(text)) {
			calls[filepath.ToSlash(rel)]++
			verified := strings.Contains(call, "--require-hashes")
			local := strings.Contains(call, "--no-index") // a wheel that was built here
			assert.True(t, verified || local, "%s: pip call with neither --require-hashes nor --no-index: %s", rel, call)
		}
		return nil
	}))
	for file, count := range map[string]int{
		"Makefile": 2, "internal/tools/setup/main.go": 1, "internal/tools/checks/test-pythons.sh": 1,
		"internal/tools/checks/test-versions.sh": 1, "internal/tools/wheel/wheel_test.go": 1,
	} {
		assert.Equal(t, count, calls[file], "pip calls found in %s", file)
	}
}

// writeWheel writes a wheel of tiny 1.0, a module with one variable, into dir and returns its hash.
func writeWheel(t *testing.T, dir, value string) string {
	t.Helper()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	for _, member := range [][2]string{
		{"tiny.py", "value = '" + value + "'\n"},
		{"tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"},
		{"tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n"},
	} {
		w, err := z.Create(member[0])
		require.NoError(t, err)
		_, err = w.Write([]byte(member[1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tiny-1.0-py3-none-any.whl"), file.Bytes(), 0o600))
	return fmt.Sprintf("%x", sha256.Sum256(file.Bytes()))
}

// TestInstallVerifiesHashes installs packages of a local directory. pip cannot reach an index.
func TestInstallVerifiesHashes(t *testing.T) {
	exe := testenv.Interpreter(t, "import venv, ensurepip")
	var output bytes.Buffer
	v := &venv{dir: filepath.Join(t.TempDir(), ".venv"), out: &output}
	out, err := exec.Command(exe, "-m", "venv", v.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	wheels := t.TempDir()
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", wheels)
	other := writeWheel(t, wheels, "other")
	pinned := writeWheel(t, t.TempDir(), "pinned")
	require.NotEqual(t, other, pinned)

	list := filepath.Join(t.TempDir(), "list.txt")
	install := func(line string) error {
		output.Reset()
		require.NoError(t, os.WriteFile(list, []byte(line+"\n"), 0o600))
		return v.install(list)
	}
	installed := func() string {
		out, _ := exec.Command(v.python(), "-I", "-c", "import tiny; print(tiny.value)").Output()
		return strings.TrimSpace(string(out))
	}

	require.ErrorContains(t, install("tiny==1.0 --hash=sha256:"+pinned), "pip install")
	require.Contains(t, output.String(), "DO NOT MATCH THE HASHES")
	require.Error(t, install("tiny==1.0"))
	require.Contains(t, output.String(), "Hashes are required")
	require.Empty(t, installed(), "a refused package is not installed")

	require.Equal(t, pinned, writeWheel(t, wheels, "pinned"))
	require.NoError(t, install("tiny==1.0 --hash=sha256:"+pinned))
	require.Equal(t, "pinned", installed())
}
