package memmgr

import (
	"os"
	"syscall"
)

var pageSize = uintptr(os.Getpagesize())

// mapPages maps zeroed pages, aligned: more than needed, and the ends back.
func mapPages(size, align uintptr) (uintptr, error) {
	extra := uintptr(0)
	if align > pageSize {
		extra = align - pageSize
	}
	// The raw call: syscall.Mmap keeps a table behind a mutex and cannot unmap
	// in part.
	p, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, size+extra,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("mmap", errno)
	}
	if extra == 0 {
		return p, nil
	}
	start := roundUp(p, align)
	if start > p {
		if err := unmapPages(p, start-p); err != nil {
			return 0, err
		}
	}
	if end := p + size + extra; end > start+size {
		if err := unmapPages(start+size, end-start-size); err != nil {
			return 0, err
		}
	}
	return start, nil
}

func unmapPages(address, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, address, size, 0); errno != 0 {
		return os.NewSyscallError("munmap", errno)
	}
	return nil
}
