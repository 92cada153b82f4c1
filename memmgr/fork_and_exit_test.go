//go:build cgo && linux

package memmgr_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/memmgr"
)

// A forked child drops inherited references in C. The pool of the parent is not affected.
func TestForkedChildLeavesThePoolAlone(t *testing.T) {
	p := newHostPool(t)
	b := mustNew(t, p, 1000)
	require.Zero(t, ownertest.DropInFork(cells.Of(b)))
	memmgr.Flush()
	require.Equal(t, 1, b.Count())
	require.EqualValues(t, 1, p.Stats().Allocation.Current)
	b.Release()
	require.Zero(t, p.Stats().Allocation.Current)
}

// C threads drop buffers of a pool while goroutines allocate from it.
func TestCThreadsFreeWhileGoroutinesAllocate(t *testing.T) {
	p := newHostPool(t)
	done := make(chan error, 1)
	go func() {
		for range 20 {
			var dropped []*owner.Cell
			for i := range 1000 {
				b, err := memmgr.New(p, memmgr.Request{Size: uintptr(i)})
				if err != nil {
					done <- err
					return
				}
				dropped = append(dropped, cells.Of(b))
			}
			if err := ownertest.DropOnThreads(dropped, 4); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 20000 {
		mustNew(t, p, 500).Release()
	}
	require.NoError(t, <-done)
	memmgr.Flush()
	require.Zero(t, p.Stats().Allocation.Current)
	require.EqualValues(t, 40000, p.Stats().Allocation.Freed)
}

// A process may end with open pools, buffers in use and pending memory: no exit handler hangs or
// crashes.
func TestExitWithEverythingOpen(t *testing.T) {
	const env = "USMBRIDGE_TEST_EXIT"
	if os.Getenv(env) != "" {
		p := memmgr.NewPool(memmgr.Host())
		var dropped []*owner.Cell
		for range 1000 {
			b := mustNew(t, p, 5000)
			dropped = append(dropped, cells.Of(b))
		}
		require.NoError(t, ownertest.DropOnThreads(dropped[:500], 2))
		os.Exit(7)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestExitWithEverythingOpen$")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(out))
	require.Equal(t, 7, exit.ExitCode(), string(out))
}
