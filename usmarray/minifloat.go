package usmarray

import (
	"math"
	"math/big"
	"strconv"
)

// miniFloat describes a binary floating-point type of at most 16 bits: its
// fields, its bias, and how it spells what is not a number. Sources: IEEE 754
// for float16, the OCP 8-bit and microscaling specifications and the type codes
// of DLPack 1.3 for the rest.
type miniFloat struct {
	exp, mant uint
	bias      int
	special   miniSpecial
}

type miniSpecial uint8

const (
	miniIEEE   miniSpecial = iota // largest exponent: infinity, else NaN
	miniFN                        // no infinity; all ones is NaN
	miniFNUZ                      // no infinity, no -0; the place of -0 is NaN
	miniFinite                    // numbers only
	miniScale                     // an unsigned power of two; all ones is NaN
)

func (m *miniFloat) bits() uint { return 1 + m.exp + m.mant }

// decode gives the value of a bit pattern; exact.
func (m *miniFloat) decode(raw uint16) float64 {
	if m.special == miniScale {
		if raw&0xff == 0xff {
			return math.NaN()
		}
		return math.Ldexp(1, int(raw&0xff)-m.bias)
	}
	signBit := uint16(1) << (m.exp + m.mant)
	mag := raw & (signBit - 1)
	if m.special == miniFNUZ && raw&(signBit|(signBit-1)) == signBit {
		return math.NaN()
	}
	v := m.magnitude(mag)
	if raw&signBit != 0 {
		return math.Copysign(v, -1)
	}
	return v
}

// magnitude decodes a pattern without its sign.
func (m *miniFloat) magnitude(mag uint16) float64 {
	e := int(mag >> m.mant)
	frac := mag & (1<<m.mant - 1)
	top := 1<<m.exp - 1
	switch {
	case m.special == miniIEEE && e == top && frac == 0:
		return math.Inf(1)
	case m.special == miniIEEE && e == top,
		m.special == miniFN && e == top && frac == 1<<m.mant-1:
		return math.NaN()
	case e == 0:
		return math.Ldexp(float64(frac), 1-m.bias-int(m.mant))
	}
	return math.Ldexp(float64(uint16(1)<<m.mant|frac), e-m.bias-int(m.mant))
}

// largest is the pattern of the largest finite magnitude.
func (m *miniFloat) largest() uint16 {
	all := uint16(1)<<(m.exp+m.mant) - 1
	switch m.special {
	case miniIEEE:
		return all - 1<<m.mant
	case miniFN:
		return all - 1
	case miniScale:
		return 0xfe
	}
	return all
}

// encode gives the pattern nearest to v, ties to even. Beyond the largest
// number: infinity where the type has it, else NaN where the type has that,
// else the largest number.
func (m *miniFloat) encode(v float64) uint16 {
	signBit := uint16(1) << (m.exp + m.mant)
	if m.special == miniScale {
		return m.encodeScale(v)
	}
	if math.IsNaN(v) {
		return m.nan()
	}
	var sign uint16
	if math.Signbit(v) {
		sign, v = signBit, -v
	}
	mag := m.encodeMagnitude(v)
	if mag > m.largest() {
		switch m.special {
		case miniIEEE:
			return sign | (1<<m.exp-1)<<m.mant
		case miniFinite:
			return sign | m.largest()
		}
		return sign&^m.signMask() | m.nan()
	}
	if m.special == miniFNUZ && mag == 0 {
		return 0
	}
	return sign | mag
}

// signMask is the sign bit where NaN has only one spelling.
func (m *miniFloat) signMask() uint16 {
	if m.special == miniFNUZ {
		return 1 << (m.exp + m.mant)
	}
	return 0
}

func (m *miniFloat) nan() uint16 {
	switch m.special {
	case miniIEEE:
		return (1<<m.exp-1)<<m.mant | 1<<(m.mant-1)
	case miniFN:
		return 1<<(m.exp+m.mant) - 1
	case miniFNUZ:
		return 1 << (m.exp + m.mant)
	}
	return m.largest() // a type without NaN saturates
}

