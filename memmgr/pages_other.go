//go:build !linux

package memmgr

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

var pageSize = uintptr(os.Getpagesize())

// pages keeps the Go memory reachable that replaces mapped pages. Objects of the Go heap do not
// move, so their addresses can be used.
var pages = struct {
	mu sync.Mutex
	m  map[uintptr][]byte
}{m: map[uintptr][]byte{}}

func mapPages(size, align uintptr) (uintptr, error) {
	align = max(align, pageSize)
	b := make([]byte, size+align)
	start := roundUp(uintptr(unsafe.Pointer(unsafe.SliceData(b))), align)
	pages.mu.Lock()
	defer pages.mu.Unlock()
	pages.m[start] = b
	return start, nil
}

func unmapPages(address, _ uintptr) error {
	pages.mu.Lock()
	defer pages.mu.Unlock()
	if _, ok := pages.m[address]; !ok {
		return fmt.Errorf("no pages were mapped at %#x", address)
	}
	delete(pages.m, address)
	return nil
}

// discardPages fails: pages of the Go heap cannot be returned.
func discardPages(uintptr, uintptr) error {
	return noPages("on this system it is memory of the Go heap")
}

func residentBytes(_, size uintptr) uintptr { return size }
