//go:build !linux || !amd64 || usmb_portable

package pin

import "unsafe"

// Fast tells that Pin excludes all others on the shard; here it does not.
const Fast = false

// Expedited is of no use in this form.
func Expedited() bool { return false }

// Register does nothing in this form.
func Register() {}

// Pin returns a number that tends to stay the same for a goroutine and to
// differ between goroutines: its stack's place. The caller locks the shard.
func Pin() int {
	var here byte
	at := uintptr(unsafe.Pointer(&here)) >> 13
	return int((at * 0x9E3779B1) >> 7 & 0xffff)
}

// Unpin ends Pin.
func Unpin() {}

// Barrier does nothing: locks order the portable form.
func Barrier() {}
