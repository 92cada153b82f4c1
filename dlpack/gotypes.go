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

// goType returns the Go type of the elements, or nil if there is none (complex32, sub-byte integers,
// vector types). The Go type of a sub-byte float is a byte wide: it fits padded elements, and packed ones
// after [UnpackBits].
func (d DataType) goType() reflect.Type { return goTypes[d] }

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

// The values of the narrow formats, one Go type for each type code, so that the type of a slice identifies
// its elements. They are plain values.
type (
	// F8E3M4 is a value of float8_e3m4.
	F8E3M4 uint8
	// F8E4M3 is a value of float8_e4m3.
	F8E4M3 uint8
	// F8E4M3B11FNUZ is a value of float8_e4m3b11fnuz.
	F8E4M3B11FNUZ uint8
	// F8E4M3FN is a value of float8_e4m3fn.
	F8E4M3FN uint8
	// F8E4M3FNUZ is a value of float8_e4m3fnuz.
	F8E4M3FNUZ uint8
	// F8E5M2 is a value of float8_e5m2.
	F8E5M2 uint8
	// F8E5M2FNUZ is a value of float8_e5m2fnuz.
	F8E5M2FNUZ uint8
	// F8E8M0FNU is a value of float8_e8m0fnu.
	F8E8M0FNU uint8
	// F6E2M3FN is a value of float6_e2m3fn; its low 6 bits count.
	F6E2M3FN uint8
	// F6E3M2FN is a value of float6_e3m2fn; its low 6 bits count.
	F6E3M2FN uint8
	// F4E2M1FN is a value of float4_e2m1fn; its low 4 bits count.
	F4E2M1FN uint8
)

// Float32 is the value, exactly.
func (f F8E3M4) Float32() float32 { return float32(formatE3M4.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F8E4M3) Float32() float32 { return float32(formatE4M3.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F8E4M3B11FNUZ) Float32() float32 { return float32(formatE4M3B11FNUZ.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F8E4M3FN) Float32() float32 { return float32(formatE4M3FN.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F8E4M3FNUZ) Float32() float32 { return float32(formatE4M3FNUZ.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F8E5M2) Float32() float32 { return float32(formatE5M2.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F8E5M2FNUZ) Float32() float32 { return float32(formatE5M2FNUZ.Decode(uint64(f))) }

// Float32 is the value, exactly: a power of two from 2^-127 to 2^127, or NaN.
func (f F8E8M0FNU) Float32() float32 { return float32(formatE8M0FNU.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F6E2M3FN) Float32() float32 { return float32(formatE2M3FN.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F6E3M2FN) Float32() float32 { return float32(formatE3M2FN.Decode(uint64(f))) }

// Float32 is the value, exactly.
func (f F4E2M1FN) Float32() float32 { return float32(formatE2M1FN.Decode(uint64(f))) }
