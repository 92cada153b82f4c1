package memmgr_test

import (
	"fmt"
	"os"
	"os/exec"
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
	const env, cannot = "USMBRIDGE_TEST_SANDBOX", "this system makes no sandbox: "
	if os.Getenv(env) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSandboxEnteredUnderLoad$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		out, err := cmd.CombinedOutput()
		if at := strings.Index(string(out), cannot); at >= 0 {
			t.Skip(strings.SplitN(string(out)[at:], "\n", 2)[0])
		}
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS: TestSandboxEnteredUnderLoad")
		return
	}
	first, second := newHostPool(t), newHostPool(t)
	was := pin.Expedited()
	done := make(chan error, 1)
	go func() { done <- hammer(second, 2, 30000, func() error { return nil }) }()
	require.NoError(t, hammer(first, 4, 30000, func() error {
		if err := enterSandbox(); err != nil {
			fmt.Println(cannot + err.Error())
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
