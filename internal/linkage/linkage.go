//go:build !linux || !cgo

package linkage

// Static reports false: without cgo, or on another system, nothing is loaded.
func Static() bool { return false }
