package dlpack

import (
	"math"

	"github.com/x448/float16"
)

// F16 is a float16 value (IEEE 754 binary16) with its conversions: Float32,
// Bits, and float16.Fromfloat32, which rounds to nearest even. To the other formats
// rounds [FloatFormat.Encode].
type F16 = float16.Float16

// F16From rounds to the nearest float16, ties to even.
func F16From(f float32) F16 { return float16.Fromfloat32(f) }

// BF16 is a bfloat16 value: the upper half of a float32.
type BF16 uint16

// BF16From rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func BF16From(f float32) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return BF16(bits>>16 | 0x40) // a payload in the lower half alone would round to infinity
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 is the value, exactly.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// The values of the narrow formats, one type a code, so that a slice says what
// it holds.
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