// encodeMagnitude rounds v >= 0; the result is above largest() on overflow.
func (m *miniFloat) encodeMagnitude(v float64) uint16 {
	if v == 0 {
		return 0
	}
	if math.IsInf(v, 1) {
		return m.largest() + 1
	}
	_, e := math.Frexp(v) // v = f * 2^e, f in [0.5, 1)
	e = max(e-1, 1-m.bias)
	units := math.RoundToEven(math.Ldexp(v, int(m.mant)-e))
	// units has mant+1 bits, or fewer for a subnormal; a carry out of rounding
	// moves to the next exponent by itself.
	p := int64(e+m.bias-1)<<m.mant + int64(units)
	return uint16(min(p, int64(m.largest())+1))
}

func (m *miniFloat) encodeScale(v float64) uint16 {
	if math.IsNaN(v) || v < 0 || math.IsInf(v, 0) {
		return 0xff
	}
	if v == 0 {
		return 0
	}
	f, e := math.Frexp(v)
	e--
	if f >= 0.75 { // nearest power of two, ties away from the smaller
		e++
	}
	if e > 0xfe-m.bias {
		return 0xff
	}
	return uint16(max(e+m.bias, 0))
}

// shortest gives the fewest digits that identify v among the values of the
// type, closest to v; v must be finite and of the type.
func (m *miniFloat) shortest(v float64) decimal {
	a := math.Abs(v)
	if a == 0 {
		return parseDecimal(v, 0, 64)
	}
	raw := m.encode(a)
	var below float64
	if raw > 0 {
		below = m.decode(raw - 1)
	}
	above := a + (a - below)
	if raw < m.largest() {
		above = m.decode(raw + 1)
	}
	lo, hi := a-(a-below)/2, a+(above-a)/2
	even := raw&1 == 0
	for frac := 0; frac < 40; frac++ {
		if d, ok := nearestWithin(a, frac, lo, hi, even); ok {
			d.neg = math.Signbit(v)
			return d
		}
	}
	return parseDecimal(v, -1, 64)
}

// nearestWithin rounds a to frac digits after the first and reports whether the
// result lies between lo and hi. Just above a power of two the interval is
// wider upwards, so the next number up is tried too.
func nearestWithin(a float64, frac int, lo, hi float64, inclusive bool) (decimal, bool) {
	d := parseDecimal(a, frac, 64)
	if within(d, lo, hi, inclusive) {
		return d, true
	}
	up := decimal{digits: append([]byte(nil), d.digits...), exp: d.exp}
	for i := len(up.digits) - 1; i >= 0; i-- {
		if up.digits[i]++; up.digits[i] <= '9' {
			return up, within(up, lo, hi, inclusive)
		}
		up.digits[i] = '0'
	}
	return d, false
}

func within(d decimal, lo, hi float64, inclusive bool) bool {
	x, _ := new(big.Rat).SetString(string(d.digits) + "e" + strconv.Itoa(d.exp-len(d.digits)+1))
	l, h := x.Cmp(new(big.Rat).SetFloat64(lo)), x.Cmp(new(big.Rat).SetFloat64(hi))
	if inclusive {
		return l >= 0 && h <= 0
	}
	return l > 0 && h < 0
}

// printKind makes the printing rules of the type. NumPy's cutoff for exponents
// is 10 to the number of digits the type holds; types with fewer than three
// use float16's.
func (m *miniFloat) printKind() floatKind {
	digits := max(int(float64(m.mant)*math.Log10(2)), 3)
	cut := math.Pow10(digits)
	round := func(v float64) float64 { return v }
	if m.exp == 5 && m.mant == 10 {
		// NumPy compares in the array's own type, which shows in float16; the
		// narrower types, which it lacks, would overflow.
		round = func(v float64) float64 { return m.decode(m.encode(v)) }
	}
	return floatKind{cut, cut, m.shortest, round}
}
