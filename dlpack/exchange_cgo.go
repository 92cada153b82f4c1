//go:build linux && cgo

package dlpack

/*
#include <stdlib.h>
#include "usmb_dl_internal.h"

// Export and import retain no Go pointer and never call back into Go. Deleting may call a
// deleter that enters Go.
#cgo noescape usmb_dl_slot_export
#cgo nocallback usmb_dl_slot_export
#cgo noescape usmb_dl_slot_import
#cgo nocallback usmb_dl_slot_import
#cgo noescape usmb_dl_parts_check
#cgo nocallback usmb_dl_parts_check
#cgo noescape usmb_dl_parts_explain
#cgo nocallback usmb_dl_parts_explain
*/
import "C"

import (
	"unsafe"
)

func newZeroed(size uintptr) unsafe.Pointer {
	return C.calloc(1, C.size_t(size))
}

// cParts writes a view in C's form. Addresses become integers, since the owner keeps their memory. The
// fields are written one by one: a composite literal would be built and then copied as a whole, which
// waits for the stores.
func cParts(p *C.usmb_dl_parts, v *View, flags uint64) {
	p.data = C.uintptr_t(uintptr(v.Data))
	p.device._type, p.device.id = C.int32_t(v.Device.Type), C.int32_t(v.Device.ID)
	p.ndim = C.int32_t(len(v.Shape))
	p.dtype.code, p.dtype.bits, p.dtype.lanes = C.uint8_t(v.DataType.Code), C.uint8_t(v.DataType.Bits), C.uint16_t(v.DataType.Lanes)
	p.byte_offset = C.uint64_t(v.ByteOffset)
	p.flags = C.uint64_t(flags)
}

func cInts(s []int64) *C.int64_t { return (*C.int64_t)(unsafe.SliceData(s)) }

func (s *slot) address() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(s))) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// badForm reports whether checkForm would return an error. It is small enough to be inlined.
func (v *View) badForm() bool {
	return v == nil || v.Strides != nil && len(v.Strides) != len(v.Shape) || len(v.Shape) > MaxNDim
}

// checkForm checks the properties that only a Go view can violate, before the call of C.
func (v *View) checkForm(op string) error {
	if v == nil {
		return opErr(op, ErrNull, "the view is nil: pass a view of the memory")
	}
	if v.Strides != nil && len(v.Strides) != len(v.Shape) {
		return opErr(op, ErrStrides, "%d strides for %d dimensions: give one stride a dimension, or nil for C order", len(v.Strides), len(v.Shape))
	}
	if len(v.Shape) > MaxNDim {
		return opErr(op, ErrShape, "ndim is %d: a tensor has 0 to %d dimensions; reshape it", len(v.Shape), MaxNDim)
	}
	return nil
}

// Supported reports whether tensors can be exchanged in this build: Linux with cgo.
func Supported() bool { return true }

// Export builds a managed tensor from a view and one reference of owner, and returns it owned: call
// Release, or Detach to pass it on. Shape and strides are copied. versioned selects the struct; see
// [Negotiate].
//
// The tensor has version 1.3 and always has strides; with 0 dimensions it has neither shape nor strides.
// data is the address of the first element and byte_offset is 0. The exception is kDLOneAPI memory with
// negative strides: data is the lowest address and byte_offset leads to the first element. Empty tensors
// have NULL data, except for kDLOneAPI, which needs a USM pointer. Read-only memory and padded sub-byte
// elements are not exported as legacy tensors, because the legacy struct cannot express them.
//
// On error nothing was taken over, and the caller still owns the reference. The view is not retained; it
// is passed by pointer because it is large and copying it costs as much as the rest of the call.
func Export(v *View, flags Flags, versioned bool, owner Owner) (Tensor, error) {
	if v.badForm() {
		return Tensor{}, v.checkForm("Export")
	}
	if flags&^knownFlags != 0 {
		return Tensor{}, codeError("Export", C.USMB_DL_EFLAGS, v)
	}
	s := takeSlot()
	if s == nil {
		return Tensor{}, codeError("Export", C.USMB_DL_ENOMEM, v)
	}
	var parts C.usmb_dl_parts
	cParts(&parts, v, uint64(flags))
	code := C.usmb_dl_slot_export(s.address(), &parts, cInts(v.Shape), cInts(v.Strides),
		cBool(versioned), C.uintptr_t(owner.Drop), C.uintptr_t(uintptr(owner.Ctx)))
	if code != C.USMB_DL_OK {
		s.pushFree()
		return Tensor{}, codeError("Export", int(code), v)
	}
	return s.tensor(), nil
}

