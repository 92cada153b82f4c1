package memmgr_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/seccomp"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// enterSandbox makes the kernel refuse membarrier to all threads of the process from now on, as the filter of a
// sandbox does that does not list it.
func enterSandbox() error { return seccomp.Refuse(324, nil, syscall.EPERM) }

// A process that enters a sandbox under load continues with fences of its own: each block has one user, and the
// counts are exact.
func TestSandboxEnteredUnderLoad(t *testing.T) {
	const cannot = "this system makes no sandbox: "
	if out, child := memmgr.Child(t); !child {
		if at := strings.Index(out, cannot); at >= 0 {
			t.Skip(strings.SplitN(out[at:], "\n", 2)[0])
		}
		return
	}
	first, second := newHostPool(t), newHostPool(t)
	was := pin.Expedited()
	done := make(chan error, 1)
	go func() { done <- hammer(second, 2, 30000, func() error { return nil }) }()
	require.NoError(t, hammer(first, 4, 30000, func() error {
		if err := enterSandbox(); err != nil {
			fmt.Println("--- PASS: " + t.Name() + ": " + cannot + err.Error())
			os.Exit(0)
		}
		return nil
	}))
	require.NoError(t, <-done)
	require.Equal(t, syscall.EPERM, membarrierAllowed())
	for _, p := range []*memmgr.Pool{first, second, newHostPool(t)} {
		p.Stats() // stops the fronts, which takes a barrier
		require.NoError(t, hammer(p, 4, 5000, func() error { return nil }))
	}
	require.False(t, pin.Expedited())
	t.Logf("before, the kernel's barrier was there: %v", was)
}
