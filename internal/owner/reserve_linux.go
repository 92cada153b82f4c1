//go:build !race

package owner

import (
	"syscall"
	"unsafe"
)

// hugePage is the size of the pages for cells beyond the first slab, in bytes. With small pages, a
// program with a million live cells spends more time on address translation than on counting.
const hugePage = 2 << 20

// adviseHuge is MADV_HUGEPAGE of Linux's mman-common.h.
const adviseHuge = 14

// reserve reserves address space for cells, halves their number on failure, and commits the first ones.
// It returns the address and the number of cells, or nil.
func reserve(cells, commitFirst int) (unsafe.Pointer, int) {
	for ; cells >= commitFirst; cells /= 2 {
		m, err := syscall.Mmap(-1, 0, cells*CellBytes+hugePage, syscall.PROT_NONE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
		if err != nil {
			continue
		}
		base := unsafe.Pointer(unsafe.SliceData(m))
		base = unsafe.Add(base, -uintptr(base)&(hugePage-1))
		// Without huge pages everything works, only slower.
		_ = syscall.Madvise(unsafe.Slice((*byte)(base), cells*CellBytes)[hugePage:], adviseHuge)
		if !commit(base, uintptr(commitFirst)*CellBytes) {
			return nil, 0
		}
		return base, cells
	}
	return nil, 0
}

// commit makes part of the reservation readable and writable.
func commit(p unsafe.Pointer, bytes uintptr) bool {
	return syscall.Mprotect(unsafe.Slice((*byte)(p), bytes), syscall.PROT_READ|syscall.PROT_WRITE) == nil
}
