package usmarray

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// USMSpan is the result of Check: facts about a dictionary that are known without SYCL. It is a value that
// owns nothing.
type USMSpan struct {
	DataType DataType
	Elements int
	First    uintptr // address of element (0, …, 0)
	Lo, Hi   uintptr // addresses used: [Lo, Hi); both are First when empty
	IsC      bool    // the elements are contiguous in row-major order
}

// Check checks everything that does not need the SYCL runtime, and returns the derived facts. It makes no
// call into C, allocates only on failure, and is cheap enough for every exchange.
//
// Check and [FromUSMInterface] refuse the following, in this order, before any call of the SYCL runtime
// that could end the process. Check covers the rows up to the owner's allocation. The last column is the
// Key of the OpError.
//
//	version missing, or not 1                        ErrInterface  version
//	negative or too many dimensions                  ErrInterface  shape
//	product of the dimensions too large              ErrInterface  shape
//	typestr missing, big-endian, without byte order  ErrInterface  typestr
//	typestr of objects, text, dates, void            ErrInterface  typestr
//	typestr of a size that array libraries lack      ErrInterface  typestr
//	typedescr with fields, or of another type        ErrInterface  typedescr
//	strides not one per dimension                    ErrInterface  strides
//	null pointer, even for size 0                    ErrInterface  data
//	span too large, or outside the address space     ErrInterface  shape, data
//	span outside the owner's allocation              ErrInterface  data
//	syclobj missing, nil, or several forms set       ErrInterface  syclobj
//	filter string malformed, or of no device         ErrInterface  syclobj
//	context or queue of the host backend, or closed  ErrInterface  syclobj
//	first byte is not USM of that context            ErrNotUSM     data
//	last byte of another kind than the first         ErrNotUSM     data
//
// Invalid Python types (a shape that is not a tuple of integers, a str for version) cannot occur in Go;
// the Python module refuses them.
func (d *USMInterface) Check() (USMSpan, error) {
	var s USMSpan
	err := d.check(&s)
	return s, err
}

// check is Check with a result in the caller's memory.
func (d *USMInterface) check(s *USMSpan) (err error) {
	const op = "Check"
	if d.Version != InterfaceVersion {
		return keyErr(op, "version", "%d; this library understands %d", d.Version, InterfaceVersion)
	}
	if len(d.Shape) > MaxDims {
		return keyErr(op, "shape", "%w", checkShape(d.Shape))
	}
	if s.DataType, err = parseTypeStr(d.TypeStr); err != nil {
		return keyErr(op, "typestr", "%w", err)
	}
	if len(d.TypeDescr) != 0 {
		if err := d.checkTypeDescr(s.DataType); err != nil {
			return keyErr(op, "typedescr", "%w", err)
		}
	}
	if d.Strides != nil && len(d.Strides) != len(d.Shape) {
		return keyErr(op, "strides", "%d strides for %d dimensions; give one per dimension, or None for C order", len(d.Strides), len(d.Shape))
	}
	if d.Data == 0 {
		return keyErr(op, "data", "the pointer is null; USM memory is needed even for an array without elements")
	}
	lo, hi, ok := d.elements(s)
	if !ok {
		return d.tooLarge(op, s.DataType.Size())
	}
	if err := d.addresses(op, s, lo, hi); err != nil {
		return err
	}
	return d.checkAllocation(op, s)
}

// elements sets the number and contiguity of the elements and returns their positions [lo, hi) relative to
// Data. ok is false if a number, or the size in bytes, does not fit an int.
func (d *USMInterface) elements(s *USMSpan) (lo, hi int, ok bool) {
	e, ok := extentOf(d.Shape, d.Strides, d.Offset)
	s.Elements, s.IsC = e.size, e.isC
	_, fits := mulInt(e.size, s.DataType.Size())
	return e.lo, e.hi, ok && fits
}

// tooLarge returns the error of a failed elements.
func (d *USMInterface) tooLarge(op string, item int) error {
	if err := checkShape(d.Shape); err != nil {
		return keyErr(op, "shape", "%w", err)
	}
	return keyErr(op, "shape", "%s of %d-byte elements with strides %s at offset %d spans more memory than can be addressed",
		tuple(d.Shape), item, tuple(d.Strides), d.Offset)
}

