package owner

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A list that is made while the process has no file descriptor works, and gets one as soon as there is one.
func TestListWithoutDescriptors(t *testing.T) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	none := before
	none.Cur = 3
	var n atomic.Int32
	drop := func(l *List) {
		n.Store(0)
		c, err := New(l)
		require.NoError(t, err)
		require.True(t, c.Unref())
		Push(c)
		require.Eventually(t, func() bool { return n.Load() == 1 }, time.Minute, time.Millisecond)
	}
	l := func() *List {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
		defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }()
		l := NewList(func(c *Cell) { n.Add(1); Recycle(c) }, OwnGoroutine())
		require.Negative(t, l.c.own.fd, "the limit has no effect")
		drop(l)
		return l
	}()
	require.Eventually(t, func() bool { return l.c.own.armed.Load() != 0 }, time.Minute, time.Millisecond)
	require.Positive(t, l.c.own.fd)
	drop(l)
}
