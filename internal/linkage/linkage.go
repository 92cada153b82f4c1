//go:build !linux || !cgo

package linkage

// Static returns false: without cgo, or on other systems, no libraries are loaded.
func Static() bool { return false }
