//go:build cgo && linux

package pymodule_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestGoexit checks that the program ends with a clear text if a function of SetResource, which an allocation of
// Python calls, ends its goroutine.
func TestGoexit(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGoexit$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), python.EnvVar+"="+testpython.Need(t).Executable, childEnv+"=goexit")
		out, err := cmd.CombinedOutput()
		require.Equal(t, 2, testenv.As[*exec.ExitError](t, err).ExitCode(), "%s", out)
		require.Contains(t, string(out), "(such as that of SetResource) called runtime.Goexit")
		require.Contains(t, string(out), "goexit_test.go", "the stack does not show the call")
		return
	}
	rt := testenv.Must(syclobj.Open(syclobj.HostOnly()))(t)
	require.NoError(t, pymodule.Register(pymodule.SetRuntime(rt), pymodule.SetResource(
		func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) {
			runtime.Goexit()
			return nil, nil
		})))
	py := testenv.Must(python.Start())(t)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = testenv.ErrorOf(py.Run("import usmbridge; usmbridge.zeros(3)", nil))
	}()
	<-over
	for range 20 {
		testenv.Must(py.Run("r = sum(range(1000))", nil))(t)
	}
}
