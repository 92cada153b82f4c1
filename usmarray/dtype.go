package usmarray

import "github.com/usmbridge/usmbridge/dlpack"

// DataType is an element type; see package dlpack.
type DataType = dlpack.DataType

// The most common element types. All types of package dlpack are supported, except in protocols that
// cannot express them.
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

// integerBits reports whether integers of that many bits are supported: powers of two up to 64.
func integerBits(bits uint8) bool { return bits-1 < 64 && bits&(bits-1) == 0 }
