package memmgr

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestNoDescriptors makes the first pool and the first import of a process that has no file descriptor left.
func TestNoDescriptors(t *testing.T) {
	debugged(t, "", func() {
		var limit syscall.Rlimit
		require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		limit.Cur = 3
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		_, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
		require.ErrorIs(t, err, syscall.EMFILE)
		for _, from := range []Resource{NewPool(Host()), Host()} {
			b, err := New(from, Request{Size: 100})
			require.NoError(t, err)
			b.Release()
			require.NoError(t, Close(from))
		}
		memory := make([]byte, 16)
		released := false
		b, err := FromForeign(unsafe.Pointer(&memory[0]), 16, ForeignOptions{Release: func() { released = true }})
		require.NoError(t, err)
		b.Release()
		require.True(t, released)
	})
}
