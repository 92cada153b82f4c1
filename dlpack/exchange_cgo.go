//go:build linux && cgo

package dlpack

/*
#include <stdlib.h>
#include "usmb_dl_internal.h"

// Export and import keep no Go pointer and never call back; deleting may run
// a deleter that enters Go, so it promises nothing.
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

// cParts writes a view as C takes it; addresses are numbers there, since what
// they point at is the owner's to keep. Field by field: a literal is built and
// then copied whole, which waits for the stores it was built with.
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

// Supported reports whether tensors can be exchanged in this build: linux with
// cgo.
func Supported() bool { return true }

// Export builds a managed tensor that shows the view's memory and holds one
// reference of owner, and returns it owned: Release it, or Detach it to hand it
// on. Shape and strides are copied. versioned chooses the struct; see
// [Negotiate]. What goes out follows DLPack 1.3: strides are always written;
// data is the first element's address with byte offset 0, but for kDLOneAPI
// with negative strides the lowest address with the offset; size 0 has NULL
// data, but for kDLOneAPI, which needs a USM pointer.
//
// On error nothing was taken and the owner's reference is still the caller's. The
// view is not kept; it goes by pointer since it is large, and copying it costs as
// much as the rest of the way to C.
func Export(v *View, flags Flags, versioned bool, owner Owner) (Tensor, error) {
	if v.badForm() {
		return Tensor{}, v.checkForm("export")
	}
	if flags&^knownFlags != 0 {
		return Tensor{}, codeError("export", C.USMB_DL_EFLAGS, v)
	}
	s := takeSlot()
	if s == nil {
		return Tensor{}, codeError("export", C.USMB_DL_ENOMEM, v)
	}
	var parts C.usmb_dl_parts
	cParts(&parts, v, uint64(flags))
	code := C.usmb_dl_slot_export(s.address(), &parts, cInts(v.Shape), cInts(v.Strides),
		cBool(versioned), C.uintptr_t(owner.Drop), C.uintptr_t(uintptr(owner.Ctx)))
	if code != C.USMB_DL_OK {
		s.pushFree()
		return Tensor{}, codeError("export", int(code), v)
	}
	return s.tensor(), nil
}

// Import takes over a managed tensor that a producer handed out
// (DLManagedTensorVersioned when versioned, else DLManagedTensor), after
// checking all that can be checked without knowing the device: version, number
// of dimensions, extents, overflow of size and span, element type, alignment,
// NULL data. Strides that are NULL, a NULL deleter, byte offsets and size 0 are
// understood.
//
// On error nothing was taken: the tensor still belongs to the caller, who
// returns it to its producer or calls [Delete], which is right for an
// [ErrVersion] too.
func Import(managed unsafe.Pointer, versioned bool) (Tensor, error) {
	s := takeSlot()
	if s == nil {
		return Tensor{}, codeError("import", C.USMB_DL_ENOMEM, nil)
	}
	code := C.usmb_dl_slot_import(s.address(), C.uintptr_t(uintptr(managed)), cBool(versioned))
	if code != C.USMB_DL_OK {
		return Tensor{}, s.importError(int(code))
	}
	return s.tensor(), nil
}

// Delete runs the deleter of a managed tensor that the caller owns, if there is
// a tensor and it has one. It touches nothing else, so that tensors of any
// major version can be deleted.
func Delete(managed unsafe.Pointer, versioned bool) { deleteManaged(managed, versioned, nil) }

// deleteManaged runs the deleter and frees what a slot had to allocate.
func deleteManaged(managed unsafe.Pointer, versioned bool, more unsafe.Pointer) {
	C.usmb_dl_slot_delete(C.uintptr_t(uintptr(managed)), cBool(versioned), C.uintptr_t(uintptr(more)))
}

func freeMore(more unsafe.Pointer) { C.usmb_dl_slot_free(C.uintptr_t(uintptr(more))) }

// Check tests a view as [Import] tests a tensor, and says which memory it
// touches. Only SubBytePadded matters among the flags.
func Check(v *View, flags Flags) (Span, error) {
	if err := v.checkForm("check"); err != nil {
		return Span{}, err
	}
	var span Span
	var parts C.usmb_dl_parts
	cParts(&parts, v, uint64(flags))
	code := C.usmb_dl_parts_check((*C.uint64_t)(unsafe.Pointer(&span)), &parts,
		cInts(v.Shape), cInts(v.Strides))
	if code != C.USMB_DL_OK {
		return Span{}, codeError("check", int(code), v)
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

// codeError is the error of a code about a view, in the C side's words.
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
	return &Error{Op: op, Err: sentinels[code], Detail: C.GoString(buf)}
}

// importError is the error of a failed import, whose message C left in the slot,
// and gives the slot back.
func (s *slot) importError(code int) error {
	text := s.more
	s.pushFree()
	if text == nil {
		return codeError("import", code, nil)
	}
	defer freeMore(text)
	return &Error{Op: "import", Err: sentinels[code], Detail: C.GoString((*C.char)(text))}
}
