// Package sysmap calls Linux's mmap directly. syscall.Mmap cannot map at a given address,
// cannot unmap a part, and keeps a table behind a mutex. Its function may be called from any
// goroutine.
package sysmap

import "os"

// Mmap maps size bytes as mmap(2) does and returns their address. offset is in bytes, a
// multiple of the page size. The caller unmaps the memory.
func Mmap(address, size uintptr, protection, flags, fd int, offset uint64) (uintptr, error) {
	p, errno := mmap(address, size, uintptr(protection), uintptr(flags), uintptr(fd), offset)
	if errno != 0 {
		return 0, os.NewSyscallError("mmap", errno)
	}
	return p, nil
}
