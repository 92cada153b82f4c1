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

// writeToFullDisk is the child of TestDiskFull: the disk ends at each of some places, within
// the header, at the ends of pages and pieces, and a byte before the end. Every time the error
// says so, nothing is held, and with room again the next works.
func writeToFullDisk(path string) int {
	const elements = 1 << 20
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		fmt.Println("unsupported:", err)
		return 1
	}
	fails := func(what string, args ...any) int {
		fmt.Printf(what+"\n", args...)
		return 1
	}
	a, err := usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{elements})
	if err != nil {
		return fails("%v", err)
	}
	defer a.Release()
	save := func(path string) error {
		return npy.Save(context.Background(), path, a, npy.WriteOptions{InPlace: strings.Contains(path, "in place")})
	}
	aside := path + ".aside"
	if err := save(aside); err != nil {
		return fails("%v", err)
	}
	info, err := os.Stat(aside)
	if err != nil {
		return fails("%v", err)
	}
	before, _ := memmgr.LiveCount()
	size := uint64(info.Size())
	for _, room := range []uint64{0, 1, 64, 127, 128, 129, 4096, 1 << 20, 1<<20 + 128, size - 4096, size - 1} {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: room, Max: was.Max}); err != nil {
			return fails("unsupported: %v", err)
		}
		err := save(path)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			return fails("%v", err)
		}
		if !errors.Is(err, syscall.EFBIG) {
			return fails("with room for %d bytes of %d Save found %v", room, size, err)
		}
		if n, _ := memmgr.LiveCount(); n != before {
			return fails("with room for %d bytes %d buffers are held, before %d", room, n, before)
		}
		if err := save(aside); err != nil {
			return fails("after room for %d bytes: %v", room, err)
		}
	}
	if err := os.Remove(aside); err != nil {
		return fails("%v", err)
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
