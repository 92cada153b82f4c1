package rest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// jsonless reports whether a datatype has no JSON form here: the protocol defines none for floats of 16
// bits, and there are no arrays of BYTES.
func jsonless(d oip.Datatype) bool {
	return d == oip.FP16 || d == oip.BF16 || d == oip.BYTES
}

// filler writes the elements of an input from its JSON to memory.
type filler struct {
	in       *input
	datatype oip.Datatype
	size     int // bytes of an element
	special  bool
	p        []byte // the elements that are not written yet
	at       int    // position in the data
	element  int64  // number of the current element
}

// fill writes the elements of the input to p, which has the size of its datatype and shape. The data is
// a flat list, or nested lists as the shape says. Errors: Invalid, Unsupported.
func (in *input) fill(p []byte, d oip.Datatype, special bool) error {
	if jsonless(d) {
		return oip.Errorf(oip.Unsupported, "input %s: %s has no JSON form; send it as binary data", oip.Quote(in.Name), d)
	}
	f := filler{in: in, datatype: d, size: d.Size(), special: special, p: p}
	return f.lists()
}

// bad returns an error at the current element.
func (f *filler) bad(format string, args ...any) error {
	e := oip.Errorf(oip.Invalid, format, args...)
	e.Message = fmt.Sprintf("input %s: element %d, at byte %d of the JSON: %s", oip.Quote(f.in.Name), f.element, f.in.Data.at+f.at, e.Message)
	return e
}

// ends are the bytes that end an element of a list.
var ends = [256]bool{',': true, ']': true, ' ': true, '\t': true, '\n': true, '\r': true}

// lists reads the data, which is a valid JSON value. The depth of the first element decides whether the
// list is flat.
func (f *filler) lists() error {
	data, shape := f.in.Data.text, f.in.Shape
	if data[0] != '[' {
		return f.bad("the data is not a list")
	}
	deepest, depth, leaf := max(len(shape), 1), 0, 0
	empty := len(f.p) == 0
	var counts [oip.MaxRank + 2]int64
	for f.at < len(data) {
		switch data[f.at] {
		case ' ', '\t', '\n', '\r', ',':
			f.at++
		case '[':
			if depth++; depth > deepest {
				return f.bad("lists nested %d deep, for shape %v", depth, shape)
			}
			counts[depth] = 0
			f.at++
		case ']':
			if !empty && (counts[depth] == 0 || deepest > 1 && leaf == deepest && counts[depth] != shape[depth-1]) {
				return f.bad("a list of %d elements does not fit shape %v", counts[depth], shape)
			}
			depth--
			counts[depth]++
			f.at++
		default:
			if leaf == 0 {
				if leaf = depth; leaf != 1 && leaf != deepest {
					return f.bad("lists nested %d deep, for shape %v: want a flat list, or one nested as the shape says", depth, shape)
				}
			}
			if depth != leaf {
				return f.bad("lists of different depth")
			}
			if len(f.p) == 0 {
				return f.bad("more elements than shape %v has", shape)
			}
			end := f.at + 1
			for !ends[data[end]] { // the list ends behind the element
				end++
			}
			token := data[f.at:end]
			if err := f.write(f.p[:f.size], token); err != nil {
				return err
			}
			f.p = f.p[f.size:]
			f.element++
			counts[depth]++
			f.at += len(token)
		}
	}
	if len(f.p) != 0 {
		return f.bad("fewer elements than shape %v has", shape)
	}
	return nil
}

// write writes one element.
func (f *filler) write(p, token []byte) error {
	switch f.datatype {
	case oip.BOOL:
		switch string(token) {
		case "true":
			p[0] = 1
		case "false":
			p[0] = 0
		default:
			return f.mismatch(token)
		}
		return nil
	case oip.FP32, oip.FP64:
		v, ok := f.float(token)
		if !ok {
			return f.mismatch(token)
		}
		if f.size == 4 {
			binary.NativeEndian.PutUint32(p, math.Float32bits(float32(v)))
		} else {
			binary.NativeEndian.PutUint64(p, math.Float64bits(v))
		}
		return nil
	}
	text, bits := unsafe.String(&token[0], len(token)), 8*f.size
	var v uint64
	var err error
	if f.datatype >= oip.INT8 {
		var signed int64
		signed, err = strconv.ParseInt(text, 10, bits)
		v = uint64(signed)
	} else if text != "-0" {
		v, err = strconv.ParseUint(text, 10, bits)
	}
	if err != nil {
		return f.mismatch(token)
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

func (f *filler) mismatch(token []byte) error {
	return f.bad("%s is not a valid %s", clipped(token), f.datatype)
}

// float returns the value of a number, or of a literal in the form of quoteSpecials.
func (f *filler) float(token []byte) (float64, bool) {
	switch c := token[0]; {
	case c == '"' && f.special:
		switch string(token) {
		case quotedNaN:
			return math.NaN(), true
		case quotedInfinity:
			return math.Inf(1), true
		case quotedNegInfinity:
			return math.Inf(-1), true
		}
		return 0, false
	case c != '-' && (c < '0' || c > '9'):
		return 0, false
	}
	v, err := strconv.ParseFloat(unsafe.String(&token[0], len(token)), f.size*8)
	return v, err == nil
}

// clipped returns a token for an error.
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
