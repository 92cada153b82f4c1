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
	err := d.check(&s)
	return s, err
}

// check is Check into a span that the caller has.
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

// elements walks the dimensions once, with exact arithmetic: how many elements there
// are, how they lie, and [lo, hi), those used, counted from Data. ok is false for
// what cannot be counted, be it the other extents of an array without elements.
func (d *USMInterface) elements(s *USMSpan) (lo, hi int, ok bool) {
	lo, hi = d.Offset, d.Offset
	count, empty, dense, fits, reachable := 1, false, true, true, true
	for i := len(d.Shape) - 1; i >= 0; i-- {
		n, stride := d.Shape[i], count
		if n <= 0 {
			empty, fits = true, fits && n == 0
			continue
		}
		if d.Strides != nil {
			stride = d.Strides[i]
			dense = dense && (stride == count || n == 1)
		}
		reach, good := mulInt(n-1, stride)
		end := &hi
		if reach < 0 {
			end = &lo
		}
		var sum, product bool
		*end, sum = addInt(*end, reach)
		count, product = mulInt(count, n)
		fits, reachable = fits && product, reachable && good && sum
	}
	if empty {
		s.Elements, s.IsC = 0, true
		return d.Offset, d.Offset, fits
	}
	_, ok = mulInt(count, s.DataType.Size())
	hi, last := addInt(hi, 1)
	s.Elements, s.IsC = count, dense
	return lo, hi, fits && reachable && ok && last
}

// tooLarge says what elements found impossible.
func (d *USMInterface) tooLarge(op string, item int) error {
	if err := checkShape(d.Shape); err != nil {
		return keyErr(op, "shape", "%w", err)
	}
	return keyErr(op, "shape", "%s of %d-byte elements with strides %s at offset %d spans more memory than can be addressed",
		tuple(d.Shape), item, tuple(d.Strides), d.Offset)
}

// addresses turns elements into addresses.
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
