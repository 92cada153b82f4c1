package npy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// specialFiles are paths of what has no size and no positions; opening some would block.
func specialFiles(t testing.TB, dir string) []string {
	t.Helper()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(fifo, link))
	return []string{fifo, link, "/dev/null", "/dev/zero", "/dev/full"}
}

// writeToFullDisk is the child of TestDiskFull.
func writeToFullDisk(path string) int {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		fmt.Println("unsupported:", err)
		return 1
	}
	a, err := usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{1 << 20})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer a.Release()
	err = npy.Save(context.Background(), path, a, npy.WriteOptions{InPlace: strings.Contains(path, "in place")})
	if !errors.Is(err, syscall.EFBIG) {
		fmt.Println("Save found", err)
		return 1
	}
	return 0
}

// TestDevFull: a device without room, as a stream.
func TestDevFull(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	a := own(t)(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{1 << 20}))
	require.ErrorIs(t, npy.Write(context.Background(), f, a), syscall.ENOSPC)
}
