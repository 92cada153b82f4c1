//go:build !linux || !cgo

package dlpack

import (
	"errors"
	"unsafe"
)

func unsupported(op string) error {
	return &Error{Op: op, Err: errors.ErrUnsupported,
		Detail: "tensors are exchanged through C: build for linux with CGO_ENABLED=1 and a C compiler"}
}

// Supported reports whether tensors can be exchanged in this build: linux with
// cgo.
func Supported() bool { return false }

// Export returns errors.ErrUnsupported in this build; nothing was taken.
func Export(*View, Flags, bool, Owner) (Tensor, error) {
	return Tensor{}, unsupported("export")
}

// Import returns errors.ErrUnsupported in this build; nothing was taken.
func Import(unsafe.Pointer, bool) (Tensor, error) { return Tensor{}, unsupported("import") }

// Check returns errors.ErrUnsupported in this build.
func Check(*View, Flags) (Span, error) { return Span{}, unsupported("check") }

// Delete does nothing in this build, which cannot come by a tensor.
func Delete(unsafe.Pointer, bool) {}

func deleteManaged(unsafe.Pointer, bool, unsafe.Pointer) {}

func freeMore(unsafe.Pointer) {}

func newZeroed(uintptr) unsafe.Pointer { return nil }
