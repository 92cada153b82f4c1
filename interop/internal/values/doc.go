// Package values writes Go values as words of 64 bits. Direct calls (package python), batches of calls
// (package calls) and the messages between a worker and its parent process (package workers) use the
// same format.
//
// The first word of a value has its [Kind] in the low 4 bits and a number n in the high bits. The other
// words of the value follow, and then the values inside it:
//
//	None     nothing
//	Bool     n is 0 or 1
//	Int      an int64
//	Uint     a uint64 that does not fit an int64
//	Big      n characters and a NUL: the hexadecimal digits, after a sign if negative, of an
//	         integer that fits neither
//	Float    a float64
//	Complex  two float64
//	Text     n bytes of UTF-8 and a NUL, filled up to whole words
//	Bytes    the same
//	List     n values
//	Tuple    n values
//	Dict     n keys, each with its value
//	Number   n is the index of an array in a table of the reader
//	Object   the address of a PyObject
//	Array    n dimensions: address of a cell, address of the first element, data type,
//	         flags, extents, strides
//
// Words are in the byte order of the machine. Object and Array hold addresses, which are valid in one
// process only. An [Encoder] writes them if Addresses is set, and C reads them
// (interop/python/usmb_pyvalues.c). A [Decoder] reads words of another process and refuses them.
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
