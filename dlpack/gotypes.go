package dlpack

import (
	"reflect"
	"unsafe"
)

// Element is the Go types that have an element type of their own, exactly these
// (a named type of somebody else's might mean something else). int and uint are
// as wide as the machine has them.
type Element interface {
	bool | int8 | int16 | int32 | int64 | int | uint8 | uint16 | uint32 | uint64 | uint |
		float32 | float64 | complex64 | complex128 |
		F16 | BF16 | F8E3M4 | F8E4M3 | F8E4M3B11FNUZ | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0FNU |
		F6E2M3FN | F6E3M2FN | F4E2M1FN
}

var goTypes = map[DataType]reflect.Type{
	Bool: reflect.TypeFor[bool](), Int8: reflect.TypeFor[int8](), Int16: reflect.TypeFor[int16](),
	Int32: reflect.TypeFor[int32](), Int64: reflect.TypeFor[int64](), Uint8: reflect.TypeFor[uint8](),
	Uint16: reflect.TypeFor[uint16](), Uint32: reflect.TypeFor[uint32](), Uint64: reflect.TypeFor[uint64](),
	Float32: reflect.TypeFor[float32](), Float64: reflect.TypeFor[float64](),
	Complex64: reflect.TypeFor[complex64](), Complex128: reflect.TypeFor[complex128](),
	Float16: reflect.TypeFor[F16](), BFloat16: reflect.TypeFor[BF16](),
	Float8E3M4: reflect.TypeFor[F8E3M4](), Float8E4M3: reflect.TypeFor[F8E4M3](),
	Float8E4M3B11FNUZ: reflect.TypeFor[F8E4M3B11FNUZ](), Float8E4M3FN: reflect.TypeFor[F8E4M3FN](),
	Float8E4M3FNUZ: reflect.TypeFor[F8E4M3FNUZ](), Float8E5M2: reflect.TypeFor[F8E5M2](),
	Float8E5M2FNUZ: reflect.TypeFor[F8E5M2FNUZ](), Float8E8M0FNU: reflect.TypeFor[F8E8M0FNU](),
	Float6E2M3FN: reflect.TypeFor[F6E2M3FN](), Float6E3M2FN: reflect.TypeFor[F6E3M2FN](),
	Float4E2M1FN: reflect.TypeFor[F4E2M1FN](),
}

var dataTypes = map[reflect.Type]DataType{
	reflect.TypeFor[int]():  {CodeInt, uint8(8 * unsafe.Sizeof(int(0))), 1},
	reflect.TypeFor[uint](): {CodeUInt, uint8(8 * unsafe.Sizeof(uint(0))), 1},
}

func init() {
	for d, t := range goTypes {
		dataTypes[t] = d
	}
}

// goType returns the Go type of the elements, or nil if there is none (complex32, sub-byte
// integers, vector types). The Go type of a sub-byte float is a byte wide: it fits padded
// elements, and packed ones after [UnpackBits].
func (d DataType) goType() reflect.Type { return goTypes[d] }

// DataTypeOf is the element type of a Go type.
func DataTypeOf[T Element]() DataType { return dataTypes[reflect.TypeFor[T]()] }
