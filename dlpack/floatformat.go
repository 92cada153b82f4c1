package dlpack

import "math"

// FloatFormat describes a binary floating-point type of at most 16 bits: the widths of its fields, its
// bias, and its encodings of infinity and NaN. It is immutable and may be used by several goroutines.
// [DataType.FloatFormat] returns it. Sources: IEEE 754 for float16; the OCP 8-bit and microscaling
// specifications and the type codes of DLPack 1.3 for all other formats.
type FloatFormat struct {
	exponent, mantissa uint8 // widths in bits
	bias               int
	specials           specials
}

// specials defines which bit patterns are not finite numbers.
type specials uint8

const (
	specialsIEEE   specials = iota // all exponent bits set: infinity or NaN
	specialsNaN                    // all bits but the sign set: NaN; no infinity
	specialsFNUZ                   // the pattern of -0 is the only NaN
	specialsFinite                 // neither infinity nor NaN
	specialsScale                  // an unsigned power of two; all bits set: NaN
)

var (
	formatFloat16     = FloatFormat{5, 10, 15, specialsIEEE}
	formatBFloat16    = FloatFormat{8, 7, 127, specialsIEEE}
	formatE3M4        = FloatFormat{3, 4, 3, specialsIEEE}
	formatE4M3        = FloatFormat{4, 3, 7, specialsIEEE}
	formatE4M3B11FNUZ = FloatFormat{4, 3, 11, specialsFNUZ}
	formatE4M3FN      = FloatFormat{4, 3, 7, specialsNaN}
	formatE4M3FNUZ    = FloatFormat{4, 3, 8, specialsFNUZ}
	formatE5M2        = FloatFormat{5, 2, 15, specialsIEEE}
	formatE5M2FNUZ    = FloatFormat{5, 2, 16, specialsFNUZ}
	formatE8M0FNU     = FloatFormat{8, 0, 127, specialsScale}
	formatE2M3FN      = FloatFormat{2, 3, 1, specialsFinite}
	formatE3M2FN      = FloatFormat{3, 2, 3, specialsFinite}
	formatE2M1FN      = FloatFormat{2, 1, 1, specialsFinite}
)

var formats = map[DataType]*FloatFormat{
	Float16: &formatFloat16, BFloat16: &formatBFloat16,
	Float8E3M4: &formatE3M4, Float8E4M3: &formatE4M3, Float8E4M3B11FNUZ: &formatE4M3B11FNUZ,
	Float8E4M3FN: &formatE4M3FN, Float8E4M3FNUZ: &formatE4M3FNUZ, Float8E5M2: &formatE5M2,
	Float8E5M2FNUZ: &formatE5M2FNUZ, Float8E8M0FNU: &formatE8M0FNU,
	Float6E2M3FN: &formatE2M3FN, Float6E3M2FN: &formatE3M2FN, Float4E2M1FN: &formatE2M1FN,
}

// FloatFormat returns the format of a floating-point type narrower than float32, nil for other types.
func (d DataType) FloatFormat() *FloatFormat { return formats[d] }

// MantissaBits returns the number of stored bits of the fraction.
func (f *FloatFormat) MantissaBits() int { return int(f.mantissa) }

// Largest returns the bits of the largest finite number. The bits of the positive numbers run from 0 to
// Largest in the order of their values.
func (f *FloatFormat) Largest() uint64 {
	all := uint64(1)<<(f.exponent+f.mantissa) - 1
	switch f.specials {
	case specialsIEEE:
		return all - 1<<f.mantissa
	case specialsNaN, specialsScale:
		return all - 1
	}
	return all
}

// The fields of a float64.
const (
	wideMantissa = 52
	wideBias     = 1023
)

// power returns 2 to the n, for n in the range of normal float64 numbers.
func power(n int) float64 { return math.Float64frombits(uint64(n+wideBias) << wideMantissa) }

