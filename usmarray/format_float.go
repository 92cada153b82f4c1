package usmarray

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// floatKind holds the printing rules of a binary floating-point type.
type floatKind struct {
	// cutoff: arrays with a magnitude of at least this print with exponents;
	// scalarCutoff is the limit for a single value. NumPy derives both from the
	// number of decimal digits of the type.
	cutoff, scalarCutoff float64
	shortest             func(v float64) decimal
	round                func(v float64) float64
}

var (
	printFloat64 = floatKind{1e8, 1e16, func(v float64) decimal { return shortest(v, 64) }, func(v float64) float64 { return v }}
	printFloat32 = floatKind{1e6, 1e6, func(v float64) decimal { return shortest(v, 32) }, func(v float64) float64 { return float64(float32(v)) }}
)

// decimal is ±d.ddd × 10^exp with at least one digit.
type decimal struct {
	neg    bool
	digits []byte
	exp    int
}

// parseDecimal returns v with frac digits after the first (exactly rounded, ties to even). If frac is -1,
// it returns the fewest digits that identify v among values of bitSize bits.
func parseDecimal(v float64, frac, bitSize int) decimal {
	var buf [64]byte
	s := strconv.AppendFloat(buf[:0], v, 'e', frac, bitSize)
	d := decimal{neg: s[0] == '-'}
	s = bytes.TrimPrefix(s, []byte("-"))
	mant, exp, _ := bytes.Cut(s, []byte("e"))
	d.digits = bytes.ReplaceAll(mant, []byte("."), nil)
	d.exp, _ = strconv.Atoi(string(exp))
	return d
}

// shortest returns the fewest digits that identify v. If two such numbers are equally near, NumPy chooses
// the even one, strconv the upper one.
func shortest(v float64, bitSize int) decimal {
	d := parseDecimal(v, -1, bitSize)
	var a, b [64]byte
	even := strconv.AppendFloat(a[:0], v, 'e', len(d.digits)-1, 64)
	if bytes.Equal(even, strconv.AppendFloat(b[:0], v, 'e', -1, bitSize)) {
		return d
	}
	if w, err := strconv.ParseFloat(string(even), bitSize); err == nil && w == v {
		return parseDecimal(v, len(d.digits)-1, 64)
	}
	return d
}

// scientific returns "-d.ddd" and "+dd": the shortest digits, but at most prec and at least least after
// the point. Added or removed digits are those of the exact value.
func (k *floatKind) scientific(v float64, prec, least int) (mant, exp string) {
	d := k.shortest(v)
	switch frac := len(d.digits) - 1; {
	case prec >= 0 && frac > prec:
		d = parseDecimal(v, prec, 64)
		for len(d.digits)-1 > least && d.digits[len(d.digits)-1] == '0' {
			d.digits = d.digits[:len(d.digits)-1]
		}
	case frac < least:
		d = parseDecimal(v, least, 64)
	}
	sign := ""
	if d.neg {
		sign = "-"
	}
	mant = sign + string(d.digits[0]) + "." + string(d.digits[1:])
	exp = strconv.Itoa(d.exp)
	esign := "+"
	if d.exp < 0 {
		esign, exp = "-", exp[1:]
	}
	if len(exp) < 2 {
		exp = "0" + exp
	}
	return mant, esign + exp
}

// positional returns the parts before and after the point: the shortest digits, but at most prec (if not
// negative) after the point, without trailing zeros.
func (k *floatKind) positional(v float64, prec int) (whole, frac string) {
	d := k.shortest(v)
	if prec >= 0 && len(d.digits)-1-d.exp > prec {
		s := strconv.FormatFloat(v, 'f', prec, 64)
		whole, frac, _ = strings.Cut(s, ".")
		return whole, strings.TrimRight(frac, "0")
	}
	switch n := d.exp + 1; {
	case n <= 0:
		whole, frac = "0", strings.Repeat("0", -n)+string(d.digits)
	case n >= len(d.digits):
		whole = string(d.digits) + strings.Repeat("0", n-len(d.digits))
	default:
		whole, frac = string(d.digits[:n]), string(d.digits[n:])
	}
	if d.neg {
		whole = "-" + whole
	}
	return whole, strings.TrimRight(frac, "0")
}

