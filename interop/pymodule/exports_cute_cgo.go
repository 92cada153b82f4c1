//go:build cgo && linux

package pymodule

/*
#include "cute.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/cute"
)

// These declarations compile only if the constants are equal in C.
var (
	_ = [1]struct{}{}[C.USMB_CUTE_STRIDES_64-cute.Strides64]
	_ = [1]struct{}{}[C.USMB_CUTE_STRIDES_32-cute.Strides32]
	_ = [1]struct{}{}[C.USMB_CUTE_LEADING_SKIP_SIZE_ONE-cute.LeadingSkipSizeOne]
	_ = [1]struct{}{}[C.USMB_CUTE_SPACE_GENERIC-cute.Generic]
	_ = [1]struct{}{}[C.USMB_CUTE_SPACE_GMEM-cute.GMem]
	_ = [1]struct{}{}[C.USMB_CUTE_MAX_RANK-cute.MaxRank]
)

// reportCute writes an error of dlpack/cute to e and returns -1.
func reportCute(e *C.usmb_goerr, err error) C.int {
	k := kindValue
	if errors.Is(err, cute.ErrElementType) {
		k = kindType
	}
	return reportKind(e, k, err.Error())
}

// words returns the flat form of a Spec in a Python object, without a copy.
func words(p *C.int64_t, n C.int64_t) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(p)), n)
}

//export usmb_go_cute_convert
func usmb_go_cute_convert(t *C.usmb_dl_tensor, flags C.uint64_t, o *C.usmb_cute_options, p *C.int64_t, n C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	if o.has_align != 0 && o.align == 0 {
		return reportKind(e, kindValue, "assumed_align 0 is not a power of two: give the number of bytes the address is a multiple of, or None for the element's natural alignment")
	}
	v := dlpack.View{
		Data:     t.data,
		Device:   dlpack.Device{Type: dlpack.DeviceType(t.device._type), ID: int32(t.device.id)},
		DataType: typeOf(t.dtype),
		Shape:    int64s(t.shape, t.ndim),
		Strides:  int64s(t.strides, t.ndim),
	}
	if err := cute.CheckFlags(v.DataType, dlpack.Flags(flags)); err != nil {
		return reportCute(e, err)
	}
	s, err := cute.NewSpec(v, cute.Options{
		AssumedAlign: int64(o.align),
		Strides:      cute.StrideWidth(o.strides),
		Leading:      cute.LeadingRule(o.leading),
		UnitStrides:  o.unit != 0,
		MemSpace:     cute.MemSpace(o.space),
	})
	if err == nil && o.dynamic != 0 {
		err = s.MarkLayoutDynamic(cute.Deduce)
	}
	if err != nil {
		return reportCute(e, err)
	}
	return putSpec(&s, p, n, e)
}

// putSpec writes the flat form of s to p, which must have exactly its length.
func putSpec(s *cute.Spec, p *C.int64_t, n C.int64_t, e *C.usmb_goerr) C.int {
	if len(s.AppendWords(words(p, n)[:0:n])) != int(n) {
		return reportKind(e, kindRuntime, "usmbridge.cute: internal error: the flat form has the wrong length")
	}
	return 0
}

//export usmb_go_cute_mark_layout
func usmb_go_cute_mark_layout(p *C.int64_t, n C.int64_t, deduce C.int32_t, leading C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	s, err := cute.SpecFromWords(words(p, n))
	if err == nil {
		dim := int(leading)
		if deduce != 0 {
			dim = cute.Deduce
		}
		err = s.MarkLayoutDynamic(dim)
	}
	if err != nil {
		return reportCute(e, err)
	}
	return putSpec(&s, p, n, e)
}

//export usmb_go_cute_mark_compact
func usmb_go_cute_mark_compact(p *C.int64_t, n C.int64_t, mode C.int64_t, order *C.int64_t, norder C.int64_t, divisibility C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	s, err := cute.SpecFromWords(words(p, n))
	if err == nil {
		err = s.MarkCompactShapeDynamic(int(mode), ints(order, C.int32_t(norder)), int64(divisibility))
	}
	if err != nil {
		return reportCute(e, err)
	}
	return putSpec(&s, p, n, e)
}

//export usmb_go_cute_text
func usmb_go_cute_text(p *C.int64_t, n C.int64_t, part C.int32_t, data unsafe.Pointer, buf *C.char, length *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	s, err := cute.SpecFromWords(words(p, n))
	if err != nil {
		return reportCute(e, err)
	}
	var t string
	switch part {
	case C.USMB_CUTE_TEXT_TENSOR:
		t = s.TensorString(data)
	case C.USMB_CUTE_TEXT_LAYOUT:
		t = s.Layout()
	case C.USMB_CUTE_TEXT_KEY:
		t = s.Key().String()
	case C.USMB_CUTE_TEXT_ELEMENT:
		t = s.ElementType().String()
	case C.USMB_CUTE_TEXT_SPACE:
		t = s.MemSpace().String()
	}
	*length = C.int64_t(copy(unsafe.Slice((*byte)(unsafe.Pointer(buf)), C.USMB_CUTE_TEXT_MAX), t))
	return 0
}
