package rest

import (
	"encoding/binary"
	"math"
	"strconv"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// jsonless are the datatypes that have no JSON here: of 16-bit floats the protocol says none,
// and BYTES have no arrays.
func jsonless(d oip.Datatype) bool {
	return d == oip.FP16 || d == oip.BF16 || d == oip.BYTES
}

// fillJSON writes the elements of a tensor to p, which has the bytes of its datatype and shape,
// from JSON: a flat list, or lists in lists as the shape has them. Errors: Invalid, Unsupported.
func fillJSON(p []byte, name string, d oip.Datatype, shape []int64, data []byte) error {
	if jsonless(d) {
		return oip.Errorf(oip.Unsupported, "input %s: %s has no JSON here; send it as binary data", oip.Quote(name), d)
	}
	f := filler{scanner: scanner{b: data}, p: p, name: name, datatype: d, size: d.Size()}
	return f.lists(shape)
}

// filler reads lists of numbers.
type filler struct {
	scanner
	p        []byte // what is not written yet
	name     string
	datatype oip.Datatype
	size     int // bytes of an element
}

// bad is an error of the tensor.
func (f *filler) bad(format string, args ...any) error {
	e := oip.Errorf(oip.Invalid, format, args...)
	e.Message = "input " + oip.Quote(f.name) + ": " + e.Message
	return e
}

// lists reads all elements. Whether the list is flat is seen at the first one.
func (f *filler) lists(shape []int64) error {
	deepest, depth, leaf := max(len(shape), 1), 0, 0
	empty := len(f.p) == 0
	var counts [oip.MaxRank + 2]int64
	for {
		// A value, or lists that it is the first of.
		switch {
		case f.take('['):
			if depth++; depth > deepest {
				return f.bad("lists in lists %d deep, for shape %v", depth, shape)
			}
			counts[depth] = 0
			if f.peek() != ']' {
				continue
			}
		case depth == 0:
			return f.bad("its data is no list")
		default:
			if leaf == 0 {
				if leaf = depth; leaf != 1 && leaf != deepest {
					return f.bad("lists in lists %d deep, for shape %v: they are flat, or as the shape has them", depth, shape)
				}
			}
			if depth != leaf {
				return f.bad("lists of different depth")
			}
			if len(f.p) == 0 {
				return f.bad("more elements than shape %v has", shape)
			}
			if err := f.element(f.p[:f.size]); err != nil {
				return err
			}
			f.p = f.p[f.size:]
			counts[depth]++
		}
		// What ends here.
		for !f.take(',') {
			if !f.take(']') {
				return f.wrong("expected a comma or the end of a list")
			}
			if !empty && (counts[depth] == 0 || deepest > 1 && leaf == deepest && counts[depth] != shape[depth-1]) {
				return f.bad("a list of %d elements does not fit shape %v", counts[depth], shape)
			}
			if depth--; depth == 0 {
				if len(f.p) != 0 {
					return f.bad("fewer elements than shape %v has", shape)
				}
				return f.end()
			}
			counts[depth]++
		}
	}
}

// element reads one.
func (f *filler) element(p []byte) error {
	switch f.datatype {
	case oip.BOOL:
		v, err := f.boolean()
		if err != nil {
			return err
		}
		p[0] = 0
		if v {
			p[0] = 1
		}
		return nil
	case oip.FP32, oip.FP64:
		v, err := f.float(f.size * 8)
		if err != nil {
			return err
		}
		if f.size == 4 {
			binary.NativeEndian.PutUint32(p, math.Float32bits(float32(v)))
		} else {
			binary.NativeEndian.PutUint64(p, math.Float64bits(v))
		}
		return nil
	}
	signed := f.datatype >= oip.INT8
	token, whole, err := f.number()
	if err != nil {
		return err
	}
	v, negative, ok := integerOf(token)
	most := uint64(1)<<(8*f.size-1)<<1 - 1 // no shift by 64
	if signed {
		most >>= 1
		if negative {
			most++
		}
	}
	if !whole || !ok || v > most || negative && !signed && v != 0 {
		return f.bad("%s is no %s", clipped(token), f.datatype)
	}
	if negative {
		v = -v
	}
	switch f.size {
	case 1:
		p[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(p, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(p, uint32(v))
	default:
		binary.NativeEndian.PutUint64(p, v)
	}
	return nil
}

// float reads a number, or one of those that JSON has no digits for.
func (f *filler) float(bits int) (float64, error) {
	switch f.peek() {
	case 'N':
		if f.literal("NaN") {
			return math.NaN(), nil
		}
	case 'I':
		if f.literal("Infinity") {
			return math.Inf(1), nil
		}
	case '-':
		if f.literal("-Infinity") {
			return math.Inf(-1), nil
		}
	}
	token, _, err := f.number()
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(unsafe.String(&token[0], len(token)), bits)
	if err != nil {
		return 0, f.bad("%s is no %s", clipped(token), f.datatype)
	}
	return v, nil
}

// clipped is a token for an error.
func clipped(token []byte) string {
	if len(token) > 40 {
		return string(token[:40]) + "…"
	}
	return string(token)
}

// appendElements appends elements as JSON, separated by commas, as Python's encoder writes them:
// NaN and Infinity are literals, and a float always has a fraction or an exponent.
func appendElements(b []byte, d oip.Datatype, p []byte) []byte {
	size := d.Size()
	for i := 0; i < len(p); i += size {
		if i > 0 {
			b = append(b, ',')
		}
		e := p[i : i+size]
		switch d {
		case oip.BOOL:
			b = strconv.AppendBool(b, e[0] != 0)
		case oip.UINT8:
			b = strconv.AppendUint(b, uint64(e[0]), 10)
		case oip.UINT16:
			b = strconv.AppendUint(b, uint64(binary.NativeEndian.Uint16(e)), 10)
		case oip.UINT32:
			b = strconv.AppendUint(b, uint64(binary.NativeEndian.Uint32(e)), 10)
		case oip.UINT64:
			b = strconv.AppendUint(b, binary.NativeEndian.Uint64(e), 10)
		case oip.INT8:
			b = strconv.AppendInt(b, int64(int8(e[0])), 10)
		case oip.INT16:
			b = strconv.AppendInt(b, int64(int16(binary.NativeEndian.Uint16(e))), 10)
		case oip.INT32:
			b = strconv.AppendInt(b, int64(int32(binary.NativeEndian.Uint32(e))), 10)
		case oip.INT64:
			b = strconv.AppendInt(b, int64(binary.NativeEndian.Uint64(e)), 10)
		case oip.FP32:
			b = appendFloat(b, float64(math.Float32frombits(binary.NativeEndian.Uint32(e))), 32)
		case oip.FP64:
			b = appendFloat(b, math.Float64frombits(binary.NativeEndian.Uint64(e)), 64)
		}
	}
	return b
}

// appendFloat appends the shortest number that reads back as v. A whole number gets the fraction
// ".0": clients read a number without fraction and exponent as an integer, which has no -0.
func appendFloat(b []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, bits)
	for _, c := range b[start:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...)
}