// Decode returns the exact value of the low bits; bits above the width of the format are ignored.
func (f *FloatFormat) Decode(bits uint64) float64 {
	mantissa := bits & (1<<f.mantissa - 1)
	top := 1<<f.exponent - 1
	exponent := int(bits>>f.mantissa) & top
	if f.specials == specialsScale {
		if exponent == top {
			return math.NaN()
		}
		return power(exponent - f.bias)
	}
	sign := bits >> (f.mantissa + f.exponent) & 1
	switch {
	case f.specials == specialsFNUZ && sign != 0 && exponent == 0 && mantissa == 0,
		f.specials == specialsNaN && exponent == top && mantissa == 1<<f.mantissa-1,
		f.specials == specialsIEEE && exponent == top && mantissa != 0:
		return math.Float64frombits(math.Float64bits(math.NaN()) | sign<<63)
	case f.specials == specialsIEEE && exponent == top:
		return math.Inf(1 - 2*int(sign))
	case exponent == 0: // subnormal
		return float64(mantissa) * power(1-f.bias-int(f.mantissa)) * (1 - 2*float64(sign))
	}
	return math.Float64frombits(sign<<63 | uint64(exponent-f.bias+wideBias)<<wideMantissa | mantissa<<(wideMantissa-f.mantissa))
}

// Encode returns the bits of the value nearest to v, rounded once, ties to even. Values without an
// encoding become what ml_dtypes makes of them. Above the largest number: infinity if the format has it,
// else NaN if the format has that, else the largest number. NaN keeps its sign if the format has two NaNs.
// In formats without NaN it becomes a zero of the opposite sign.
func (f *FloatFormat) Encode(v float64) uint64 {
	if f.specials == specialsScale {
		return f.encodeScale(v)
	}
	wide := math.Float64bits(v)
	sign := wide >> 63 << (f.exponent + f.mantissa)
	if v != v {
		return f.nan(sign)
	}
	bits := f.encodePositive(wide &^ (1 << 63))
	switch largest := f.Largest(); {
	case bits > largest:
		return f.overflow(sign)
	case bits == 0 && f.specials == specialsFNUZ: // there is no -0
		return 0
	}
	return sign | bits
}

func (f *FloatFormat) overflow(sign uint64) uint64 {
	switch f.specials {
	case specialsIEEE:
		return sign | (1<<f.exponent-1)<<f.mantissa
	case specialsFinite:
		return sign | f.Largest()
	}
	return f.nan(sign)
}

func (f *FloatFormat) nan(sign uint64) uint64 {
	switch f.specials {
	case specialsIEEE:
		return sign | (1<<f.exponent-1)<<f.mantissa | 1<<(f.mantissa-1)
	case specialsNaN:
		return sign | (1<<(f.exponent+f.mantissa) - 1)
	case specialsFNUZ:
		return 1 << (f.exponent + f.mantissa)
	}
	return sign ^ 1<<(f.exponent+f.mantissa)
}

// encodePositive rounds the number whose float64 bits are wide, including infinity. The result is above
// Largest on overflow.
func (f *FloatFormat) encodePositive(wide uint64) uint64 {
	e := int(wide>>wideMantissa) - wideBias
	significand := wide&(1<<wideMantissa-1) | 1<<wideMantissa
	drop := uint(wideMantissa - f.mantissa)
	if least := 1 - f.bias; e < least { // subnormal: fewer bits are left
		drop += uint(least - e)
		if drop > wideMantissa+1 {
			return 0 // less than half of the smallest number
		}
		e = least
	}
	units := significand >> drop
	rest, half := significand&(1<<drop-1), uint64(1)<<(drop-1)
	if rest > half || rest == half && units&1 != 0 {
		units++
	}
	// units has one bit more than the mantissa, or fewer for a subnormal; a carry
	// out of rounding moves to the next exponent by itself.
	return uint64(e+f.bias-1)<<f.mantissa + units
}

// encodeScale returns the nearest power of two, the larger of two equally near. All other values than
// positive finite numbers become NaN.
func (f *FloatFormat) encodeScale(v float64) uint64 {
	nan := f.Largest() + 1
	if !(v > 0) || math.IsInf(v, 0) {
		return nan
	}
	fraction, e := math.Frexp(v)
	e--
	if fraction >= 0.75 {
		e++
	}
	return min(uint64(max(e+f.bias, 0)), nan)
}
