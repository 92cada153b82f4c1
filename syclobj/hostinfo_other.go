//go:build !linux

package syclobj

// hostMemorySize returns 0: the size is known on Linux only.
func hostMemorySize() uint64 { return 0 }
