package cute

import "github.com/usmbridge/usmbridge/dlpack"

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

// elements lists the name of each element type and the DLPack type that it corresponds to: the type code
// of dlpack.h and the width in bits.
var elements = [elementTypes]struct {
	name       string
	code, bits uint8
}{
	Boolean:           {"Boolean", 6, 8},
	Int4:              {"Int4", 0, 4},
	Int8:              {"Int8", 0, 8},
	Int16:             {"Int16", 0, 16},
	Int32:             {"Int32", 0, 32},
	Int64:             {"Int64", 0, 64},
	Int128:            {"Int128", 0, 128},
	Uint8:             {"Uint8", 1, 8},
	Uint16:            {"Uint16", 1, 16},
	Uint32:            {"Uint32", 1, 32},
	Uint64:            {"Uint64", 1, 64},
	Uint128:           {"Uint128", 1, 128},
	Float16:           {"Float16", 2, 16},
	Float32:           {"Float32", 2, 32},
	Float64:           {"Float64", 2, 64},
	BFloat16:          {"BFloat16", 4, 16},
	Float8E4M3:        {"Float8E4M3", 8, 8},
	Float8E4M3B11FNUZ: {"Float8E4M3B11FNUZ", 9, 8},
	Float8E4M3FN:      {"Float8E4M3FN", 10, 8},
	Float8E5M2:        {"Float8E5M2", 12, 8},
	Float8E8M0FNU:     {"Float8E8M0FNU", 14, 8},
	Float6E2M3FN:      {"Float6E2M3FN", 15, 6},
	Float6E3M2FN:      {"Float6E3M2FN", 16, 6},
	Float4E2M1FN:      {"Float4E2M1FN", 17, 4},
}

// byCode finds an element type by DLPack code and width. The index is code*widths + widthIndex(bits).
var byCode = func() (table [18 * widths]ElementType) {
	for e := ElementType(1); e < elementTypes; e++ {
		table[int(elements[e].code)*widths+widthIndex(elements[e].bits)] = e
	}
	return table
}()

const widths = 7

// widthIndex returns the index of a width among 4, 6, 8, 16, 32, 64 and 128 bits, -1 for other widths.
func widthIndex(bits uint8) int {
	switch bits {
	case 4:
		return 0
	case 6:
		return 1
	case 8:
		return 2
	case 16:
		return 3
	case 32:
		return 4
	case 64:
		return 5
	case 128:
		return 6
	}
	return -1
}

// elementTypeOf returns CuTe's element type of a DLPack data type. It fails with ErrElementType for types
// without a CuTe name: complex numbers, opaque handles, vectors (lanes other than 1) and some 8-bit
// floats.
func elementTypeOf(dt dlpack.DataType) (ElementType, error) {
	if dt.Lanes == 1 && int(dt.Code)*widths < len(byCode) {
		if w := widthIndex(uint8(dt.Bits)); w >= 0 {
			if e := byCode[int(dt.Code)*widths+w]; e != 0 {
				return e, nil
			}
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
	return int(elements[e].bits)
}

// naturalAlign returns the alignment in bytes of a tensor without an explicit one.
func (e ElementType) naturalAlign() int64 {
	if n := int64(e.bits() / 8); n > 1 {
		return n
	}
	return 1
}
