package dlpack

import (
	"fmt"
	"math"
)

// Code is the type code of an element type (DLDataTypeCode of the standard).
type Code uint8

// The type codes of DLPack 1.3.
const (
	CodeInt               Code = 0
	CodeUInt              Code = 1
	CodeFloat             Code = 2
	CodeOpaqueHandle      Code = 3 // no common meaning between libraries; never exchanged
	CodeBfloat            Code = 4
	CodeComplex           Code = 5
	CodeBool              Code = 6 // 8 bits each
	CodeFloat8E3M4        Code = 7
	CodeFloat8E4M3        Code = 8
	CodeFloat8E4M3B11FNUZ Code = 9
	CodeFloat8E4M3FN      Code = 10
	CodeFloat8E4M3FNUZ    Code = 11
	CodeFloat8E5M2        Code = 12
	CodeFloat8E5M2FNUZ    Code = 13
	CodeFloat8E8M0FNU     Code = 14
	CodeFloat6E2M3FN      Code = 15
	CodeFloat6E3M2FN      Code = 16
	CodeFloat4E2M1FN      Code = 17
)

var codeNames = [...]string{
	"kDLInt", "kDLUInt", "kDLFloat", "kDLOpaqueHandle", "kDLBfloat", "kDLComplex", "kDLBool",
	"kDLFloat8_e3m4", "kDLFloat8_e4m3", "kDLFloat8_e4m3b11fnuz", "kDLFloat8_e4m3fn", "kDLFloat8_e4m3fnuz",
	"kDLFloat8_e5m2", "kDLFloat8_e5m2fnuz", "kDLFloat8_e8m0fnu",
	"kDLFloat6_e2m3fn", "kDLFloat6_e3m2fn", "kDLFloat4_e2m1fn",
}

// String returns the standard's name of the code ("kDLFloat").
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// DataType is an element type, laid out as DLDataType. Code is the type code, Bits the width of one lane,
// and Lanes the number of lanes in one element (1 except for vector types). It is a comparable value; the
// zero value is no type. The byte order is that of the machine.
type DataType struct {
	Code  Code
	Bits  uint8
	Lanes uint16
}

// The element types that have a name, as in the array API and ml_dtypes. Compare them with ==; do not
// modify them.
var (
	Bool              = DataType{CodeBool, 8, 1}
	Int8              = DataType{CodeInt, 8, 1}
	Int16             = DataType{CodeInt, 16, 1}
	Int32             = DataType{CodeInt, 32, 1}
	Int64             = DataType{CodeInt, 64, 1}
	Uint8             = DataType{CodeUInt, 8, 1}
	Uint16            = DataType{CodeUInt, 16, 1}
	Uint32            = DataType{CodeUInt, 32, 1}
	Uint64            = DataType{CodeUInt, 64, 1}
	Float16           = DataType{CodeFloat, 16, 1}
	Float32           = DataType{CodeFloat, 32, 1}
	Float64           = DataType{CodeFloat, 64, 1}
	Complex32         = DataType{CodeComplex, 32, 1} // two float16
	Complex64         = DataType{CodeComplex, 64, 1}
	Complex128        = DataType{CodeComplex, 128, 1}
	BFloat16          = DataType{CodeBfloat, 16, 1}
	Float8E3M4        = DataType{CodeFloat8E3M4, 8, 1}
	Float8E4M3        = DataType{CodeFloat8E4M3, 8, 1}
	Float8E4M3B11FNUZ = DataType{CodeFloat8E4M3B11FNUZ, 8, 1}
	Float8E4M3FN      = DataType{CodeFloat8E4M3FN, 8, 1}
	Float8E4M3FNUZ    = DataType{CodeFloat8E4M3FNUZ, 8, 1}
	Float8E5M2        = DataType{CodeFloat8E5M2, 8, 1}
	Float8E5M2FNUZ    = DataType{CodeFloat8E5M2FNUZ, 8, 1}
	Float8E8M0FNU     = DataType{CodeFloat8E8M0FNU, 8, 1}
	Float6E2M3FN      = DataType{CodeFloat6E2M3FN, 6, 1}
	Float6E3M2FN      = DataType{CodeFloat6E3M2FN, 6, 1}
	Float4E2M1FN      = DataType{CodeFloat4E2M1FN, 4, 1}
	Int1              = DataType{CodeInt, 1, 1}
	Int2              = DataType{CodeInt, 2, 1}
	Int4              = DataType{CodeInt, 4, 1}
	Uint1             = DataType{CodeUInt, 1, 1}
	Uint2             = DataType{CodeUInt, 2, 1}
	Uint4             = DataType{CodeUInt, 4, 1}
)

