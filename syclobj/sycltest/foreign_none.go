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

// EmptyCall does nothing, without a call into C.
func EmptyCall() {}