// Import takes over a managed tensor of a producer (DLManagedTensorVersioned if versioned, else
// DLManagedTensor) after checking everything that does not depend on the device.
//
// Import accepts NULL strides (from older producers), NULL deleters, byte offsets, empty tensors, up to
// 64 dimensions, packed and padded sub-byte elements, and newer minor versions. It refuses lanes other
// than 1, bools that are not 8 bits, opaque handles, a first element or byte offset that is not a
// multiple of the item size (for whole-byte types with elements), NULL data with elements, sizes and
// spans whose number of bits does not fit 63 bits, and spans that wrap around the address space.
//
// On error nothing was taken over, and the caller still owns the tensor: return it to its producer, or
// call [Delete], which is also valid after [ErrVersion].
func Import(managed unsafe.Pointer, versioned bool) (Tensor, error) {
	s := takeSlot()
	if s == nil {
		return Tensor{}, codeError("Import", C.USMB_DL_ENOMEM, nil)
	}
	code := C.usmb_dl_slot_import(s.address(), C.uintptr_t(uintptr(managed)), cBool(versioned))
	if code != C.USMB_DL_OK {
		return Tensor{}, s.importError(int(code))
	}
	return s.tensor(), nil
}

// Delete calls the deleter of a managed tensor that the caller owns. A nil tensor and a NULL deleter are
// ignored. It accesses nothing else, so that tensors of any major version can be deleted.
func Delete(managed unsafe.Pointer, versioned bool) { deleteManaged(managed, versioned, nil) }

// deleteManaged calls the deleter and frees the memory of a slot's dimensions.
func deleteManaged(managed unsafe.Pointer, versioned bool, more unsafe.Pointer) {
	C.usmb_dl_slot_delete(C.uintptr_t(uintptr(managed)), cBool(versioned), C.uintptr_t(uintptr(more)))
}

func freeMore(more unsafe.Pointer) { C.usmb_dl_slot_free(C.uintptr_t(uintptr(more))) }

// Check checks a view as [Import] checks a tensor, and returns the memory that it covers. Of the flags
// only SubBytePadded is used.
func Check(v *View, flags Flags) (Span, error) {
	if err := v.checkForm("Check"); err != nil {
		return Span{}, err
	}
	var span Span
	var parts C.usmb_dl_parts
	cParts(&parts, v, uint64(flags))
	code := C.usmb_dl_parts_check((*C.uint64_t)(unsafe.Pointer(&span)), &parts,
		cInts(v.Shape), cInts(v.Strides))
	if code != C.USMB_DL_OK {
		return Span{}, codeError("Check", int(code), v)
	}
	return span, nil
}

var sentinels = map[int]error{
	C.USMB_DL_ENOMEM:    ErrOutOfMemory,
	C.USMB_DL_EVERSION:  ErrVersion,
	C.USMB_DL_ENDIM:     ErrShape,
	C.USMB_DL_ESHAPE:    ErrShape,
	C.USMB_DL_ESTRIDES:  ErrStrides,
	C.USMB_DL_EOVERFLOW: ErrOverflow,
	C.USMB_DL_EDTYPE:    ErrDataType,
	C.USMB_DL_ELANES:    ErrDataType,
	C.USMB_DL_EALIGN:    ErrAlignment,
	C.USMB_DL_ENULL:     ErrNull,
	C.USMB_DL_EREADONLY: ErrReadOnly,
	C.USMB_DL_EDEVICE:   ErrDevice,
	C.USMB_DL_EPADDED:   ErrLegacy,
	C.USMB_DL_EFLAGS:    ErrFlags,
}

const messageSize = 512

// codeError returns the error of a code about a view, with C's message.
func codeError(op string, code int, v *View) error {
	buf := (*C.char)(C.malloc(messageSize))
	defer C.free(unsafe.Pointer(buf))
	if v == nil {
		C.usmb_dl_explain(C.int(code), nil, buf, messageSize)
	} else {
		var parts C.usmb_dl_parts
		cParts(&parts, v, 0)
		C.usmb_dl_parts_explain(C.int(code), &parts, cInts(v.Shape), cInts(v.Strides), buf, messageSize)
	}
	return opErr(op, sentinels[code], "%s", C.GoString(buf))
}

// importError returns the error of a failed import, whose message C left in the slot, and frees the slot.
func (s *slot) importError(code int) error {
	text := s.more
	s.pushFree()
	if text == nil {
		return codeError("Import", code, nil)
	}
	defer freeMore(text)
	return opErr("Import", sentinels[code], "%s", C.GoString((*C.char)(text)))
}
