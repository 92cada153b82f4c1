//go:build linux && cgo

package python_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

// TestGoexit checks that runtime.Goexit in a Go function that Python calls ends the program, although net/http and
// the handler recover panics.
func TestGoexit(t *testing.T) {
	env := somePythons(t, "no Python can be embedded")[0]
	for _, c := range []struct{ how, name string }{
		{"Goexit", "lookup"}, {"FailNow", "lookup"}, {"typed", "func"}, {"panic in a deferred function", "lookup"}, {"without GIL", "lookup"},
	} {
		t.Run(c.how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestGoexitInChild$", "-test.v", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), embedEnv+"="+env.Executable, "USMBRIDGE_TEST_GOEXIT="+c.how)
			out, err := cmd.CombinedOutput()
			require.Equal(t, 2, testenv.As[*exec.ExitError](t, err).ExitCode(), "%s", out)
			require.Contains(t, string(out), "panic: python: the Go function "+c.name)
			require.Contains(t, string(out), "called runtime.Goexit")
			require.Contains(t, string(out), "return an error instead")
			require.Contains(t, string(out), "goexit_test.go", "the stack does not show the call")
			require.NotContains(t, string(out), "recovered")
		})
	}
}

// TestGoexitInChild is the child of TestGoexit.
func TestGoexitInChild(t *testing.T) {
	how := os.Getenv("USMBRIDGE_TEST_GOEXIT")
	if how == "" {
		t.Skip("run by TestGoexit in a process of its own")
	}
	py := testenv.Must(python.Start(python.WithEnvironment(testenv.Must(python.Inspect(os.Getenv(embedEnv)))(t))))(t)
	var f *python.Object
	if how == "typed" {
		f = testenv.Must(py.New(func(int) { runtime.Goexit() }))(t)
	} else {
		f = testenv.Must(py.Func("lookup", "", func(python.Args) (any, error) {
			switch how {
			case "FailNow":
				require.NoError(t, errors.New("in a function that Python calls"))
			case "panic in a deferred function":
				defer func() { panic("a second reason") }()
			case "without GIL":
				py.WithoutGIL(runtime.Goexit)
			}
			runtime.Goexit()
			return 1, nil
		}))(t)
	}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		defer func() { println("recovered", recover() != nil) }()
		_ = testenv.ErrorOf(py.Run("f(1)", python.Vars{"f": f}))
	}))
	defer s.Close()
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for range 20 {
		testenv.Must(py.Run("r = sum(range(1000))", nil))(t)
	}
}
