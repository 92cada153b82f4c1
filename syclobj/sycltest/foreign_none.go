//go:build !linux || !cgo

package sycltest

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// CheckInC needs Linux and cgo.
func CheckInC(*syclobj.Context, unsafe.Pointer, unsafe.Pointer, int) syclobj.Code {
	return syclobj.ErrUnsupported
}

// ImportInC needs Linux and cgo.
func ImportInC(int32, unsafe.Pointer, unsafe.Pointer, int) syclobj.Code {
	return syclobj.ErrUnsupported
}

// ForeignAlloc needs Linux and cgo.
func ForeignAlloc(*syclobj.Queue, syclobj.USMKind, uintptr) (unsafe.Pointer, func(), error) {
	return nil, nil, syclobj.ErrUnsupported
}

// OrderInC needs Linux and cgo.
func OrderInC(_, _ *syclobj.Queue) syclobj.Code { return syclobj.ErrUnsupported }

// ContextHash needs Linux and cgo.
func ContextHash(*syclobj.Context) uint64 { return 0 }

// CodeText returns Go's text of a result.
func CodeText(code syclobj.Code) string { return code.Error() }
