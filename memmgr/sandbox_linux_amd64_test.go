package memmgr_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// enterSandbox has the kernel refuse membarrier to every thread of the process from
// here on, as the filter of a sandbox does that does not know it.
func enterSandbox() error {
	const (
		prctlNoNewPrivileges = 38
		seccomp, setFilter   = 317, 1
		allThreads           = 1
		load, jumpEqual, ret = 0x20, 0x15, 0x06 // of Linux's filter.h
		refuse, allow        = 0x00050000, 0x7fff0000
	)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	type instruction struct {
		code         uint16
		onYes, onNot uint8
		k            uint32
	}
	filter := []instruction{
		{load, 0, 0, 0}, // the number of the call
		{jumpEqual, 0, 1, 324},
		{ret, 0, 0, refuse | uint32(syscall.EPERM)},
		{ret, 0, 0, allow},
	}
	program := struct {
		n      uint16
		filter *instruction
	}{uint16(len(filter)), &filter[0]}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prctlNoNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	if r, _, errno := syscall.RawSyscall(seccomp, setFilter, allThreads, uintptr(unsafe.Pointer(&program))); errno != 0 || r != 0 {
		return fmt.Errorf("seccomp: %w (%d)", errno, r)
	}
	return nil
}

// A process that enters a sandbox in mid-run, under load, goes on with fences of its
// own: every block has one user, and the counts are exact.
func TestSandboxEnteredInMidRun(t *testing.T) {
	const env, cannot = "USMBRIDGE_TEST_SANDBOX", "this system makes no sandbox: "
	if os.Getenv(env) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSandboxEnteredInMidRun$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		out, err := cmd.CombinedOutput()
		if at := strings.Index(string(out), cannot); at >= 0 {
			t.Skip(strings.SplitN(string(out)[at:], "\n", 2)[0])
		}
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS: TestSandboxEnteredInMidRun")
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
