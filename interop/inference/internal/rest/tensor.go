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
	oip.UINT8:  number[uint8](parseUint, appendUint),
	oip.UINT16: number[uint16](parseUint, appendUint),
	oip.UINT32: number[uint32](parseUint, appendUint),
	oip.UINT64: number[uint64](parseUint, appendUint),
	oip.INT8:   number[int8](parseInt, appendInt),
	oip.INT16:  number[int16](parseInt, appendInt),
	oip.INT32:  number[int32](parseInt, appendInt),
	oip.INT64:  number[int64](parseInt, appendInt),
	oip.FP32:   number[float32](strconv.ParseFloat, appendFloat), // JSON has no "inf"
	oip.FP64:   number[float64](strconv.ParseFloat, appendFloat),
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

// number returns the codec of a type of numbers, from functions for the widest type of its kind.
func number[T, W uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64](
	parse func(token string, bits int) (W, error), write func(b []byte, v W, bits int) []byte) codec {
	size := int(unsafe.Sizeof(T(0)))
	return codec{
		parse: func(p []byte, token string) bool {
			v, err := parse(token, 8*size)
			*(*T)(unsafe.Pointer(&p[:size][0])) = T(v)
			return err == nil
		},
		append: func(b, p []byte) []byte { return write(b, W(*(*T)(unsafe.Pointer(&p[:size][0]))), 8*size) },
	}
}

func parseUint(token string, bits int) (uint64, error) {
	if token == "-0" {
		token = "0"
	}
	return strconv.ParseUint(token, 10, bits)
}

func parseInt(token string, bits int) (int64, error) { return strconv.ParseInt(token, 10, bits) }

func appendUint(b []byte, v uint64, _ int) []byte { return strconv.AppendUint(b, v, 10) }

func appendInt(b []byte, v int64, _ int) []byte { return strconv.AppendInt(b, v, 10) }

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
