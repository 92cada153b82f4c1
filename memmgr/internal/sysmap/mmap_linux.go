//go:build !386 && !arm && !mips && !mipsle && !s390x

package sysmap

import "syscall"

func mmap(address, size, protection, flags, fd uintptr, offset uint64) (uintptr, syscall.Errno) {
	p, _, errno := syscall.Syscall6(syscall.SYS_MMAP, address, size, protection, flags, fd, uintptr(offset))
	return p, errno
}
