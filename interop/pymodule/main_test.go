//go:build cgo && linux

package pymodule_test

import (
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/python"
)

// hostFlags are the build flags of this test, with which buildHost builds.
var hostFlags []string

// buildHost builds usmpython, the interpreter with the built-in module, and returns its path.
func buildHost(t *testing.T) string {
	t.Helper()
	return testenv.Build(t, "../cmd/usmpython", hostFlags...)
}

// childEnv is the environment variable that inProcess sets in the process of a test, to the part of the test to run there.
const childEnv = "USMBRIDGE_TEST_CHILD"

// inProcess runs the calling test in a process of its own, with Python, childEnv and more variables of the environment, and
// returns its output.
func inProcess(t *testing.T, part string, vars ...string) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	timeout := "5m"
	if _, limited := t.Deadline(); !limited {
		timeout = "0"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.v", "-test.timeout="+timeout)
	cmd.Env = append(append(os.Environ(), python.EnvVar+"="+testpython.Need(t).Executable, childEnv+"="+part), vars...)
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return string(out)
}

type testCase struct {
	Class   string  `xml:"classname,attr"`
	Name    string  `xml:"name,attr"`
	Failure *report `xml:"failure"`
	Error   *report `xml:"error"`
	Skipped *report `xml:"skipped"`
}

type report struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// pythonTestsEnv is the environment variable with the files of tests/ to run, as patterns; if it has none, all are run.
// A pattern after a "!" leaves files out.
const pythonTestsEnv = "USMBRIDGE_PYTESTS"

// pythonTests returns the selected files, in order.
func pythonTests(t *testing.T) []string {
	var files, without []string
	find := func(pattern string) []string {
		names := testenv.Must(filepath.Glob(filepath.Join("tests", pattern)))(t)
		require.NotEmptyf(t, names, "no Python tests match %s", pattern)
		return names
	}
	for _, word := range strings.Fields(os.Getenv(pythonTestsEnv)) {
		if pattern, out := strings.CutPrefix(word, "!"); out {
			without = append(without, find(pattern)...)
		} else {
			files = append(files, find(word)...)
		}
	}
	if len(files) == 0 {
		files = append(find("test_*.py"), find("robust/test_*.py")...)
	}
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(name string) bool { return slices.Contains(without, name) })
}

// pythonProcesses is the number of processes that run the Python tests. Each takes the next file that no other one has
// (tests/conftest.py). Much of their time they wait for processes of their own.
const pythonProcesses = 2

// TestPython runs the Python tests and reports each as a subtest.
func TestPython(t *testing.T) {
	env := testpython.Need(t, "pytest", "hypothesis") // the tests import them
	host, dir := buildHost(t), t.TempDir()
	files, claims := pythonTests(t), t.TempDir()
	shares := make([]pythonShare, min(pythonProcesses, len(files)))
	var running sync.WaitGroup
	for i := range shares {
		results := filepath.Join(dir, strconv.Itoa(i)+".xml")
		running.Go(func() { shares[i].run(files, results, host, "USMBRIDGE_PYTHON="+env.Executable, "USMB_CLAIMS="+claims) })
	}
	running.Wait()
	for i := range shares {
		shares[i].report(t)
	}
}

// pythonShare is the share of one process of the Python tests.
type pythonShare struct {
	cases []testCase
	out   []byte
	err   error
}

// run runs pytest, which writes the results to a file.
func (s *pythonShare) run(files []string, results, host string, env ...string) {
	args := append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=" + results}, files...)
	cmd := exec.Command(host, args...)
	cmd.Env = append(append(os.Environ(), "USMBRIDGE_TEST_HOST="+host, "PYTHONDONTWRITEBYTECODE=1"), env...)
	s.out, s.err = cmd.CombinedOutput()
	raw, err := os.ReadFile(results)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return
	}
	var suites struct {
		Cases []testCase `xml:"testsuite>testcase"`
	}
	s.err = errors.Join(s.err, xml.Unmarshal(raw, &suites))
	s.cases = suites.Cases
}

// report reports each test as a subtest.
func (s *pythonShare) report(t *testing.T) {
	failed := false
	for _, c := range s.cases {
		t.Run(strings.TrimPrefix(c.Class, "tests.")+"/"+c.Name, func(t *testing.T) {
			switch {
			case c.Failure != nil:
				failed = true
				t.Fatal(c.Failure.Text)
			case c.Error != nil:
				failed = true
				t.Fatal(c.Error.Text)
			case c.Skipped != nil:
				t.Skip(c.Skipped.Message)
			}
		})
	}
	if s.err != nil && !failed {
		t.Errorf("pytest: %v\n%s", s.err, s.out)
	}
}
