package rest

import (
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// codec converts elements of a datatype from and to JSON.
type codec struct {
	parse  func(p []byte, token string) bool // writes an element to p; false: the token is not valid
	append func(b, p []byte) []byte          // appends the element in p to b
}

// codecs are the codecs of the datatypes that have a JSON form here. The protocol defines none for floats
// of 16 bits, and there are no arrays of BYTES.
var codecs = [oip.BYTES + 1]codec{
	oip.BOOL:   {parseBool, func(b, p []byte) []byte { return strconv.AppendBool(b, p[0] != 0) }},
	oip.UINT8:  unsigned[uint8](),
	oip.UINT16: unsigned[uint16](),
	oip.UINT32: unsigned[uint32](),
	oip.UINT64: unsigned[uint64](),
	oip.INT8:   signed[int8](),
	oip.INT16:  signed[int16](),
	oip.INT32:  signed[int32](),
	oip.INT64:  signed[int64](),
	oip.FP32:   float[float32](),
	oip.FP64:   float[float64](),
}

// jsonless reports whether a datatype has no JSON form here.
func jsonless(d oip.Datatype) bool { return codecs[d].parse == nil }

func parseBool(p []byte, token string) bool {
	p[0] = 0
	if token == "true" {
		p[0] = 1
	}
	return token == "true" || token == "false"
}

// element returns the first element of p.
func element[T any](p []byte) *T {
	_ = p[unsafe.Sizeof(*new(T))-1] // p is long enough
	return (*T)(unsafe.Pointer(&p[0]))
}

func unsigned[T uint8 | uint16 | uint32 | uint64]() codec {
	bits := int(8 * unsafe.Sizeof(T(0)))
	return codec{
		parse: func(p []byte, token string) bool {
			v, err := strconv.ParseUint(token, 10, bits)
			*element[T](p) = T(v)
			return err == nil || token == "-0"
		},
		append: func(b, p []byte) []byte { return strconv.AppendUint(b, uint64(*element[T](p)), 10) },
	}
}

func signed[T int8 | int16 | int32 | int64]() codec {
	bits := int(8 * unsafe.Sizeof(T(0)))
	return codec{
		parse: func(p []byte, token string) bool {
			v, err := strconv.ParseInt(token, 10, bits)
			*element[T](p) = T(v)
			return err == nil
		},
		append: func(b, p []byte) []byte { return strconv.AppendInt(b, int64(*element[T](p)), 10) },
	}
}

func float[T float32 | float64]() codec {
	bits := int(8 * unsafe.Sizeof(T(0)))
	return codec{
		parse: func(p []byte, token string) bool {
			v, err := strconv.ParseFloat(token, bits) // JSON has no "inf"
			*element[T](p) = T(v)
			return err == nil
		},
		append: func(b, p []byte) []byte { return appendFloat(b, float64(*element[T](p)), bits) },
	}
}

// ends are the bytes that end an element of a list.
var ends = [256]bool{',': true, ']': true, ' ': true, '\t': true, '\n': true, '\r': true}

// fill writes the elements of the input, from its JSON, to p, which has the size of the datatype and shape.
// Nested lists are read as one list. Errors: Invalid, Unsupported.
func (in *input) fill(p []byte, d oip.Datatype) error {
	if jsonless(d) {
		return oip.Errorf(oip.Unsupported, "input %s: %s has no JSON form; send it as binary data", oip.Quote(in.Name), d)
	}
	data := in.Data.text // valid JSON
	at, element, parse, size := 0, 0, codecs[d].parse, d.Size()
	bad := func(format string, args ...any) error {
		return oip.Errorf(oip.Invalid, "input %s: element %d, at byte %d of the JSON: %s", oip.Quote(in.Name), element, in.Data.at+at, fmt.Sprintf(format, args...))
	}
	if data[0] != '[' {
		return bad("the data is not a list")
	}
	for at < len(data) {
		switch data[at] {
		case ' ', '\t', '\n', '\r', ',', '[', ']':
			at++
			continue
		}
		if len(p) == 0 {
			return bad("more elements than shape %v has", in.Shape)
		}
		end := at + 1
		for !ends[data[end]] { // the list ends after the element
			end++
		}
		token := unsafe.String(&data[at], end-at)
		if !parse(p[:size], token) {
			return bad("%.40s is not a valid %s", token, d)
		}
		p, at = p[size:], end
		element++
	}
	if len(p) != 0 {
		return bad("fewer elements than shape %v has", in.Shape)
	}
	return nil
}

// appendElements appends elements as JSON, separated by commas, as Python's encoder writes them:
// NaN and Infinity are literals, which are not JSON, and a float always has a fraction or an exponent.
func appendElements(b []byte, d oip.Datatype, p []byte) []byte {
	write, size := codecs[d].append, d.Size()
	for i := 0; i < len(p); i += size {
		if i > 0 {
			b = append(b, ',')
		}
		b = write(b, p[i:i+size])
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
