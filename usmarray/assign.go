package usmarray

import (
	"fmt"
	"math"
	"reflect"
)

// elementOf converts a Go number or bool, of any named type. dlpack.F16 and dlpack.BF16 are
// integer types in Go; their method Float32 returns the value.
func elementOf(v any) (element, class, error) {
	if f, ok := v.(interface{ Float32() float32 }); ok {
		return element{re: float64(f.Float32())}, classFloat, nil
	}
	x := reflect.ValueOf(v)
	switch x.Kind() {
	case reflect.Bool:
		if x.Bool() {
			return element{bits: 1}, classBool, nil
		}
		return element{}, classBool, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return element{bits: uint64(x.Int())}, classInt, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return element{bits: x.Uint()}, classUint, nil
	case reflect.Float32, reflect.Float64:
		return element{re: x.Float()}, classFloat, nil
	case reflect.Complex64, reflect.Complex128:
		z := x.Complex()
		return element{re: real(z), im: imag(z)}, classComplex, nil
	}
	return element{}, classOther, fmt.Errorf("%T is neither a number nor a bool", v)
}

// assign converts a Go value to an element of the type. It returns an error for a fraction or a number out
// of range for an integer type, an imaginary part for a real type, and a number other than 0 and 1 for
// bool. Floating-point types round.
func (c *codec) assign(v any) (element, error) {
	e, from, err := elementOf(v)
	if err != nil {
		return e, err
	}
	if from == classComplex && c.class != classComplex {
		if e.im != 0 {
			return e, fmt.Errorf("%v has an imaginary part, which %s cannot hold", v, c.dt)
		}
		from = classFloat
	}
	switch c.class {
	case classFloat, classComplex:
		return toFloat(e, from), nil
	case classBool:
		if w := toFloat(e, from).re; w != 0 && w != 1 {
			return e, fmt.Errorf("%v is neither true nor false", v)
		}
		return toInteger(e, from), nil
	}
	if !c.holds(e, from) {
		return e, fmt.Errorf("%v does not fit %s", v, c.dt)
	}
	return toInteger(e, from), nil
}

// holds reports whether an integer type can represent a value exactly.
func (c *codec) holds(e element, from class) bool {
	n := int(c.dt.Bits)
	signed := c.class == classInt
	switch from {
	case classFloat:
		lo, hi := 0.0, math.Ldexp(1, n)
		if signed {
			lo, hi = -math.Ldexp(1, n-1), math.Ldexp(1, n-1)
		}
		return e.re == math.Trunc(e.re) && e.re >= lo && e.re < hi
	case classInt:
		x := int64(e.bits)
		if !signed {
			return x >= 0 && (n == 64 || uint64(x)>>n == 0)
		}
		return x<<(64-n)>>(64-n) == x
	}
	if signed {
		n--
	}
	return n == 64 || e.bits>>n == 0
}

// toFloat converts an element to floating-point.
func toFloat(e element, from class) element {
	switch from {
	case classInt:
		return element{re: float64(int64(e.bits))}
	case classBool, classUint:
		return element{re: float64(e.bits)}
	}
	return e
}

// toInteger converts an element that is a whole number of at most 64 bits to the bits of an integer.
func toInteger(e element, from class) element {
	switch {
	case from != classFloat:
		return e
	case e.re < 0:
		return element{bits: uint64(int64(e.re))}
	}
	return element{bits: uint64(e.re)}
}