// scalar formats a single value, as str(numpy scalar) does. point keeps ".0" after whole numbers; complex
// numbers omit it.
func (k *floatKind) scalar(v float64, point bool) string {
	if math.IsNaN(v) {
		return "nan"
	}
	if math.IsInf(v, 1) {
		return "inf"
	}
	if math.IsInf(v, -1) {
		return "-inf"
	}
	if a := math.Abs(v); a == 0 || (a >= 1e-4 && a < k.scalarCutoff) {
		whole, frac := k.positional(v, -1)
		switch {
		case frac != "":
			return whole + "." + frac
		case point:
			return whole + ".0"
		}
		return whole
	}
	mant, exp := k.scientific(v, -1, 0)
	return strings.TrimSuffix(mant, ".") + "e" + exp
}

// scalarComplex formats a single complex value, as str(numpy scalar) does.
func (k *floatKind) scalarComplex(re, im float64) string {
	i := k.scalar(im, false) + "j"
	if re == 0 && !math.Signbit(re) {
		return i
	}
	if !strings.HasPrefix(i, "-") {
		i = "+" + i
	}
	return "(" + k.scalar(re, false) + i + ")"
}

// floatFormat is the common format of the floating-point numbers of one array: the widths before and after
// the point, and whether exponents are used.
type floatFormat struct {
	kind              *floatKind
	exp               bool
	plus              bool
	prec              int
	expDigits         int
	padLeft, padRight int
}

// newFloatFormat derives the format from all values that will be shown. prec is the maximum number of
// digits after the point; plus adds the sign of positive numbers.
func newFloatFormat(kind *floatKind, values []float64, prec int, plus bool) *floatFormat {
	f := &floatFormat{kind: kind, plus: plus, prec: prec}
	finite := 0
	largest, smallest := 0.0, math.Inf(1)
	negInf := plus
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			negInf = negInf || v < 0
			continue
		}
		finite++
		if a := math.Abs(v); a != 0 {
			largest, smallest = max(largest, a), min(smallest, a)
		}
	}
	if largest > 0 {
		f.exp = largest >= kind.cutoff || smallest < kind.round(0.0001) || kind.round(largest/smallest) > 1000
	}
	if f.exp {
		f.measureScientific(values)
	} else {
		f.measurePositional(values)
	}
	if finite != len(values) {
		width := 3
		if negInf {
			width = 4
		}
		f.padLeft = max(f.padLeft, width-(f.padRight+1))
	}
	return f
}

func (f *floatFormat) measureScientific(values []float64) {
	frac := 0
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		mant, exp := f.kind.scientific(v, f.prec, 0)
		whole, fr, _ := strings.Cut(f.signed(mant), ".")
		f.padLeft = max(f.padLeft, len(whole))
		frac = max(frac, len(fr))
		f.expDigits = max(f.expDigits, len(exp)-1)
	}
	f.prec = frac
	f.padRight = f.expDigits + 2 + frac
}

func (f *floatFormat) measurePositional(values []float64) {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		whole, frac := f.kind.positional(v, f.prec)
		f.padLeft = max(f.padLeft, len(f.signed(whole)))
		f.padRight = max(f.padRight, len(frac))
	}
}

func (f *floatFormat) signed(s string) string {
	if f.plus && !strings.HasPrefix(s, "-") {
		return "+" + s
	}
	return s
}

// format formats one value in the common width.
func (f *floatFormat) format(v float64) string {
	switch {
	case math.IsNaN(v):
		return leftPad(f.signed("nan"), f.padLeft+f.padRight+1)
	case math.IsInf(v, 1):
		return leftPad(f.signed("inf"), f.padLeft+f.padRight+1)
	case math.IsInf(v, -1):
		return leftPad("-inf", f.padLeft+f.padRight+1)
	case f.exp:
		mant, exp := f.kind.scientific(v, f.prec, f.prec)
		whole, frac, _ := strings.Cut(f.signed(mant), ".")
		digits := exp[1:]
		if n := f.expDigits - len(digits); n > 0 {
			digits = strings.Repeat("0", n) + digits
		}
		return leftPad(whole, f.padLeft) + "." + frac + "e" + exp[:1] + digits
	}
	whole, frac := f.kind.positional(v, f.prec)
	return leftPad(f.signed(whole), f.padLeft) + "." + frac + strings.Repeat(" ", max(f.padRight-len(frac), 0))
}

func leftPad(s string, n int) string {
	if len(s) >= n {
		return s
	}
	return strings.Repeat(" ", n-len(s)) + s
}
