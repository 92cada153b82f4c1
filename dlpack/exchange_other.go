//go:build !linux || !cgo

package dlpack

import (
	"errors"
	"unsafe"
)

func unsupported(op string) error {
	return opErr(op, errors.ErrUnsupported, "tensors are exchanged through C: build for linux with CGO_ENABLED=1 and a C compiler")
}

// Supported reports whether tensors can be exchanged in this build: Linux with cgo.
func Supported() bool { return false }

// Export returns errors.ErrUnsupported in this build; nothing was taken over.
func Export(*View, Flags, bool, Owner) (Tensor, error) {
	return Tensor{}, unsupported("Export")
}

// Import returns errors.ErrUnsupported in this build; nothing was taken over.
func Import(unsafe.Pointer, bool) (Tensor, error) { return Tensor{}, unsupported("Import") }

// Check returns errors.ErrUnsupported in this build.
func Check(*View, Flags) (Span, error) { return Span{}, unsupported("Check") }

// Delete does nothing in this build, which has no tensors.
func Delete(unsafe.Pointer, bool) {}

func deleteManaged(unsafe.Pointer, bool, unsafe.Pointer) {}

func freeMore(unsafe.Pointer) {}

func newZeroed(uintptr) unsafe.Pointer { return nil }
