package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmap"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
)

// Constants of <linux/memfd.h>, <linux/fcntl.h>, <linux/falloc.h>, <linux/magic.h> and
// <sys/resource.h> that package syscall does not define.
const (
	mfdCloexec      = 0x1
	mfdAllowSealing = 0x2
	mfdNoexecSeal   = 0x8 // Linux 6.3

	fDupfdCloexec = 1030
	fAddSeals     = 1033
	fGetSeals     = 1034

	fallocKeepSize  = 0x1
	fallocPunchHole = 0x2

	tmpfsMagic = 0x01021994

	rlimitFSize = 1
)

// createFile makes a memory file of size bytes. It is closed on exec, cannot be executed, and can be
// sealed.
func createFile(size uintptr) (int, error) {
	// Extending a file beyond this limit raises SIGXFSZ, which ends the process.
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(rlimitFSize, &limit); err == nil && uint64(size) > limit.Cur {
		return -1, fmt.Errorf("%d bytes exceed RLIMIT_FSIZE (%d): %w", size, limit.Cur, syscall.EFBIG)
	}
	name := append([]byte(fileName), 0)
	fd, errno := memfdCreate(name, mfdCloexec|mfdAllowSealing|mfdNoexecSeal)
	if errno == syscall.EINVAL { // MFD_NOEXEC_SEAL is unknown before Linux 6.3
		fd, errno = memfdCreate(name, mfdCloexec|mfdAllowSealing)
	}
	if errno == syscall.ENOSYS {
		return -1, fmt.Errorf("%w: the kernel has no memfd_create (Linux 3.17)", errors.ErrUnsupported)
	}
	if errno != 0 {
		return -1, os.NewSyscallError("memfd_create", errno)
	}
	if err := retried(func() error { return syscall.Ftruncate(fd, int64(size)) }); err != nil {
		closeFile(fd)
		return -1, os.NewSyscallError("ftruncate", err)
	}
	return fd, nil
}

// sysMemfdCreate is the number of the system call memfd_create, or 0 if it is unknown. Package syscall
// does not define it for every architecture.
var sysMemfdCreate = map[string]uintptr{
	"386": 356, "amd64": 319, "arm": 385, "arm64": 279, "loong64": 279, "mips": 4354, "mipsle": 4354, "mips64": 5314,
	"mips64le": 5314, "ppc64": 360, "ppc64le": 360, "riscv64": 279, "s390x": 350,
}[runtime.GOARCH]

func memfdCreate(name []byte, flags uintptr) (int, syscall.Errno) {
	if sysMemfdCreate == 0 {
		return -1, syscall.ENOSYS
	}
	fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), flags, 0)
	return int(fd), errno
}

// sealFile adds seals to a memory file.
func sealFile(fd, seals int) error {
	_, err := fcntl(fd, fAddSeals, seals)
	if errors.Is(err, syscall.EINVAL) && seals&sealFutureWrite != 0 {
		return fmt.Errorf("%w: the kernel has no F_SEAL_FUTURE_WRITE (Linux 5.1), without which peers could write; "+
			"use PeersWrite, or send copies", errors.ErrUnsupported)
	}
	return err
}

// fileSeals returns the seals of a memory file. It fails with EINVAL for other files.
func fileSeals(fd int) (int, error) { return fcntl(fd, fGetSeals, 0) }

func fcntl(fd, command, argument int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(argument))
	if errno != 0 {
		return 0, os.NewSyscallError("fcntl", errno)
	}
	return int(n), nil
}

// duplicate returns a new descriptor of the same file, closed on exec.
func duplicate(fd int) (int, error) { return fcntl(fd, fDupfdCloexec, 0) }

func closeFile(fd int) { _ = syscall.Close(fd) } // a memory file has no delayed writes that could fail

// pagedFileSize returns the size of a memory file of ordinary pages, in bytes. It refuses files of
// huge pages: if the system has no huge page at the first access, the process ends.
func pagedFileSize(fd int) (uint64, error) {
	var system syscall.Statfs_t
	if err := retried(func() error { return syscall.Fstatfs(fd, &system) }); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	if uint32(system.Type) != tmpfsMagic {
		return 0, fmt.Errorf("the file is not on tmpfs (got file system %#x, want %#x)", uint32(system.Type), tmpfsMagic)
	}
	var file syscall.Stat_t
	if err := retried(func() error { return syscall.Fstat(fd, &file) }); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return uint64(file.Size), nil
}

// takePages allocates all pages of a memory file.
func takePages(fd int, size uintptr) error {
	return os.NewSyscallError("fallocate", retried(func() error { return syscall.Fallocate(fd, 0, 0, int64(size)) }))
}

// dropPages frees pages of a memory file.
func dropPages(fd int, offset, size uint64) error {
	return os.NewSyscallError("fallocate", retried(func() error {
		return syscall.Fallocate(fd, fallocPunchHole|fallocKeepSize, int64(offset), int64(size))
	}))
}

// retried repeats a system call while a signal interrupts it.
func retried(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// reserve reserves a range of addresses without access (PROT_NONE).
func reserve(size, align uintptr) (uintptr, error) {
	return sysmem.MapWith(size, align, syscall.PROT_NONE, syscall.MAP_NORESERVE)
}

// mapOver maps a memory file over a range that the caller owns. offset is in bytes, a multiple of the
// page size.
func mapOver(base, size uintptr, fd int, offset uint64, readOnly bool) error {
	protection := syscall.PROT_READ | syscall.PROT_WRITE
	if readOnly {
		protection = syscall.PROT_READ
	}
	_, err := sysmap.Mmap(base, size, protection, syscall.MAP_SHARED|syscall.MAP_FIXED, fd, offset)
	return err
}

// mapAnonymous maps private zero pages over a range that the caller owns. MAP_NORESERVE makes a
// failure unlikely.
func mapAnonymous(base, size uintptr) error {
	_, err := sysmap.Mmap(base, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_FIXED|syscall.MAP_NORESERVE, -1, 0)
	return err
}

// protect makes pages read-only.
func protect(base, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MPROTECT, base, size, syscall.PROT_READ); errno != 0 {
		return os.NewSyscallError("mprotect", errno)
	}
	return nil
}

// dontFork keeps a range from being mapped in children that are forked later.
func dontFork(base, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, base, size, syscall.MADV_DONTFORK); errno != 0 {
		return os.NewSyscallError("madvise", errno)
	}
	return nil
}

// ranOut reports whether an operation failed because a resource is exhausted, so that a retry after
// freeing memory can succeed.
func ranOut(err error) bool {
	return isOneOf(err, memmgr.ErrOutOfMemory, ErrLimit, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EFBIG)
}

func isOneOf(err error, reasons ...error) bool {
	return slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(err, reason) })
}

// systemMappings returns the largest number of mappings of a process.
func systemMappings() int {
	if n := systemNumber("/proc/sys/vm/max_map_count"); n > 0 {
		return n
	}
	return 65530 // the kernel's default
}

// systemDescriptors returns the largest number of descriptors of this process.
func systemDescriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, math.MaxInt32))
}

// strictOvercommit reports whether the system does not overcommit memory.
func strictOvercommit() bool { return systemNumber("/proc/sys/vm/overcommit_memory") == 2 }

// systemNumbers has the numbers that systemNumber has read, by file.
var systemNumbers sync.Map

// systemNumber reads a number from a file of /proc/sys, once if that succeeds. It returns -1 if it does not.
func systemNumber(file string) int {
	if n, ok := systemNumbers.Load(file); ok {
		return n.(int)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return -1
	}
	systemNumbers.Store(file, n)
	return n
}
