//go:build cgo && linux

package executor_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
)

// childEnv is set in a process in which a test may end Python.
const childEnv = "USMBRIDGE_TEST_EXECUTOR_CHILD"

// inChild runs a test of this binary in a child process and returns its output. If the child skips the
// test, inChild skips it too.
func inChild(t *testing.T, name, kind string) string {
	t.Helper()
	env := testpython.Need(t, "numpy")
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childEnv+"="+kind, python.EnvVar+"="+env.Executable)
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	if strings.Contains(string(out), "--- SKIP: "+name+" ") {
		t.Skipf("the child process skipped the test:\n%s", out)
	}
	require.Contains(t, string(out), "--- PASS: "+name)
	return string(out)
}

// TestPythonEnds checks that calls that wait when Python ends return an error.
func TestPythonEnds(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		inChild(t, "TestPythonEnds", "gone")
		return
	}
	py, _ := start(t)
	e, err := executor.New(py, executor.Config{Slots: 2})
	require.NoError(t, err)
	require.NoError(t, e.Ready(t.Context()))
	began, running := begun(t)
	ev, set := event(t)
	runs := make(chan error, 1)
	go func() { _, err := e.Call(t.Context(), "models:wait", began, ev); runs <- err }()
	await(t, running)
	set()
	// Each call during the end of Python returns its result or python.ErrGone.
	over := make(chan error, 8)
	for range cap(over) {
		go func() {
			for {
				if _, err := e.Call(t.Context(), "models:add", 1); err != nil {
					over <- err
					return
				}
			}
		}()
	}
	require.NoError(t, py.Close())
	for range cap(over) {
		select {
		case err := <-over:
			require.ErrorIs(t, err, python.ErrGone)
		case <-time.After(soon):
			t.Fatal("a call did not return after the end of Python")
		}
	}
	if err := <-runs; err != nil && !errors.Is(err, python.ErrGone) {
		t.Fatal(err)
	}
	require.ErrorIs(t, e.Health(), python.ErrGone)
	require.NoError(t, e.Close(t.Context()))
}

// TestExample runs the example in a child process, because it registers the module and starts Python
// itself.
func TestExample(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		require.Contains(t, inChild(t, "TestExample", "example"), "3\n")
		return
	}
	ExampleExecutor_Call()
}
