package oip

import (
	"math"
	"math/bits"

	"github.com/usmbridge/usmbridge/usmarray"
)

// Datatype is the type of a tensor's elements.
type Datatype uint8

// The datatypes of the protocol. BYTES, elements of any length, has no array type.
const (
	BOOL Datatype = iota + 1
	UINT8
	UINT16
	UINT32
	UINT64
	INT8
	INT16
	INT32
	INT64
	FP16
	FP32
	FP64
	BF16
	BYTES
)

// datatypes are the properties of each, by its number. 0 is not a datatype.
var datatypes = [...]struct {
	name  string
	size  int
	dtype usmarray.DataType
}{
	0:    {name: "invalid"},
	BOOL: {"BOOL", 1, usmarray.Bool}, UINT8: {"UINT8", 1, usmarray.Uint8}, UINT16: {"UINT16", 2, usmarray.Uint16},
	UINT32: {"UINT32", 4, usmarray.Uint32}, UINT64: {"UINT64", 8, usmarray.Uint64},
	INT8: {"INT8", 1, usmarray.Int8}, INT16: {"INT16", 2, usmarray.Int16}, INT32: {"INT32", 4, usmarray.Int32},
	INT64: {"INT64", 8, usmarray.Int64},
	FP16:  {"FP16", 2, usmarray.Float16}, FP32: {"FP32", 4, usmarray.Float32}, FP64: {"FP64", 8, usmarray.Float64},
	BF16: {"BF16", 2, usmarray.Bfloat16}, BYTES: {name: "BYTES"},
}

// Parse returns the datatype with a name of the protocol, such as "FP32". Errors: Invalid.
func Parse(name string) (Datatype, error) {
	for d := BOOL; d <= BYTES; d++ {
		if datatypes[d].name == name {
			return d, nil
		}
	}
	return 0, Errorf(Invalid, "datatype %s is none of the protocol's: BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32, FP64, BF16, BYTES", Quote(name))
}

// String returns the name of the protocol, and "invalid" for 0.
func (d Datatype) String() string { return datatypes[d].name }

// Size returns the size of one element in bytes; 0 for BYTES.
func (d Datatype) Size() int { return datatypes[d].size }

// DType returns the type of arrays. Errors: Unsupported for BYTES, which has none.
func (d Datatype) DType() (usmarray.DataType, error) {
	if d.Size() == 0 {
		return usmarray.DataType{}, Errorf(Unsupported, "tensors of %s are not supported: arrays have elements of one size", d)
	}
	return datatypes[d].dtype, nil
}

// MarshalText implements encoding.TextMarshaler with the name of the protocol.
func (d Datatype) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with the name of the protocol.
func (d *Datatype) UnmarshalText(text []byte) (err error) {
	*d, err = Parse(string(text))
	return err
}

// MaxRank is the maximum number of extents of a shape.
const MaxRank = usmarray.MaxDims

// Bytes returns the size of a tensor in bytes. Errors: Unsupported for BYTES; Invalid for a negative extent and
// for more than MaxRank extents; TooLarge if the size without the extents that are 0 exceeds a signed 64-bit
// number.
func Bytes(d Datatype, shape []int64) (uint64, error) {
	if _, err := d.DType(); err != nil {
		return 0, err
	}
	if len(shape) > MaxRank {
		return 0, Errorf(Invalid, "a shape of %d extents: at most %d are supported", len(shape), MaxRank)
	}
	n, empty := uint64(d.Size()), false
	for _, extent := range shape {
		if extent < 0 {
			return 0, Errorf(Invalid, "shape %v: extents must not be negative", shape)
		}
		if extent == 0 {
			empty = true
			continue
		}
		high, low := bits.Mul64(n, uint64(extent))
		if high != 0 || low > math.MaxInt64 {
			return 0, Errorf(TooLarge, "shape %v of %s has more bytes than can be counted", shape, d)
		}
		n = low
	}
	if empty {
		return 0, nil
	}
	return n, nil
}
