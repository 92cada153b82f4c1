package npy_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// specialFiles returns the paths of special files. Opening some of them would block.
func specialFiles(t testing.TB, dir string) []string {
	t.Helper()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(fifo, link))
	return []string{fifo, link, "/dev/null", "/dev/zero", "/dev/full"}
}

// TestDevFull checks the error of Write to a full device.
func TestDevFull(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	a := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{1 << 20}))(t)
	require.ErrorIs(t, npy.Write(context.Background(), f, a), syscall.ENOSPC)
}
