package main

import (
	"fmt"
	"os"
	"syscall"
)

// newShared makes and maps memory.
func newShared(name string, size int) (*shared, error) {
	f, err := os.OpenFile("/dev/shm/"+name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", name, err)
	}
	return &shared{name: name, data: data}, nil
}