// BitSize returns the width of one packed element in bits: Bits times Lanes.
func (d DataType) BitSize() int { return int(d.Bits) * int(d.Lanes) }

// Size returns the width of one element in bytes, rounded up: the memory of a single or padded element. n
// packed sub-byte elements take less than n*Size() bytes; see [DataType.ByteSize].
func (d DataType) Size() int { return (d.BitSize() + 7) / 8 }

// IsSubByte reports whether elements are narrower than a byte, so that packed
// and padded storage differ.
func (d DataType) IsSubByte() bool { return d.BitSize() < 8 }

// StorageBits returns the distance from one element to the next in bits: BitSize, or 8 for padded sub-byte
// elements.
func (d DataType) StorageBits(padded bool) int {
	if padded && d.IsSubByte() {
		return 8
	}
	return d.BitSize()
}

// ByteSize returns the number of bytes of n consecutive elements: ceil(n*BitSize/8), or n if sub-byte
// elements are padded. Errors: [ErrOverflow] if the size in bits does not fit int64, [ErrShape] if n is
// negative.
func (d DataType) ByteSize(n int64, padded bool) (int64, error) {
	bits := int64(d.StorageBits(padded))
	if n < 0 {
		return 0, opErr("DataType.ByteSize", ErrShape, "%d elements: the number cannot be negative", n)
	}
	if bits > 0 && n > math.MaxInt64/bits {
		return 0, opErr("DataType.ByteSize", ErrOverflow, "%d elements of %d bits do not fit 63 bits: fix the shape", n, bits)
	}
	total := n * bits
	size := total / 8
	if total%8 != 0 {
		size++
	}
	return size, nil
}

// IsFloat reports whether the elements are real floating-point numbers of any format, including bfloat16
// and the narrow formats.
func (d DataType) IsFloat() bool {
	return d.Code == CodeFloat || d.Code == CodeBfloat ||
		d.Code >= CodeFloat8E3M4 && d.Code <= CodeFloat4E2M1FN
}

// IsComplex reports whether the elements are complex numbers.
func (d DataType) IsComplex() bool { return d.Code == CodeComplex }

// IsInteger reports whether the elements are signed or unsigned integers. Bool is not an integer type.
func (d DataType) IsInteger() bool { return d.Code == CodeInt || d.Code == CodeUInt }

// Check returns an error that matches [ErrDataType] if the type cannot be exchanged: lanes other than 1,
// opaque handles, codes newer than DLPack 1.3, and widths that are invalid for the code. Valid widths are
// 8 bits for bool, 1 to 64 by powers of two for integers, and the exact width of each narrow float.
func (d DataType) Check() error {
	if why := d.checkReason(); why != "" {
		return opErr("DataType.Check", ErrDataType, "%s", why)
	}
	return nil
}

func (d DataType) checkReason() string {
	one := d
	one.Lanes = 1
	known := namesByType[one] != ""
	switch {
	case d.Lanes != 1 && known:
		return fmt.Sprintf("%s with %d lanes: only 1 lane can be exchanged; give the lanes a dimension of their own",
			one, d.Lanes)
	case d.Lanes != 1:
		return fmt.Sprintf("%s of %d bits with %d lanes: only 1 lane can be exchanged; give the lanes a dimension of their own",
			d.Code, d.Bits, d.Lanes)
	case d.Code == CodeOpaqueHandle:
		return "opaque handles have no common meaning between libraries: export numbers"
	case (d.Code == CodeInt || d.Code == CodeUInt) && d.Bits >= 1 && d.Bits <= 64 && d.Bits&(d.Bits-1) == 0:
		return ""
	case !known:
		return fmt.Sprintf("%s of %d bits is not a type of DLPack 1.3: convert to one of the array API's types", d.Code, d.Bits)
	}
	return ""
}
