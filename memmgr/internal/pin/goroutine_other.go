//go:build usmb_checks && !amd64

package pin

import (
	"bytes"
	"runtime"
	"strconv"
)

// Goroutine returns the number of the calling goroutine, slowly. It is for checks in tests.
func Goroutine() uintptr {
	var text [64]byte
	n := runtime.Stack(text[:], false)
	fields := bytes.Fields(text[:n]) // "goroutine 18 [running]:"
	number, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return uintptr(number) << 8
}
