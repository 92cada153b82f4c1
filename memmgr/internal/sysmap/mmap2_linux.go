//go:build 386 || arm || mips || mipsle

package sysmap

import "syscall"

// mmap calls mmap2, whose offset counts units of 4096 bytes.
func mmap(address, size, protection, flags, fd uintptr, offset uint64) (uintptr, syscall.Errno) {
	p, _, errno := syscall.Syscall6(syscall.SYS_MMAP2, address, size, protection, flags, fd, uintptr(offset/4096))
	return p, errno
}
