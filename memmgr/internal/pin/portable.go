//go:build !linux || !amd64 || usmb_portable

package pin

import "unsafe"

// Fast reports whether Pin gives exclusive use of the shard.
const Fast = false

// Expedited is not used in this form.
func Expedited() bool { return false }

// Register does nothing in this form.
func Register() {}

// Pin returns a number derived from the goroutine's stack address: usually constant for a goroutine
// and different between goroutines. The caller locks the shard.
func Pin() int {
	var here byte
	at := uintptr(unsafe.Pointer(&here)) >> 13
	return int((at * 0x9E3779B1) >> 7 & 0xffff)
}

// Unpin does nothing.
func Unpin() {}

// Barrier does nothing: in this form locks order the accesses.
func Barrier() {}
