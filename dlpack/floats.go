package dlpack

import (
	"math"

	"github.com/x448/float16"
)

// F16 is a float16 value (IEEE 754 binary16) with its conversions: Float32,
// Bits, and float16.Fromfloat32, which rounds to nearest even.
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
func (f F8E3M4) Float32() float32 { return formatE3M4.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F8E4M3) Float32() float32 { return formatE4M3.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F8E4M3B11FNUZ) Float32() float32 { return formatE4M3B11FNUZ.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F8E4M3FN) Float32() float32 { return formatE4M3FN.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F8E4M3FNUZ) Float32() float32 { return formatE4M3FNUZ.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F8E5M2) Float32() float32 { return formatE5M2.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F8E5M2FNUZ) Float32() float32 { return formatE5M2FNUZ.decode(uint8(f)) }

// Float32 is the value, exactly: a power of two from 2^-127 to 2^127, or NaN.
func (f F8E8M0FNU) Float32() float32 { return decodeE8M0(uint8(f)) }

// Float32 is the value, exactly.
func (f F6E2M3FN) Float32() float32 { return formatE2M3FN.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F6E3M2FN) Float32() float32 { return formatE3M2FN.decode(uint8(f)) }

// Float32 is the value, exactly.
func (f F4E2M1FN) Float32() float32 { return formatE2M1FN.decode(uint8(f)) }

// specials says which bit patterns are no finite numbers.
type specials uint8

const (
	specialsIEEE   specials = iota // all exponent bits set: infinity or NaN
	specialsNaN                    // all bits but the sign set: NaN; no infinity
	specialsFNUZ                   // the pattern of -0 is the only NaN
	specialsFinite                 // none
)

// format is a narrow binary floating-point format.
type format struct {
	exponent, mantissa uint8 // widths in bits
	bias               int
	specials           specials
}

var (
	formatE3M4        = format{3, 4, 3, specialsIEEE}
	formatE4M3        = format{4, 3, 7, specialsIEEE}
	formatE4M3B11FNUZ = format{4, 3, 11, specialsFNUZ}
	formatE4M3FN      = format{4, 3, 7, specialsNaN}
	formatE4M3FNUZ    = format{4, 3, 8, specialsFNUZ}
	formatE5M2        = format{5, 2, 15, specialsIEEE}
	formatE5M2FNUZ    = format{5, 2, 16, specialsFNUZ}
	formatE2M3FN      = format{2, 3, 1, specialsFinite}
	formatE3M2FN      = format{3, 2, 3, specialsFinite}
	formatE2M1FN      = format{2, 1, 1, specialsFinite}
)

var formats = map[Code]*format{
	CodeFloat8E3M4: &formatE3M4, CodeFloat8E4M3: &formatE4M3, CodeFloat8E4M3B11FNUZ: &formatE4M3B11FNUZ,
	CodeFloat8E4M3FN: &formatE4M3FN, CodeFloat8E4M3FNUZ: &formatE4M3FNUZ, CodeFloat8E5M2: &formatE5M2,
	CodeFloat8E5M2FNUZ: &formatE5M2FNUZ, CodeFloat6E2M3FN: &formatE2M3FN, CodeFloat6E3M2FN: &formatE3M2FN,
	CodeFloat4E2M1FN: &formatE2M1FN,
}

// decode is the value of the low bits; those above the format's width do not
// count.
func (f *format) decode(bits uint8) float32 {
	mantissa := int(bits & (1<<f.mantissa - 1))
	top := 1<<f.exponent - 1
	exponent := int(bits>>f.mantissa) & top
	negative := bits>>(f.mantissa+f.exponent)&1 != 0
	switch {
	case f.specials == specialsFNUZ && negative && exponent == 0 && mantissa == 0,
		f.specials == specialsNaN && exponent == top && mantissa == 1<<f.mantissa-1,
		f.specials == specialsIEEE && exponent == top && mantissa != 0:
		return float32(math.NaN())
	case f.specials == specialsIEEE && exponent == top:
		if negative {
			return float32(math.Inf(-1))
		}
		return float32(math.Inf(1))
	}
	if exponent == 0 {
		exponent = 1 // subnormal
	} else {
		mantissa |= 1 << f.mantissa
	}
	value := math.Ldexp(float64(mantissa), exponent-f.bias-int(f.mantissa))
	if negative {
		value = math.Copysign(value, -1)
	}
	return float32(value)
}

func decodeE8M0(bits uint8) float32 {
	if bits == 0xff {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(bits)-127))
}

// DecodeFloat is the value of one element of a real floating-point type, given
// its bits in the low end of a word; ok is false for other types. It is exact.
func (d DataType) DecodeFloat(bits uint64) (value float64, ok bool) {
	if d.Lanes != 1 || !d.Valid() {
		return 0, false
	}
	switch {
	case d == Float64:
		return math.Float64frombits(bits), true
	case d == Float32:
		return float64(math.Float32frombits(uint32(bits))), true
	case d == Float16:
		return float64(float16.Frombits(uint16(bits)).Float32()), true
	case d == BFloat16:
		return float64(BF16(bits).Float32()), true
	case d == Float8E8M0FNU:
		return float64(decodeE8M0(uint8(bits))), true
	}
	if f := formats[d.Code]; f != nil {
		return float64(f.decode(uint8(bits))), true
	}
	return 0, false
}
