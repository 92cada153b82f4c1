package usmarray

import (
	"encoding/binary"
	"math"

	"github.com/usmbridge/usmbridge/dlpack"
)

// element is a value of any element type, wide enough to represent each exactly: re and im for
// floating-point and complex numbers, bits for integers (two's complement) and booleans.
type element struct {
	re, im float64
	bits   uint64
}

// codec reads and writes elements of one type from their bytes.
type codec struct {
	dt    DataType
	class class
	mini  *dlpack.FloatFormat // for a floating-point type that Go lacks, or for the parts of complex32
}

func newCodec(dt DataType) codec {
	c := codec{dt: dt, class: classOf(dt), mini: dt.FloatFormat()}
	if dt == dlpack.Complex32 {
		c.mini = Float16.FloatFormat()
	}
	return c
}

// loadBits returns the bits of an element. raw holds its bytes, shift is the position of its lowest bit in
// the first byte (packed sub-byte types only). Elements are in the machine's byte order; this package
// supports little-endian machines.
func (c *codec) loadBits(raw []byte, shift int) uint64 {
	var b [9]byte
	copy(b[:], raw)
	v := binary.LittleEndian.Uint64(b[:8]) >> shift
	if n := int(c.dt.Bits); n < 64 {
		v &= 1<<n - 1
	}
	return v
}

// decode returns the value of an element's bytes.
func (c *codec) decode(raw []byte, shift int) element {
	if c.class == classComplex {
		return c.decodeComplex(raw)
	}
	v := c.loadBits(raw, shift)
	switch c.class {
	case classBool:
		if v != 0 {
			v = 1
		}
	case classInt:
		s := 64 - int(c.dt.Bits)
		return element{bits: uint64(int64(v<<s) >> s)}
	case classFloat:
		switch {
		case c.mini != nil:
			return element{re: c.mini.Decode(v)}
		case c.dt == Float32:
			return element{re: float64(math.Float32frombits(uint32(v)))}
		}
		return element{re: math.Float64frombits(v)}
	}
	return element{bits: v}
}

func (c *codec) decodeComplex(raw []byte) element {
	le := binary.LittleEndian
	switch c.dt {
	case Complex64:
		return element{
			re: float64(math.Float32frombits(le.Uint32(raw))),
			im: float64(math.Float32frombits(le.Uint32(raw[4:]))),
		}
	case Complex128:
		return element{re: math.Float64frombits(le.Uint64(raw)), im: math.Float64frombits(le.Uint64(raw[8:]))}
	}
	return element{re: c.mini.Decode(uint64(le.Uint16(raw))), im: c.mini.Decode(uint64(le.Uint16(raw[2:])))}
}

// encode writes the bytes of a value to raw and keeps the bits around a packed sub-byte element.
func (c *codec) encode(raw []byte, shift int, e element) {
	le := binary.LittleEndian
	switch {
	case c.class == classComplex && c.dt == Complex64:
		le.PutUint32(raw, math.Float32bits(float32(e.re)))
		le.PutUint32(raw[4:], math.Float32bits(float32(e.im)))
		return
	case c.class == classComplex && c.dt == Complex128:
		le.PutUint64(raw, math.Float64bits(e.re))
		le.PutUint64(raw[8:], math.Float64bits(e.im))
		return
	case c.class == classComplex:
		le.PutUint16(raw, uint16(c.mini.Encode(e.re)))
		le.PutUint16(raw[2:], uint16(c.mini.Encode(e.im)))
		return
	}
	v := e.bits
	if c.class == classFloat {
		switch {
		case c.mini != nil:
			v = c.mini.Encode(e.re)
		case c.dt == Float32:
			v = uint64(math.Float32bits(float32(e.re)))
		default:
			v = math.Float64bits(e.re)
		}
	}
	c.storeBits(raw, shift, v)
}

func (c *codec) storeBits(raw []byte, shift int, v uint64) {
	n := int(c.dt.Bits)
	if n%8 == 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(raw[:n/8], b[:])
		return
	}
	var b [2]byte
	k := copy(b[:], raw)
	w := binary.LittleEndian.Uint16(b[:])
	mask := uint16(1<<n-1) << shift
	w = w&^mask | uint16(v)<<shift&mask
	binary.LittleEndian.PutUint16(b[:], w)
	copy(raw[:k], b[:k])
}

// value returns the element as the Go type that fits it: bool, the integer and floating-point types of the
// same width, complex64 or complex128. Narrow floating-point types become float32, sub-byte integers int8
// or uint8, and complex32 becomes complex64.
func (c *codec) value(e element) any {
	switch c.class {
	case classBool:
		return e.bits != 0
	case classInt:
		switch c.dt.Bits {
		case 64:
			return int64(e.bits)
		case 32:
			return int32(e.bits)
		case 16:
			return int16(e.bits)
		}
		return int8(e.bits)
	case classUint:
		switch c.dt.Bits {
		case 64:
			return e.bits
		case 32:
			return uint32(e.bits)
		case 16:
			return uint16(e.bits)
		}
		return uint8(e.bits)
	case classFloat:
		if c.dt == Float64 {
			return e.re
		}
		return float32(e.re)
	case classComplex:
		if c.dt == Complex128 {
			return complex(e.re, e.im)
		}
		return complex64(complex(e.re, e.im))
	}
	return e.bits
}
