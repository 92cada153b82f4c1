//go:build !unix

package syclobj

import (
	"syscall"
	"unsafe"
)

// mapHost allocates zeroed memory of the Go heap, which does not move, for size
// bytes at an address aligned to align. The table of live allocations keeps
// base, and with it the memory.
func mapHost(size, align uintptr) (base []byte, p unsafe.Pointer, err error) {
	if size > maxSize-align || size+align > maxHeap {
		return nil, nil, syscall.ENOMEM
	}
	base = make([]byte, size+align)
	p = unsafe.Pointer(unsafe.SliceData(base))
	return base, unsafe.Add(p, -uintptr(p)&(align-1)), nil
}

// maxHeap is below what the heap can hold at all: 64 TiB, or 1 GiB where
// addresses have 32 bits. Asking for more would be a panic.
const maxHeap = 1 << (30 + ^uintptr(0)>>63*16)

func unmapHost([]byte) error { return nil }
