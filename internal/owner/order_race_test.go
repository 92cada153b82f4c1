//go:build race && cgo && linux

package owner_test

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// The race detector sees the fields of cells: a child process with a race reports it.
func TestRaceDetectorSeesCells(t *testing.T) {
	const child = "USMBRIDGE_TEST_RACE"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		require.Contains(t, string(out), "DATA RACE")
		return
	}
	c, err := owner.New(nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { c.Tag++ })
	}
	wg.Wait()
}
