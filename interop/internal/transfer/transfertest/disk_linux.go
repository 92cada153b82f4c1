package transfertest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/usmbridge/usmbridge/memmgr"
)

// fillDisk is the part of DiskFull in the child process.
func fillDisk(path string, save Saver) error {
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return fmt.Errorf("%s: %w", errNoLimit, err)
	}
	here := filepath.Base(path) == inPlace
	aside := path + ".aside"
	if err := save(aside, here); err != nil {
		return err
	}
	info, err := os.Stat(aside)
	if err != nil {
		return err
	}
	before, _ := memmgr.LiveCount()
	size := uint64(info.Size())
	rooms := []uint64{0, 1, 7, 8, 64, 127, 128, 129, 4096, 1 << 20, 1<<20 + 128, size / 2, size - 4096, size - 1}
	for _, room := range rooms {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: room, Max: was.Max}); err != nil {
			return fmt.Errorf("%s: %w", errNoLimit, err)
		}
		failure := save(path, here)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			return err
		}
		if !errors.Is(failure, syscall.EFBIG) {
			return fmt.Errorf("with a limit of %d bytes for %d the error is %w", room, size, failure)
		}
		if n, _ := memmgr.LiveCount(); n != before {
			return fmt.Errorf("with a limit of %d bytes %d buffers are live, want %d", room, n, before)
		}
		if err := save(aside, here); err != nil {
			return fmt.Errorf("after a limit of %d bytes: %w", room, err)
		}
	}
	fmt.Println(len(rooms), "writes failed")
	return os.Remove(aside)
}
