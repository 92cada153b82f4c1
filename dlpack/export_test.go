package dlpack

import (
	"reflect"
	"unsafe"
)

// TypeName is a row of the table of names.
type TypeName = struct {
	DType         DataType
	Name, TypeStr string
}

// TypeNames returns the table of names.
func TypeNames() (all []TypeName) {
	for _, n := range typeNames {
		all = append(all, TypeName{n.dtype, n.name, n.typestr})
	}
	return all
}

// Known reports whether DLPack 1.3 defines the type.
func (t DeviceType) Known() bool { return t.known() }

// GoType returns the Go type of the elements, or nil.
func (d DataType) GoType() reflect.Type { return goTypes[d] }

// Bits returns the width of an element.
func (f *FloatFormat) Bits() int {
	if f.specials == specialsScale {
		return int(f.exponent)
	}
	return int(1 + f.exponent + f.mantissa)
}

// Versioned reports whether the struct is a versioned one.
func (t Tensor) Versioned() bool { return t.get().versioned != 0 }

// HasStrides reports whether the producer wrote strides.
func (t Tensor) HasStrides() bool { return t.get().hasStrides != 0 }

// Count returns the number of elements.
func (t Tensor) Count() int64 { return t.get().span.Count }

// RawData returns the data field and the byte offset as the producer wrote them.
func (t Tensor) RawData() (data unsafe.Pointer, byteOffset uint64) {
	ct := t.get().t
	return ct.data, ct.byteOffset
}

// CContiguous and FContiguous report the contiguity that Slice and Bytes use.
func (s Span) CContiguous() bool { return s.isC() }

func (s Span) FContiguous() bool { return s.isF() }
