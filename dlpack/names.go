package dlpack

import (
	"fmt"
	"strconv"
	"strings"
)

// typeNames lists the names, one for each type, with the array interface's type string where one exists. C's
// table (usmb_dl_names.h) is generated from it.
var typeNames = [...]struct {
	dtype   DataType
	name    string
	typestr string
}{
	{Bool, "bool", "|b1"},
	{Int8, "int8", "|i1"},
	{Int16, "int16", "<i2"},
	{Int32, "int32", "<i4"},
	{Int64, "int64", "<i8"},
	{Uint8, "uint8", "|u1"},
	{Uint16, "uint16", "<u2"},
	{Uint32, "uint32", "<u4"},
	{Uint64, "uint64", "<u8"},
	{Float16, "float16", "<f2"},
	{Float32, "float32", "<f4"},
	{Float64, "float64", "<f8"},
	{Complex32, "complex32", ""},
	{Complex64, "complex64", "<c8"},
	{Complex128, "complex128", "<c16"},
	{BFloat16, "bfloat16", ""},
	{Float8E3M4, "float8_e3m4", ""},
	{Float8E4M3, "float8_e4m3", ""},
	{Float8E4M3B11FNUZ, "float8_e4m3b11fnuz", ""},
	{Float8E4M3FN, "float8_e4m3fn", ""},
	{Float8E4M3FNUZ, "float8_e4m3fnuz", ""},
	{Float8E5M2, "float8_e5m2", ""},
	{Float8E5M2FNUZ, "float8_e5m2fnuz", ""},
	{Float8E8M0FNU, "float8_e8m0fnu", ""},
	{Float6E2M3FN, "float6_e2m3fn", ""},
	{Float6E3M2FN, "float6_e3m2fn", ""},
	{Float4E2M1FN, "float4_e2m1fn", ""},
	{Int1, "int1", ""},
	{Int2, "int2", ""},
	{Int4, "int4", ""},
	{Uint1, "uint1", ""},
	{Uint2, "uint2", ""},
	{Uint4, "uint4", ""},
}

var (
	namesByType    = map[DataType]string{}
	typestrsByType = map[DataType]string{}
	typesByName    = map[string]DataType{}
	typesByTypestr = map[string]DataType{} // without the byte-order sign
)

func init() {
	for _, t := range typeNames {
		namesByType[t.dtype] = t.name
		typesByName[t.name] = t.dtype
		if t.typestr != "" {
			typestrsByType[t.dtype] = t.typestr
			typesByTypestr[t.typestr[1:]] = t.dtype
		}
	}
}

// DataTypes returns all element types that have a name.
func DataTypes() []DataType {
	all := make([]DataType, len(typeNames))
	for i, t := range typeNames {
		all[i] = t.dtype
	}
	return all
}

// Name returns the type's name ("float32", "bfloat16", "float8_e4m3fn") as in the array API and ml_dtypes,
// or "".
func (d DataType) Name() string { return namesByType[d] }

// String returns the type's name, the form "float32x4" for vector types, and the form "kDLInt of 24 bits"
// for types without a name.
func (d DataType) String() string {
	if name := namesByType[d]; name != "" {
		return name
	}
	if d.Lanes == 1 {
		return fmt.Sprintf("%s of %d bits", d.Code, d.Bits)
	}
	one := d
	one.Lanes = 1
	if name := namesByType[one]; name != "" {
		return name + "x" + strconv.Itoa(int(d.Lanes))
	}
	return fmt.Sprintf("%s of %d bits and %d lanes", d.Code, d.Bits, d.Lanes)
}

// ParseName returns the type with a name that [DataType.Name] returns. The error matches [ErrDataType].
func ParseName(name string) (DataType, error) {
	if d, ok := typesByName[name]; ok {
		return d, nil
	}
	detail := fmt.Sprintf("no element type is named %q: use an array API or ml_dtypes name such as \"float32\", \"int64\", \"bool\", \"complex64\", \"bfloat16\" or \"float8_e4m3fn\"", name)
	if d, err := ParseTypeString(name); err == nil {
		detail = fmt.Sprintf("%q is a type string, not a name: write %q", name, d.Name())
	}
	return DataType{}, opErr("ParseName", ErrDataType, "%s", detail)
}

// TypeString returns the type string of NumPy's array interface and of the SYCL USM array interface
// ("<f4"; "|b1", "|i1", "|u1" for bytes). The narrow floats, bfloat16, complex32 and sub-byte integers
// have none; the error matches [ErrDataType].
func (d DataType) TypeString() (string, error) {
	if s := typestrsByType[d]; s != "" {
		return s, nil
	}
	return "", opErr("DataType.TypeString", ErrDataType, "%s has no type string in the array interfaces: exchange it through DLPack, or convert to float32", d)
}

// ParseTypeString parses an array interface type string: a byte-order sign, a kind (b, i, u, f, c) and a
// size in bytes. The machine's own byte order is written '<', '=' or '|' (some libraries write '|' for
// every size); the sign may be missing. The error matches [ErrDataType] and names the problem.
func ParseTypeString(s string) (DataType, error) {
	rest := s
	if s != "" && strings.IndexByte("<=|>!", s[0]) >= 0 {
		rest = s[1:]
	}
	if d, ok := typesByTypestr[rest]; ok && !foreignOrder(s, d) {
		return d, nil
	}
	return DataType{}, opErr("ParseTypeString", ErrDataType, "%s", typestrReason(s, rest))
}

// foreignOrder reports whether s requests big-endian numbers of more than one byte.
func foreignOrder(s string, d DataType) bool {
	return (s[0] == '>' || s[0] == '!') && d.Bits > 8
}

func typestrReason(s, rest string) string {
	const want = `: use b, i, u, f or c with a size the array libraries have, as in "<f4", "<i8", "|b1"`
	if rest == "" {
		return fmt.Sprintf("type string %q is empty%s", s, want)
	}
	if d, ok := typesByTypestr[rest]; ok {
		return fmt.Sprintf("type string %q is of foreign byte order: convert to the machine's own (%s)", s, typestrsByType[d])
	}
	kinds := map[byte]string{
		'O': "Python objects", 'V': "a structured or void type", 'S': "byte strings", 'U': "text",
		'm': "a time difference", 'M': "a date", 't': "a bit field", 'a': "byte strings",
	}
	if kind := kinds[rest[0]]; kind != "" {
		return fmt.Sprintf("type string %q is %s, which cannot be exchanged%s", s, kind, want)
	}
	if strings.IndexByte("biufc", rest[0]) >= 0 {
		return fmt.Sprintf("type string %q has a size that this kind does not have%s", s, want)
	}
	return fmt.Sprintf("type string %q is not understood%s", s, want)
}
