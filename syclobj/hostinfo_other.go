//go:build !linux

package syclobj

// hostMemorySize is 0, unknown: only Linux is asked.
func hostMemorySize() uint64 { return 0 }
