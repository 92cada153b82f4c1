package usmarray

import (
	"math"
	"math/big"
	"strconv"

	"github.com/usmbridge/usmbridge/dlpack"
)

// shortestNarrow returns the fewest digits that identify v among the values of the type, closest to v. v
// is a finite value of the type.
func shortestNarrow(m *dlpack.FloatFormat, v float64) decimal {
	a := math.Abs(v)
	if a == 0 {
		return parseDecimal(v, 0, 64)
	}
	raw := m.Encode(a)
	var below float64
	if raw > 0 {
		below = m.Decode(raw - 1)
	}
	above := a + (a - below)
	if raw < m.Largest() {
		above = m.Decode(raw + 1)
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

// nearestWithin rounds a to frac digits after the first and reports whether the result lies between lo and
// hi. Just above a power of two the interval is wider upwards, so the next larger number is tried too.
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

// narrowKind returns the printing rules of a narrow type. NumPy's cutoff for exponents is 10 to the number
// of digits of the type; types with fewer than three use float16's.
func narrowKind(m *dlpack.FloatFormat) floatKind {
	digits := max(int(float64(m.MantissaBits())*math.Log10(2)), 3)
	cut := math.Pow10(digits)
	round := func(v float64) float64 { return v }
	if m == Float16.FloatFormat() {
		// NumPy compares in the array's own type, which matters for float16. The
		// narrower types, which NumPy lacks, would overflow.
		round = func(v float64) float64 { return m.Decode(m.Encode(v)) }
	}
	return floatKind{cut, cut, func(v float64) decimal { return shortestNarrow(m, v) }, round}
}
