//go:build unix

package syclobj

import (
	"os"
	"syscall"
	"unsafe"
)

// mapHost maps zeroed pages for size bytes at an address aligned to align; unmapHost takes base.
func mapHost(size, align uintptr) (base []byte, p unsafe.Pointer, err error) {
	page := uintptr(os.Getpagesize())
	want := size
	if align > page {
		want += align - page
	}
	if want < size || want > maxSize-page {
		return nil, nil, syscall.ENOMEM
	}
	base, err = syscall.Mmap(-1, 0, int((want+page-1)&^(page-1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	p = unsafe.Pointer(unsafe.SliceData(base))
	return base, unsafe.Add(p, -uintptr(p)&(align-1)), nil
}

func unmapHost(base []byte) error { return syscall.Munmap(base) }
