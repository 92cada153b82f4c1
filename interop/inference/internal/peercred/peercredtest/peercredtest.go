//go:build linux

// Package peercredtest connects to Unix sockets as other users.
package peercredtest

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Dial connects to the Unix socket at path as the user uid: the kernel records that user as the
// peer. It may be called from any goroutine.
func Dial(uid int, path string) (net.Conn, error) {
	if uid == os.Geteuid() {
		return net.Dial("unix", path)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Unlike syscall.Setresuid, this sets the user of this thread alone.
	if err := unix.Setresuid(-1, uid, -1); err != nil {
		return nil, err
	}
	c, err := net.Dial("unix", path)
	if err := unix.Setresuid(-1, os.Getuid(), -1); err != nil {
		panic(err) // the thread must not run other goroutines
	}
	return c, err
}

// Socket returns a path for a Unix socket in a directory that every user can enter. The test is
// skipped unless it may connect as other users.
func Socket(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("connecting as another user needs root")
	}
	dir, err := os.MkdirTemp("", "peercred-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir + "/socket"
}
