package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmap"
)

// Numbers of <linux/memfd.h>, <linux/fcntl.h>, <linux/falloc.h>, <linux/magic.h> and
// <sys/mman.h> that package syscall does not have.
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

// createFile makes a memory file of some bytes that is closed on exec, cannot be
// executed, and can be sealed.
func createFile(size uintptr) (int, error) {
	// A file larger than this limit would not be refused, but end the process by a signal.
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(rlimitFSize, &limit); err == nil && uint64(size) > limit.Cur {
		return -1, fmt.Errorf("%d bytes are more than RLIMIT_FSIZE allows, which is %d: %w", size, limit.Cur, syscall.EFBIG)
	}
	name := append([]byte(fileName), 0)
	fd, errno := memfdCreate(name, mfdCloexec|mfdAllowSealing|mfdNoexecSeal)
	if errno == syscall.EINVAL { // a kernel that does not know the last flag
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

// sysMemfdCreate is the number of the system call memfd_create; package syscall does not
// have it for every architecture. 0: not known.
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

// sealFile adds seals.
func sealFile(fd, seals int) error {
	_, err := fcntl(fd, fAddSeals, seals)
	if errors.Is(err, syscall.EINVAL) && seals&sealFutureWrite != 0 {
		return fmt.Errorf("%w: the kernel has no F_SEAL_FUTURE_WRITE (Linux 5.1), without which others could write; "+
			"share the memory with peers that may write, or by copies", errors.ErrUnsupported)
	}
	return err
}

// fileSeals returns the seals of a memory file. Other files have none: EINVAL.
func fileSeals(fd int) (int, error) { return fcntl(fd, fGetSeals, 0) }

func fcntl(fd, command, argument int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(argument))
	if errno != 0 {
		return 0, os.NewSyscallError("fcntl", errno)
	}
	return int(n), nil
}

// duplicate makes a second descriptor.
func duplicate(fd int) (int, error) { return fcntl(fd, fDupfdCloexec, 0) }

func closeFile(fd int) { _ = syscall.Close(fd) } // of memory: nothing is written that could fail

// pagedFileSize returns the size of a memory file of ordinary pages. Huge pages are
// refused: one that is missing at its first touch ends the process that touched it.
func pagedFileSize(fd int) (uint64, error) {
	var system syscall.Statfs_t
	if err := retried(func() error { return syscall.Fstatfs(fd, &system) }); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	if uint32(system.Type) != tmpfsMagic {
		return 0, fmt.Errorf("its memory is of another kind (file system %#x) than that of segments (%#x)", uint32(system.Type), tmpfsMagic)
	}
	var file syscall.Stat_t
	if err := retried(func() error { return syscall.Fstat(fd, &file) }); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return uint64(file.Size), nil
}

// takePages has the system provide all pages of a memory file now.
func takePages(fd int, size uintptr) error {
	return os.NewSyscallError("fallocate", retried(func() error { return syscall.Fallocate(fd, 0, 0, int64(size)) }))
}

// dropPages gives pages of a memory file back.
func dropPages(fd int, offset, size uint64) error {
	return os.NewSyscallError("fallocate", retried(func() error {
		return syscall.Fallocate(fd, fallocPunchHole|fallocKeepSize, int64(offset), int64(size))
	}))
}

// retried repeats a call that a signal interrupts.
func retried(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// reserve takes addresses that nothing can be read or written at.
func reserve(size, align uintptr) (uintptr, error) {
	all := size + align - pageSize
	base, err := sysmap.Mmap(0, all, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE, -1, 0)
	if err != nil {
		return 0, err
	}
	start := roundUp(base, align)
	for _, surplus := range []struct{ base, size uintptr }{{base, start - base}, {start + size, base + all - start - size}} {
		if surplus.size == 0 {
			continue
		}
		if err := unmap(surplus.base, surplus.size); err != nil {
			_ = unmap(base, all) // whole, which needs no more mappings
			return 0, err
		}
	}
	return start, nil
}

// mapOver maps a memory file, from a page on, over addresses that are the caller's.
func mapOver(base, size uintptr, fd int, offset uint64, readOnly bool) error {
	protection := syscall.PROT_READ | syscall.PROT_WRITE
	if readOnly {
		protection = syscall.PROT_READ
	}
	_, err := sysmap.Mmap(base, size, protection, syscall.MAP_SHARED|syscall.MAP_FIXED, fd, offset)
	return err
}

// mapAnonymous puts fresh memory of the process over addresses that are the caller's.
// The system is not asked for a promise of all of its pages, so as to refuse seldom.
func mapAnonymous(base, size uintptr) error {
	_, err := sysmap.Mmap(base, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_FIXED|syscall.MAP_NORESERVE, -1, 0)
	return err
}

func unmap(base, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, base, size, 0); errno != 0 {
		return os.NewSyscallError("munmap", errno)
	}
	return nil
}

// protect lets pages be read and no more.
func protect(base, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MPROTECT, base, size, syscall.PROT_READ); errno != 0 {
		return os.NewSyscallError("mprotect", errno)
	}
	return nil
}

// notForChildren leaves addresses unmapped in processes that are forked later.
func notForChildren(base, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, base, size, syscall.MADV_DONTFORK); errno != 0 {
		return os.NewSyscallError("madvise", errno)
	}
	return nil
}

// ranOut tells whether a failure means that something is used up which others may give
// back.
func ranOut(err error) bool {
	for _, reason := range []error{memmgr.ErrOutOfMemory, ErrLimit, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EFBIG} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// systemMappings is how many mappings the system allows a process, read once.
var systemMappings = sync.OnceValue(func() int {
	if n := systemNumber("/proc/sys/vm/max_map_count"); n > 0 {
		return n
	}
	return 65530 // the kernel's default
})

// systemDescriptors is how many descriptors it allows this one.
func systemDescriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, math.MaxInt32))
}

// promisesAreKept tells whether the system promises no more memory than it has, asked
// once.
var promisesAreKept = sync.OnceValue(func() bool { return systemNumber("/proc/sys/vm/overcommit_memory") == 2 })

// systemNumber reads a setting of the system, -1 when it cannot be read.
func systemNumber(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return -1
	}
	return n
}
