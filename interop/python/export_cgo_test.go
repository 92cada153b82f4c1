//go:build linux && cgo

package python

import "unsafe"

// Wide returns the wide characters that Python receives for a path.
func Wide(path string) (chars []int32) {
	for p := unsafe.Pointer(wideString(path)); *(*int32)(p) != 0; p = unsafe.Add(p, 4) {
		chars = append(chars, *(*int32)(p))
	}
	return chars
}
