//go:build linux && cgo

package cpeer

/*
#include <stdlib.h>
#include "usmb_dlpack.h"

static int usmb_peer_export(const usmb_dl_tensor *t, uint64_t flags, int versioned, uintptr_t drop, void *ctx, void **out)
{
	return usmb_dl_export(t, flags, versioned, (usmb_drop_fn)drop, ctx, out);
}
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

func dtype(d dlpack.DataType) C.usmb_dl_dtype {
	return C.usmb_dl_dtype{code: C.uint8_t(d.Code), bits: C.uint8_t(d.Bits), lanes: C.uint16_t(d.Lanes)}
}

// Name is usmb_dl_dtype_name; "" for NULL.
func Name(d dlpack.DataType) string { return C.GoString(C.usmb_dl_dtype_name(dtype(d))) }

// TypeString is usmb_dl_dtype_typestr; "" for NULL.
func TypeString(d dlpack.DataType) string { return C.GoString(C.usmb_dl_dtype_typestr(dtype(d))) }

// ByName is usmb_dl_dtype_by_name.
func ByName(name string) (dlpack.DataType, bool) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var d C.usmb_dl_dtype
	ok := C.usmb_dl_dtype_by_name(c, &d) == C.USMB_DL_OK
	return dlpack.DataType{Code: dlpack.Code(d.code), Bits: uint8(d.bits), Lanes: uint16(d.lanes)}, ok
}

// ByTypeString is usmb_dl_dtype_by_typestr.
func ByTypeString(s string) (dlpack.DataType, bool) {
	c := C.CBytes([]byte(s)) // without a terminator, so that the sanitizer detects reads beyond the end
	defer C.free(c)
	var d C.usmb_dl_dtype
	ok := C.usmb_dl_dtype_by_typestr((*C.char)(c), C.size_t(len(s)), &d) == C.USMB_DL_OK
	return dlpack.DataType{Code: dlpack.Code(d.code), Bits: uint8(d.bits), Lanes: uint16(d.lanes)}, ok
}

// DeviceName is usmb_dl_device_name; "" for NULL.
func DeviceName(t int32) string { return C.GoString(C.usmb_dl_device_name(C.int32_t(t))) }

// IsHandleDevice is usmb_dl_is_handle_device.
func IsHandleDevice(t int32) bool { return C.usmb_dl_is_handle_device(C.int32_t(t)) != 0 }

// Negotiate is usmb_dl_negotiate and returns its code.
func Negotiate(limit *dlpack.Version, flags dlpack.Flags) (versioned bool, code int) {
	var has, out C.int
	var v dlpack.Version
	if limit != nil {
		has, v = 1, *limit
	}
	code = int(C.usmb_dl_negotiate(has, C.uint32_t(v.Major), C.uint32_t(v.Minor), C.uint64_t(flags), &out))
	return out != 0, code
}

// FindExchange builds a chain of tables of these major versions, in C memory, and returns the position of
// the table that usmb_dl_exchange_find selects, or -1. With loop, the last table points to the first.
func FindExchange(majors []uint32, loop bool) int {
	size := unsafe.Sizeof(C.usmb_dl_exchange_api{})
	base := C.calloc(C.size_t(len(majors)+1), C.size_t(size))
	defer C.free(base)
	at := func(i int) *C.usmb_dl_exchange_header {
		return (*C.usmb_dl_exchange_header)(unsafe.Add(base, uintptr(i)*size))
	}
	for i, major := range majors {
		at(i).version.major = C.uint32_t(major)
		if i+1 < len(majors) {
			at(i).prev_api = at(i + 1)
		} else if loop {
			at(i).prev_api = at(0)
		}
	}
	found := C.usmb_dl_exchange_find(base)
	if found == nil {
		return -1
	}
	return int((uintptr(unsafe.Pointer(found)) - uintptr(base)) / size)
}

// FindNoExchange is usmb_dl_exchange_find of NULL.
func FindNoExchange() bool { return C.usmb_dl_exchange_find(nil) == nil }

// tensorIn is the tensor inside a managed struct of ours or the peer's.
func tensorIn(managed unsafe.Pointer, versioned bool) *C.usmb_dl_tensor {
	return (*C.usmb_dl_tensor)(unsafe.Pointer(tensorOf(managed, versioned)))
}

// CheckStrides calls usmb_dl_check for a tensor without flags. It returns the code, the strides that were
// written, and the number and bounds of the span.
func CheckStrides(managed unsafe.Pointer, versioned bool) (code int, strides []int64, count, lo, hi int64) {
	t := tensorIn(managed, versioned)
	var span C.usmb_dl_span
	out := make([]int64, C.USMB_DL_MAX_NDIM)
	code = int(C.usmb_dl_check(t, 0, ints(out), &span))
	if code == C.USMB_DL_OK {
		strides = out[:t.ndim]
	}
	return code, strides, int64(span.nelem), int64(span.lo), int64(span.hi)
}

// Snapshot returns the result of usmb_dl_read_managed, or of usmb_dl_read for the tensor alone: the
// message of its code ("" for OK), shape and strides, count and bounds.
func Snapshot(managed unsafe.Pointer, versioned, bare bool) (message string, shape, strides []int64, count, lo, hi int64) {
	s := (*C.usmb_dl_snapshot)(C.malloc(C.size_t(unsafe.Sizeof(C.usmb_dl_snapshot{}))))
	defer C.free(unsafe.Pointer(s))
	var code C.int
	switch {
	case bare && managed == nil:
		code = C.usmb_dl_read(nil, 0, s)
	case bare:
		code = C.usmb_dl_read(tensorIn(managed, versioned), C.uint64_t(Read(managed, versioned).Flags), s)
	default:
		code = C.usmb_dl_read_managed(managed, cBool(versioned), s)
	}
	if code != C.USMB_DL_OK {
		var text [512]C.char
		return C.GoString(C.usmb_dl_explain_snapshot(code, s, &text[0], C.size_t(len(text)))), nil, nil, 0, 0, 0
	}
	n := s.t.ndim
	return "", copyInts(&s.shape[0], n), copyInts(&s.strides[0], n), int64(s.span.nelem), int64(s.span.lo), int64(s.span.hi)
}

// ExportRaw calls usmb_dl_export for the tensor in a managed struct with these flags. It returns the code and
// the new struct.
func ExportRaw(managed unsafe.Pointer, isVersioned bool, flags uint64, versioned bool, owner dlpack.Owner) (unsafe.Pointer, int) {
	t := tensorIn(managed, isVersioned)
	var out unsafe.Pointer
	code := C.usmb_peer_export(t, C.uint64_t(flags), cBool(versioned), C.uintptr_t(owner.Drop), owner.Ctx, &out)
	return out, int(code)
}

// Explain calls usmb_dl_explain for the tensor in a managed struct, or for none, with a buffer of n bytes.
func Explain(code int, managed unsafe.Pointer, versioned bool, n int) string {
	var t *C.usmb_dl_tensor
	if managed != nil {
		t = tensorIn(managed, versioned)
	}
	buf := (*C.char)(C.malloc(C.size_t(n) + 1))
	defer C.free(unsafe.Pointer(buf))
	return C.GoString(C.usmb_dl_explain(C.int(code), t, buf, C.size_t(n)))
}

// Codes is the number of error codes.
const Codes = int(C.USMB_DL_ECODES)

// CapsuleNames are the five static names.
func CapsuleNames() []string {
	return []string{
		C.GoString((*C.char)(unsafe.Pointer(&C.usmb_dl_name_legacy))), C.GoString((*C.char)(unsafe.Pointer(&C.usmb_dl_name_legacy_used))),
		C.GoString((*C.char)(unsafe.Pointer(&C.usmb_dl_name_versioned))), C.GoString((*C.char)(unsafe.Pointer(&C.usmb_dl_name_versioned_used))),
		C.GoString((*C.char)(unsafe.Pointer(&C.usmb_dl_name_exchange_api))),
	}
}
