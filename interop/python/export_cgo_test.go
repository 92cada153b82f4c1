//go:build linux && cgo

package python

import "unsafe"

// Wide is what Python is told of a path.
func Wide(path string) (chars []int32) {
	for p := unsafe.Pointer(wideString(path)); *(*int32)(p) != 0; p = unsafe.Add(p, 4) {
		chars = append(chars, *(*int32)(p))
	}
	return chars
}
