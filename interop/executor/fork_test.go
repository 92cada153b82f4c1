//go:build cgo && linux

package executor_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/forktest"
)

func TestForks(t *testing.T) {
	e, _ := open(t, executor.Config{Modules: []executor.Module{{Name: forktest.Module, Source: forktest.Source}}})
	forktest.Test(t, e)
}

// TestForksAfterComputing tests that children of a program that computes in USM end with their own statuses.
func TestForksAfterComputing(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		inChild(t, "TestForksAfterComputing", "forks")
		return
	}
	py, _ := startWithDPNP(t)
	rounds, _ := strconv.Atoi(os.Getenv("USMB_FORK_ENDS"))
	e := testenv.Must(executor.New(py, executor.Config{
		Modules: []executor.Module{{Name: forktest.Module, Source: forktest.Source + `
import usmbridge
shared = usmbridge.ones(1 << 20, usm_type="shared")

def computed(how, path):
    global shared
    shared = shared * 1 + 0
    return ends(how, path)
`}}}))(t)
	for range max(rounds, 3) {
		for _, c := range []struct {
			how    string
			status int64
		}{{"returns", 0}, {"exits with 0", 0}, {"exits", 3}, {"raises", 1}} {
			out := testenv.Must(e.Call(t.Context(), forktest.Module+":computed", c.how, t.TempDir()+"/out"))(t).([]any)
			require.Equal(t, c.status, out[0], "%s: %s", c.how, out[1])
			require.Contains(t, out[1], "child")
		}
	}
	require.NoError(t, e.Close(t.Context()))
	endAfterDPNP(t, "TestForksAfterComputing")
}
