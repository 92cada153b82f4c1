//go:build !linux

package sysmem

import (
	"fmt"
	"sync"
	"unsafe"
)

// pages keeps the Go memory reachable that replaces mapped pages. Objects of the Go heap do not
// move, so their addresses can be used.
var pages = struct {
	mu sync.Mutex
	m  map[uintptr][]byte
}{m: map[uintptr][]byte{}}

// Map returns memory of the Go heap at an aligned address.
func Map(size, align uintptr) (uintptr, error) {
	align = max(align, PageSize)
	b := make([]byte, size+align)
	start := RoundUp(uintptr(unsafe.Pointer(unsafe.SliceData(b))), align)
	pages.mu.Lock()
	defer pages.mu.Unlock()
	pages.m[start] = b
	return start, nil
}

// Unmap frees it.
func Unmap(address, _ uintptr) error {
	pages.mu.Lock()
	defer pages.mu.Unlock()
	if _, ok := pages.m[address]; !ok {
		return fmt.Errorf("no pages were mapped at %#x", address)
	}
	delete(pages.m, address)
	return nil
}

// Discard fails: pages of the Go heap cannot be returned.
func Discard(uintptr, uintptr) error {
	return noPages("on this system it is memory of the Go heap")
}

// Resident returns size, because nothing is returned.
func Resident(_, size uintptr) uintptr { return size }
