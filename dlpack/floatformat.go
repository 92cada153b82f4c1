package dlpack

import "math"

// FloatFormat is a binary floating-point type of at most 16 bits: the widths of
// its fields, its bias, and how it spells what is no finite number. Sources:
// IEEE 754 for float16, the OCP 8-bit and microscaling specifications and the
// type codes of DLPack 1.3 for the rest. [DataType.FloatFormat] gives it.
type FloatFormat struct {
	exponent, mantissa uint8 // widths in bits
	bias               int
	specials           specials
}

// specials says which bit patterns are no finite numbers.
type specials uint8

const (
	specialsIEEE   specials = iota // all exponent bits set: infinity or NaN
	specialsNaN                    // all bits but the sign set: NaN; no infinity
	specialsFNUZ                   // the pattern of -0 is the only NaN
	specialsFinite                 // none
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

// FloatFormat is the format of a floating-point type narrower than float32, nil
// for other types.
func (d DataType) FloatFormat() *FloatFormat { return formats[d] }

// Bits is the width of an element.
func (f *FloatFormat) Bits() int {
	if f.specials == specialsScale {
		return int(f.exponent)
	}
	return int(1 + f.exponent + f.mantissa)
}

// MantissaBits is the width of the fraction as it is stored.
func (f *FloatFormat) MantissaBits() int { return int(f.mantissa) }

// Largest is the bits of the largest finite number; those of the positive
// numbers run from 0 to there in the order of their values.
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

// Decode is the value of the low bits, exactly; those above the width of the
// format do not count.
func (f *FloatFormat) Decode(bits uint64) float64 {
	mantissa := int(bits & (1<<f.mantissa - 1))
	top := 1<<f.exponent - 1
	exponent := int(bits>>f.mantissa) & top
	if f.specials == specialsScale {
		if exponent == top {
			return math.NaN()
		}
		return math.Ldexp(1, exponent-f.bias)
	}
	negative := bits>>(f.mantissa+f.exponent)&1 != 0
	switch {
	case f.specials == specialsFNUZ && negative && exponent == 0 && mantissa == 0,
		f.specials == specialsNaN && exponent == top && mantissa == 1<<f.mantissa-1,
		f.specials == specialsIEEE && exponent == top && mantissa != 0:
		return math.NaN()
	case f.specials == specialsIEEE && exponent == top && negative:
		return math.Inf(-1)
	case f.specials == specialsIEEE && exponent == top:
		return math.Inf(1)
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
	return value
}

// Encode is the bits of the value nearest to v, ties to even. Beyond the largest
// number: infinity where the format has it, else NaN where it has that, else the
// largest number. NaN becomes the largest number where there is none.
func (f *FloatFormat) Encode(v float64) uint64 {
	if f.specials == specialsScale {
		return f.encodeScale(v)
	}
	if math.IsNaN(v) {
		return f.nan()
	}
	var sign uint64
	if math.Signbit(v) {
		sign, v = 1<<(f.exponent+f.mantissa), -v
	}
	bits := f.encodePositive(v)
	if f.specials == specialsFNUZ && (bits == 0 || bits > f.Largest()) {
		sign = 0 // neither -0 nor a second NaN
	}
	if bits <= f.Largest() {
		return sign | bits
	}
	switch f.specials {
	case specialsIEEE:
		return sign | (1<<f.exponent-1)<<f.mantissa
	case specialsFinite:
		return sign | f.Largest()
	}
	return sign | f.nan()
}

func (f *FloatFormat) nan() uint64 {
	switch f.specials {
	case specialsIEEE:
		return (1<<f.exponent-1)<<f.mantissa | 1<<(f.mantissa-1)
	case specialsNaN:
		return 1<<(f.exponent+f.mantissa) - 1
	case specialsFNUZ:
		return 1 << (f.exponent + f.mantissa)
	}
	return f.Largest()
}

// encodePositive rounds v >= 0; the result is above Largest on overflow.
func (f *FloatFormat) encodePositive(v float64) uint64 {
	if v == 0 {
		return 0
	}
	if math.IsInf(v, 1) {
		return f.Largest() + 1
	}
	_, e := math.Frexp(v) // v is a fraction from 0.5 to 1, times 2^e
	e = max(e-1, 1-f.bias)
	units := math.RoundToEven(math.Ldexp(v, int(f.mantissa)-e))
	// units has one bit more than the mantissa, or fewer for a subnormal; a carry
	// out of rounding moves to the next exponent by itself.
	return min(uint64(e+f.bias-1)<<f.mantissa+uint64(units), f.Largest()+1)
}

// encodeScale takes the nearest power of two, the larger of two equally near;
// what is no positive number has only NaN, but 0 is the smallest power.
func (f *FloatFormat) encodeScale(v float64) uint64 {
	nan := f.Largest() + 1
	if math.IsNaN(v) || v < 0 || math.IsInf(v, 0) {
		return nan
	}
	if v == 0 {
		return 0
	}
	fraction, e := math.Frexp(v)
	e--
	if fraction >= 0.75 {
		e++
	}
	return min(uint64(max(e+f.bias, 0)), nan)
}