// addresses converts element positions to addresses.
func (d *USMInterface) addresses(op string, s *USMSpan, lo, hi int) error {
	item := s.DataType.Size()
	var okF, okL, okH bool
	s.First, okF = address(d.Data, d.Offset, item)
	s.Lo, okL = s.First, okF
	if lo != d.Offset {
		s.Lo, okL = address(d.Data, lo, item)
	}
	s.Hi, okH = address(d.Data, hi, item)
	if !okF || !okL || !okH {
		return keyErr(op, "data", "from %#x, elements %d to %d of %d bytes lie outside the address space", d.Data, lo, hi, item)
	}
	if s.Hi-s.Lo > uintptr(maxInt) {
		return keyErr(op, "shape", "elements %d to %d of %d bytes span more memory than can be addressed", lo, hi, item)
	}
	return nil
}

// address returns base + index*item; ok is false if the product or the sum wraps or the result is zero.
func address(base uintptr, index, item int) (uintptr, bool) {
	n, ok := mulInt(index, item)
	if !ok {
		return 0, false
	}
	if n < 0 {
		// Compute the magnitude as unsigned, for the lowest int.
		m := uintptr(-(n + 1)) + 1
		return base - m, base > m
	}
	a := base + uintptr(n)
	return a, a >= base
}

func (d *USMInterface) checkAllocation(op string, s *USMSpan) error {
	a := d.Allocation
	if a.Base == 0 {
		return nil
	}
	end := a.Base + a.Size
	if end < a.Base {
		return keyErr(op, "data", "the owner's allocation of %d bytes at %#x wraps around the address space", a.Size, a.Base)
	}
	if s.Lo < a.Base || s.Hi > end {
		return keyErr(op, "data", "the array uses addresses %#x to %#x, its owner's allocation reaches from %#x to %#x (%d bytes)",
			s.Lo, s.Hi, a.Base, end, a.Size)
	}
	return nil
}

// parseTypeStr parses a type string; frequent ones without a lookup.
func parseTypeStr(s string) (DataType, error) {
	switch s {
	case "<f4", "|f4":
		return Float32, nil
	case "<f8", "|f8":
		return Float64, nil
	case "<i4", "|i4":
		return Int32, nil
	case "<i8", "|i8":
		return Int64, nil
	case "|u1":
		return Uint8, nil
	case "":
		return DataType{}, fmt.Errorf("the type string is missing; give one such as %q", "<f4")
	}
	return parseRareTypeStr(s)
}

// checkTypeDescr accepts descriptions that add nothing to the type string.
func (d *USMInterface) checkTypeDescr(dt DataType) error {
	f := &d.TypeDescr[0]
	if len(d.TypeDescr) > 1 || f.Name != "" || len(f.Shape) != 0 {
		return fmt.Errorf("structured types cannot be exchanged (%d fields, the first named %q); export each field as an array of its own", len(d.TypeDescr), f.Name)
	}
	if f.Type == d.TypeStr {
		return nil
	}
	if ft, err := parseTypeStr(f.Type); err != nil || ft != dt {
		return fmt.Errorf("the field's type %q is not that of typestr, %q", f.Type, d.TypeStr)
	}
	return nil
}

// parseRareTypeStr parses any type string. A byte-order sign is required, and only the sizes of the array
// libraries exist.
func parseRareTypeStr(s string) (DataType, error) {
	dt, err := dlpack.ParseTypeString(s)
	if err != nil {
		return DataType{}, err
	}
	switch s[0] {
	case '<', '=', '|':
		return dt, nil
	case '>', '!':
		// dlpack accepts it for single bytes, which have no order; here the sign must
		// always be the machine's own.
	}
	return DataType{}, &dlpack.OpError{Op: "ParseTypeString", Kind: dlpack.ErrDataType,
		Err: fmt.Errorf("type string %q does not begin with '<', '=' or '|', the machine's own byte order", s)}
}

// pointerAt converts a checked address outside the Go heap to a pointer. The conversion through memory is
// accepted by vet and checkptr, which know only Go's objects.
func pointerAt(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
