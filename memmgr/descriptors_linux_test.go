package memmgr

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestNoDescriptors makes the first pool and the first import of a process that has no file descriptor left.
func TestNoDescriptors(t *testing.T) {
	debugged(t, "", func() {
		var limit syscall.Rlimit
		require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		limit.Cur = 3
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		require.ErrorIs(t, testenv.ErrorOf(syscall.Open("/dev/null", syscall.O_RDONLY, 0)), syscall.EMFILE)
		for _, from := range []Resource{NewPool(Host()), Host()} {
			testenv.Must(New(from, Request{Size: 100}))(t).Release()
			require.NoError(t, Close(from))
		}
		memory := make([]byte, 16)
		released := false
		testenv.Must(FromForeign(unsafe.Pointer(&memory[0]), 16, ForeignOptions{Release: func() { released = true }}))(t).Release()
		require.True(t, released)
	})
}
