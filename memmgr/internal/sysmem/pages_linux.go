package sysmem

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/internal/sysmap"
)

// Map maps size bytes of zeroed pages at an aligned address. It maps more than that and unmaps
// both ends.
func Map(size, align uintptr) (uintptr, error) {
	extra := uintptr(0)
	if align > PageSize {
		extra = align - PageSize
	}
	p, err := sysmap.Mmap(0, size+extra, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON, -1, 0)
	if err != nil || extra == 0 {
		return p, err
	}
	start := RoundUp(p, align)
	if start > p {
		if err := Unmap(p, start-p); err != nil {
			return 0, err
		}
	}
	if end := p + size + extra; end > start+size {
		if err := Unmap(start+size, end-start-size); err != nil {
			return 0, err
		}
	}
	return start, nil
}

// Unmap unmaps pages.
func Unmap(address, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, address, size, 0); errno != 0 {
		return os.NewSyscallError("munmap", errno)
	}
	return nil
}

// Discard returns the pages of private anonymous memory to the system. They are zero at the
// next access.
func Discard(address, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, address, size, syscall.MADV_DONTNEED); errno != 0 {
		return os.NewSyscallError("madvise", errno)
	}
	return nil
}

// Resident returns the number of bytes of whole pages that are resident, size if the system
// does not report it.
func Resident(address, size uintptr) (n uintptr) {
	var states [4096]byte
	for size > 0 {
		part := min(size, uintptr(len(states))*PageSize)
		if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, address, part, uintptr(unsafe.Pointer(&states))); errno != 0 {
			return n + size
		}
		for _, state := range states[:part/PageSize] {
			n += uintptr(state&1) * PageSize
		}
		address, size = address+part, size-part
	}
	return n
}
