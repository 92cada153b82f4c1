package sysmap

import (
	"syscall"
	"unsafe"
)

// mmap passes its arguments in memory: on s390x the system call takes their address.
func mmap(address, size, protection, flags, fd uintptr, offset uint64) (uintptr, syscall.Errno) {
	arguments := [6]uintptr{address, size, protection, flags, fd, uintptr(offset)}
	p, _, errno := syscall.Syscall(syscall.SYS_MMAP, uintptr(unsafe.Pointer(&arguments)), 0, 0)
	return p, errno
}
