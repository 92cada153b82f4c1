//go:build usmb_checks

package pin

// Goroutine returns a number of the calling goroutine that no other goroutine has while it
// exists: the address of its descriptor. It is for checks in tests.
func Goroutine() uintptr
