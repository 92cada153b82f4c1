package usmarray

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// USMSpan is what Check works out about a dictionary without asking SYCL.
type USMSpan struct {
	DataType DataType
	Elements int
	First    uintptr // address of element (0, …, 0)
	Lo, Hi   uintptr // addresses used: [Lo, Hi); both are First when empty
	IsC      bool    // the elements lie densely in C order
}

// Check verifies everything that can be verified without asking the SYCL runtime,
// and returns what it worked out: version, number and signs of dimensions, type
// string, type description, strides, overflow of product, span and addresses, a
// null pointer, and the allocation where it is known. It makes no call into C,
// allocates nothing unless it fails, and may be called for every hand-over. The
// table in the package documentation lists the errors.
func (d *USMInterface) Check() (USMSpan, error) {
	var s USMSpan
	if d.resolveSmall(&s) {
		return s, nil
	}
	return d.resolveAny()
}

// resolveAny is Check for every dictionary.
func (d *USMInterface) resolveAny() (USMSpan, error) {
	const op = "Check"
	if d.Version != InterfaceVersion {
		return USMSpan{}, keyErr(op, "version", "%d; this library understands %d", d.Version, InterfaceVersion)
	}
	if err := checkShape(d.Shape); err != nil {
		return USMSpan{}, keyErr(op, "shape", "%w", err)
	}
	dt, err := parseTypeStr(d.TypeStr)
	if err != nil {
		return USMSpan{}, keyErr(op, "typestr", "%w", err)
	}
	if err := d.checkTypeDescr(dt); err != nil {
		return USMSpan{}, keyErr(op, "typedescr", "%w", err)
	}
	if d.Strides != nil && len(d.Strides) != len(d.Shape) {
		return USMSpan{}, keyErr(op, "strides", "%d strides for %d dimensions; give one per dimension, or None for C order", len(d.Strides), len(d.Shape))
	}
	if d.Data == 0 {
		return USMSpan{}, keyErr(op, "data", "the pointer is null; USM memory is needed even for an array without elements")
	}
	s := USMSpan{DataType: dt}
	if err := d.resolveSpan(&s); err != nil {
		return USMSpan{}, err
	}
	return s, d.checkAllocation(op, &s)
}

// resolveSpan fills in elements and addresses, with exact arithmetic.
func (d *USMInterface) resolveSpan(s *USMSpan) error {
	const op = "Check"
	l := Layout{shape: d.Shape, strides: d.Strides, offset: d.Offset}
	s.Elements = l.Size()
	item := s.DataType.Size()
	_, ok := mulInt(s.Elements, item)
	lo, hi := d.Offset, d.Offset
	switch {
	case !ok:
	case d.Strides == nil:
		hi, ok = addInt(lo, s.Elements)
	default:
		lo, hi, ok = l.span()
	}
	if !ok {
		return keyErr(op, "shape", "%s of %d-byte elements with strides %s at offset %d spans more memory than can be addressed",
			tuple(d.Shape), item, tuple(d.Strides), d.Offset)
	}
	var okF, okL, okH bool
	s.First, okF = address(d.Data, d.Offset, item)
	s.Lo, okL = address(d.Data, lo, item)
	s.Hi, okH = address(d.Data, hi, item)
	if !okF || !okL || !okH {
		return keyErr(op, "data", "from %#x, elements %d to %d of %d bytes lie outside the address space", d.Data, lo, hi, item)
	}
	if s.Hi-s.Lo > uintptr(maxInt) {
		return keyErr(op, "shape", "elements %d to %d of %d bytes span more memory than can be addressed", lo, hi, item)
	}
	s.IsC = d.Strides == nil || l.IsC()
	return nil
}

// address is base + index*item, when neither the product nor the sum wraps and
// the result is no null pointer.
func address(base uintptr, index, item int) (uintptr, bool) {
	n, ok := mulInt(index, item)
	if !ok {
		return 0, false
	}
	if n < 0 {
		// The magnitude is formed as unsigned so that the lowest int works.
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

// parseTypeStr reads a type string; the frequent ones without a look-up.
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

// checkTypeDescr accepts what adds nothing to the type string.
func (d *USMInterface) checkTypeDescr(dt DataType) error {
	if len(d.TypeDescr) == 0 {
		return nil
	}
	f := d.TypeDescr[0]
	if len(d.TypeDescr) > 1 || f.Name != "" || len(f.Shape) != 0 {
		return fmt.Errorf("structured types cannot be exchanged (%d fields, the first named %q); export each field as an array of its own", len(d.TypeDescr), f.Name)
	}
	if ft, err := parseTypeStr(f.Type); err != nil || ft != dt {
		return fmt.Errorf("the field's type %q is not that of typestr, %q", f.Type, d.TypeStr)
	}
	return nil
}

// parseRareTypeStr reads any type string. The array interfaces know the sizes
// of the array libraries and no others; a byte-order sign is required.
func parseRareTypeStr(s string) (DataType, error) {
	dt, err := dlpack.ParseTypeString(s)
	if err != nil {
		return DataType{}, err
	}
	switch s[0] {
	case '<', '=', '|':
		return dt, nil
	case '>', '!':
		// One byte has no order, so dlpack lets it pass; here the sign must
		// still be one of this machine's.
	}
	return DataType{}, &dlpack.Error{Op: "type string", Err: dlpack.ErrDataType,
		Detail: "type string \"" + s + "\" does not begin with '<', '=' or '|', the machine's own byte order"}
}

// pointerAt turns a checked address outside the Go heap into a pointer. Going
// through memory says so to vet and checkptr, which know only Go's objects.
func pointerAt(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
