package cute

import (
	"math/bits"

	"github.com/usmbridge/usmbridge/dlpack"
)

// ElementType is the type of a tensor's elements in CuTe, a comparable value. The zero value is no type.
type ElementType uint8

// The element types of CuTe DSL that DLPack can carry.
const (
	Boolean ElementType = iota + 1
	Int4
	Int8
	Int16
	Int32
	Int64
	Int128
	Uint8
	Uint16
	Uint32
	Uint64
	Uint128
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E4M3B11FNUZ
	Float8E4M3FN
	Float8E5M2
	Float8E8M0FNU
	Float6E2M3FN
	Float6E3M2FN
	Float4E2M1FN
	elementTypes // the number of types, plus one
)

// elements lists the name of each element type and the DLPack type that it corresponds to.
var elements = [elementTypes]struct {
	name string
	data dlpack.DataType
}{
	Boolean:           {"Boolean", dlpack.Bool},
	Int4:              {"Int4", dlpack.Int4},
	Int8:              {"Int8", dlpack.Int8},
	Int16:             {"Int16", dlpack.Int16},
	Int32:             {"Int32", dlpack.Int32},
	Int64:             {"Int64", dlpack.Int64},
	Int128:            {"Int128", dlpack.DataType{Code: dlpack.CodeInt, Bits: 128, Lanes: 1}},
	Uint8:             {"Uint8", dlpack.Uint8},
	Uint16:            {"Uint16", dlpack.Uint16},
	Uint32:            {"Uint32", dlpack.Uint32},
	Uint64:            {"Uint64", dlpack.Uint64},
	Uint128:           {"Uint128", dlpack.DataType{Code: dlpack.CodeUInt, Bits: 128, Lanes: 1}},
	Float16:           {"Float16", dlpack.Float16},
	Float32:           {"Float32", dlpack.Float32},
	Float64:           {"Float64", dlpack.Float64},
	BFloat16:          {"BFloat16", dlpack.BFloat16},
	Float8E4M3:        {"Float8E4M3", dlpack.Float8E4M3},
	Float8E4M3B11FNUZ: {"Float8E4M3B11FNUZ", dlpack.Float8E4M3B11FNUZ},
	Float8E4M3FN:      {"Float8E4M3FN", dlpack.Float8E4M3FN},
	Float8E5M2:        {"Float8E5M2", dlpack.Float8E5M2},
	Float8E8M0FNU:     {"Float8E8M0FNU", dlpack.Float8E8M0FNU},
	Float6E2M3FN:      {"Float6E2M3FN", dlpack.Float6E2M3FN},
	Float6E3M2FN:      {"Float6E3M2FN", dlpack.Float6E3M2FN},
	Float4E2M1FN:      {"Float4E2M1FN", dlpack.Float4E2M1FN},
}

// byCode finds an element type by its type code and by the number of binary digits of its width, which no
// two types of one code share.
var byCode = func() (table [dlpack.CodeFloat4E2M1FN + 1][9]ElementType) {
	for e := ElementType(1); e < elementTypes; e++ {
		dt := elements[e].data
		table[dt.Code][bits.Len8(dt.Bits)] = e
	}
	return table
}()

// elementTypeOf returns CuTe's element type of a DLPack data type. It fails with ErrElementType for types
// without a CuTe name: complex numbers, opaque handles, vectors (lanes other than 1) and some 8-bit
// floats.
func elementTypeOf(dt dlpack.DataType) (ElementType, error) {
	if int(dt.Code) < len(byCode) {
		if e := byCode[dt.Code][bits.Len8(dt.Bits)]; e != 0 && elements[e].data == dt {
			return e, nil
		}
	}
	return 0, fail(ErrElementType, "CuTe has no element type for %s (DLPack code %d, %d bits, %d lanes): view the memory as a type that CuTe names, such as Float32 or Uint8",
		dt.String(), dt.Code, dt.Bits, dt.Lanes)
}

// String returns CuTe's name: "Float32", "BFloat16", "Float8E4M3FN", "Boolean".
func (e ElementType) String() string {
	if e == 0 || e >= elementTypes {
		return "no element type"
	}
	return elements[e].name
}

// bits returns the width of one element in bits.
func (e ElementType) bits() int {
	if e >= elementTypes {
		return 0
	}
	return elements[e].data.BitSize()
}

// naturalAlign returns the alignment in bytes of a tensor without an explicit one.
func (e ElementType) naturalAlign() int64 {
	if n := int64(e.bits() / 8); n > 1 {
		return n
	}
	return 1
}
