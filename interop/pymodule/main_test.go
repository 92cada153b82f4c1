//go:build cgo && linux

package pymodule_test

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
)

// hostFlags are the build flags of this test, with which buildHost builds.
var hostFlags []string

// buildHost builds usmpython, the interpreter with the built-in module, and returns its path.
func buildHost(t *testing.T) string {
	t.Helper()
	return testenv.Build(t, "../cmd/usmpython", hostFlags...)
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

// pythonTestsEnv is the environment variable with the files of tests/ to run; if it is empty, all are run. Words that
// begin with a dash are options of pytest.
const pythonTestsEnv = "USMBRIDGE_PYTESTS"

// TestPython runs the Python tests and reports each as a subtest.
func TestPython(t *testing.T) {
	env := testpython.Need(t, "pytest", "hypothesis") // the tests import them
	host := buildHost(t)
	results := filepath.Join(t.TempDir(), "results.xml")
	args := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=" + results}
	files := 0
	for _, word := range strings.Fields(os.Getenv(pythonTestsEnv)) {
		if strings.HasPrefix(word, "-") {
			args = append(args, word)
			continue
		}
		args = append(args, filepath.Join("tests", word))
		files++
	}
	if files == 0 {
		args = append(args, "tests")
	}
	cmd := exec.Command(host, args...)
	cmd.Env = append(os.Environ(), "USMBRIDGE_PYTHON="+env.Executable, "USMBRIDGE_TEST_HOST="+host, "PYTHONDONTWRITEBYTECODE=1")
	out, runErr := cmd.CombinedOutput()
	raw, err := os.ReadFile(results)
	require.NoErrorf(t, err, "pytest left no results:\n%s", out)
	var suites struct {
		Cases []testCase `xml:"testsuite>testcase"`
	}
	require.NoError(t, xml.Unmarshal(raw, &suites))
	require.NotEmptyf(t, suites.Cases, "pytest ran no test:\n%s", out)
	failed := false
	for _, c := range suites.Cases {
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
	if runErr != nil && !failed {
		t.Fatalf("pytest: %v\n%s", runErr, out)
	}
}
