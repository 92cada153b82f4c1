package usmarray

import "github.com/usmbridge/usmbridge/dlpack"

// DataType is the project's element type; see package dlpack.
type DataType = dlpack.DataType

// The element types most arrays have. All of package dlpack's work, except
// where a protocol has no word for them.
var (
	Bool       = dlpack.Bool
	Int8       = dlpack.Int8
	Int16      = dlpack.Int16
	Int32      = dlpack.Int32
	Int64      = dlpack.Int64
	Uint8      = dlpack.Uint8
	Uint16     = dlpack.Uint16
	Uint32     = dlpack.Uint32
	Uint64     = dlpack.Uint64
	Float16    = dlpack.Float16
	Float32    = dlpack.Float32
	Float64    = dlpack.Float64
	Complex64  = dlpack.Complex64
	Complex128 = dlpack.Complex128
	Bfloat16   = dlpack.BFloat16
)

// Element is the Go types that have an element type of their own, the narrow
// floating-point types of package dlpack among them.
type Element = dlpack.Element

// class groups element types by how their values are read and printed.
type class uint8

const (
	classOther class = iota
	classBool
	classInt
	classUint
	classFloat
	classComplex
)

func classOf(dt DataType) class {
	switch {
	case dt.Lanes != 1:
		return classOther
	case dt.Code == dlpack.CodeBool && dt.Bits == 8:
		return classBool
	case dt.Code == dlpack.CodeInt && integerBits(dt.Bits):
		return classInt
	case dt.Code == dlpack.CodeUInt && integerBits(dt.Bits):
		return classUint
	case dt == Float32, dt == Float64, dt.FloatFormat() != nil:
		return classFloat
	case dt == Complex64, dt == Complex128, dt == dlpack.Complex32:
		return classComplex
	}
	return classOther
}

// integerBits tells whether integers of so many bits are known: 1, 2, 4 and so on up to 64.
func integerBits(bits uint8) bool { return bits-1 < 64 && bits&(bits-1) == 0 }
