//go:build !unix

package syclobj

import (
	"syscall"
	"unsafe"
)

// mapHost allocates size bytes of zeroed Go heap memory, which does not move, at an address aligned to
// align. The table of live allocations keeps base alive.
func mapHost(size, align uintptr) (base []byte, p unsafe.Pointer, err error) {
	if size > maxSize-align || size+align > maxHeap {
		return nil, nil, syscall.ENOMEM
	}
	base = make([]byte, size+align)
	p = unsafe.Pointer(unsafe.SliceData(base))
	return base, unsafe.Add(p, -uintptr(p)&(align-1)), nil
}

// maxHeap is less than any heap can hold: 64 TiB, or 1 GiB with 32-bit addresses. A larger make would
// panic.
const maxHeap = 1 << (30 + ^uintptr(0)>>63*16)

func unmapHost([]byte) error { return nil }
