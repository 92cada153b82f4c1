// Package values writes Go values as words of 64 bits. The same format serves an argument of a
// direct call (package python), a batch of calls (package calls) and the messages between a
// worker and its maker (package workers).
//
// A value begins with a word: its [Kind] in the low 4 bits, a number n above them. The value's
// words follow, then the values inside of it:
//
//	None     nothing
//	Bool     n is 0 or 1
//	Int      an int64
//	Uint     a uint64, more than fits int64
//	Big      n characters: the hexadecimal digits of an integer beyond both
//	Float    a float64
//	Complex  two float64
//	Text     n bytes of UTF-8 and a NUL, filled up to whole words
//	Bytes    the same
//	List     n values
//	Tuple    n values
//	Dict     n keys, each with its value
//	Number   n is the place of an array in a table that the reader has
//	Object   the address of a PyObject
//	Array    n dimensions: address of a cell, address of the first element, data type,
//	         flags, extents, strides
//
// Words are in the byte order of the machine. Object and Array hold addresses, which mean
// something in one process only: an [Encoder] writes them with Addresses set, C reads them
// (interop/python/usmb_pyvalues.c), and a [Decoder], which reads what another process sent,
// refuses them.
package values

// Kind is the kind of a value.
type Kind uint64

// The kinds, as USMB_VALUE_* in usmb_pyvalues.h.
const (
	None Kind = iota
	Bool
	Int
	Uint
	Big
	Float
	Complex
	Text
	Bytes
	List
	Tuple
	Dict
	Number
	Object
	Array
)

// kindBits is how many low bits of a value's first word hold its kind.
const kindBits = 4
