package npy

import (
	"strings"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

const maxDims = usmarray.MaxDims

// types maps the kind and size of NumPy's type strings to element types.
var types = map[string]usmarray.DataType{
	"b1": usmarray.Bool,
	"i1": usmarray.Int8, "i2": usmarray.Int16, "i4": usmarray.Int32, "i8": usmarray.Int64,
	"u1": usmarray.Uint8, "u2": usmarray.Uint16, "u4": usmarray.Uint32, "u8": usmarray.Uint64,
	"f2": usmarray.Float16, "f4": usmarray.Float32, "f8": usmarray.Float64,
	"c8": usmarray.Complex64, "c16": usmarray.Complex128,
}

// spellings maps NumPy's other names for element types to type strings. Those of one character can follow a byte order.
var spellings = func() map[string]string {
	m := map[string]string{}
	for s, all := range map[string]string{
		"b1": "? bool bool_",
		"i1": "b int8 byte", "i2": "h int16 short", "i4": "i int32 intc", "i8": "l q p n int64 int int_ long longlong intp",
		"u1": "B uint8 ubyte", "u2": "H uint16 ushort", "u4": "I uint32 uintc",
		"u8": "L Q P N uint64 uint ulong ulonglong uintp",
		"f2": "e float16 half", "f4": "f float32 single", "f8": "d float64 double float",
		"c8": "F complex64 csingle", "c16": "D complex128 cdouble complex",
	} {
		for _, name := range strings.Fields(all) {
			m[name] = s
		}
	}
	return m
}()

var names = func() map[usmarray.DataType]string {
	m := map[usmarray.DataType]string{}
	for s, dt := range types {
		m[dt] = s
	}
	return m
}()

// refused has the kinds of type strings whose elements are not numbers, with their names.
var refused = map[byte]string{
	'O': "are Python objects, stored as a pickle, which is a program; convert them with NumPy",
	'S': "are byte strings", 'a': "are byte strings", 'U': "are text",
	'M': "are dates; view them as int64 in NumPy", 'm': "are durations; view them as int64 in NumPy",
	'V': "are raw bytes (ml_dtypes' types, such as bfloat16, are saved so, and lose their names); view them as integers of that size in NumPy, or use safetensors",
	'g': "have extended precision", 'G': "have extended precision",
	'f': "have a size that no array of this library has", 'c': "have a size that no array of this library has",
}

// byteOrder is the byte order of the elements of a file.
type byteOrder uint8

const (
	native byteOrder = iota // or single bytes, which have no order
	little
	big
)

// parseDescr parses a type string. As in NumPy, "=", "|" and no prefix mean native byte order.
func parseDescr(s string) (usmarray.DataType, byteOrder, error) {
	order, rest := native, s
	if s != "" {
		switch s[0] {
		case '<':
			order, rest = little, s[1:]
		case '>':
			order, rest = big, s[1:]
		case '=', '|':
			rest = s[1:]
		}
	}
	if dt, ok := types[rest]; ok {
		return dt, order, nil
	}
	if dt, ok := types[spellings[rest]]; ok && (rest == s || len(rest) == 1) {
		return dt, order, nil
	}
	if rest != "" {
		if why, ok := refused[rest[0]]; ok {
			return usmarray.DataType{}, 0, transfer.TypeError("the elements (%s) %s", printable(s), why)
		}
	}
	return usmarray.DataType{}, 0, transfer.TypeError("the element type %q; bool, integers, float16 to float64, complex64 and complex128 are read", printable(s))
}

// descrOf returns the little-endian type string of a type.
func descrOf(dt usmarray.DataType) (string, error) {
	s, ok := names[dt]
	switch {
	case !ok:
		return "", transfer.TypeError("NumPy has no %s; convert the array (AsType), or write safetensors", dt)
	case strings.HasSuffix(s, "1"):
		return "|" + s, nil
	}
	return "<" + s, nil
}
