package sysmem

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/internal/sysmap"
)

// Map maps size bytes of zeroed pages at an aligned address.
func Map(size, align uintptr) (uintptr, error) {
	return MapWith(size, align, syscall.PROT_READ|syscall.PROT_WRITE, 0)
}

// MapWith maps private anonymous pages with a protection and further flags of mmap(2) at an aligned address. It maps
// more than that and unmaps both ends.
func MapWith(size, align uintptr, protection, flags int) (uintptr, error) {
	all := size + max(align, PageSize) - PageSize
	base, err := sysmap.Mmap(0, all, protection, syscall.MAP_PRIVATE|syscall.MAP_ANON|flags, -1, 0)
	if err != nil {
		return 0, err
	}
	start, rest := RoundUp(base, align), base
	for _, surplus := range []struct{ base, size uintptr }{{base, start - base}, {start + size, base + all - start - size}} {
		if surplus.size == 0 {
			continue
		}
		if err := Unmap(surplus.base, surplus.size); err != nil {
			_ = Unmap(rest, base+all-rest) // splits no mapping
			return 0, err
		}
		rest = start // another mapping may be below it now
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
