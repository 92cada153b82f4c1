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

// DataTypeOf is the element type of a Go type; int and uint are as wide as the
// machine has them.
func DataTypeOf[T Element]() DataType { return dlpack.DataTypeOf[T]() }

// miniFloats describes the floating-point types that Go has no type for.
var miniFloats = map[DataType]*miniFloat{
	Float16:                  {5, 10, 15, miniIEEE},
	Bfloat16:                 {8, 7, 127, miniIEEE},
	dlpack.Float8E3M4:        {3, 4, 3, miniIEEE},
	dlpack.Float8E4M3:        {4, 3, 7, miniIEEE},
	dlpack.Float8E4M3B11FNUZ: {4, 3, 11, miniFNUZ},
	dlpack.Float8E4M3FN:      {4, 3, 7, miniFN},
	dlpack.Float8E4M3FNUZ:    {4, 3, 8, miniFNUZ},
	dlpack.Float8E5M2:        {5, 2, 15, miniIEEE},
	dlpack.Float8E5M2FNUZ:    {5, 2, 16, miniFNUZ},
	dlpack.Float8E8M0FNU:     {8, 0, 127, miniScale},
	dlpack.Float6E2M3FN:      {2, 3, 1, miniFinite},
	dlpack.Float6E3M2FN:      {3, 2, 3, miniFinite},
	dlpack.Float4E2M1FN:      {2, 1, 1, miniFinite},
}

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
	case dt.Code == dlpack.CodeInt && dt.Bits <= 64:
		return classInt
	case dt.Code == dlpack.CodeUInt && dt.Bits <= 64:
		return classUint
	case dt == Float32, dt == Float64, miniFloats[dt] != nil:
		return classFloat
	case dt == Complex64, dt == Complex128, dt == dlpack.Complex32:
		return classComplex
	}
	return classOther
}
