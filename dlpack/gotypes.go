package dlpack

import (
	"math"
	"reflect"
	"unsafe"

	"github.com/x448/float16"
)

// Element is the set of Go types that correspond to an element type. Named types with these underlying
// types are excluded, because their meaning may differ. int and uint have the machine's width.
type Element interface {
	bool | int8 | int16 | int32 | int64 | int | uint8 | uint16 | uint32 | uint64 | uint |
		float32 | float64 | complex64 | complex128 | F16 | BF16
}

var goTypes = map[DataType]reflect.Type{
	Bool: reflect.TypeFor[bool](), Int8: reflect.TypeFor[int8](), Int16: reflect.TypeFor[int16](),
	Int32: reflect.TypeFor[int32](), Int64: reflect.TypeFor[int64](), Uint8: reflect.TypeFor[uint8](),
	Uint16: reflect.TypeFor[uint16](), Uint32: reflect.TypeFor[uint32](), Uint64: reflect.TypeFor[uint64](),
	Float32: reflect.TypeFor[float32](), Float64: reflect.TypeFor[float64](),
	Complex64: reflect.TypeFor[complex64](), Complex128: reflect.TypeFor[complex128](),
	Float16: reflect.TypeFor[F16](), BFloat16: reflect.TypeFor[BF16](),
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

// DataTypeOf returns the element type of a Go type.
func DataTypeOf[T Element]() DataType { return dataTypes[reflect.TypeFor[T]()] }

// F16 is a float16 value (IEEE 754 binary16), with the conversions Float32, Bits and float16.Fromfloat32,
// which rounds to nearest even. For the other formats use [FloatFormat.Encode].
type F16 = float16.Float16

// F16From returns the nearest float16, ties to even.
func F16From(f float32) F16 { return float16.Fromfloat32(f) }

// BF16 is a bfloat16 value: the upper half of a float32.
type BF16 uint16

// BF16From returns the nearest bfloat16, ties to even. NaN remains NaN.
func BF16From(f float32) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return BF16(bits>>16 | 0x40) // a payload in the lower half alone would round to infinity
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 returns the exact value.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }
