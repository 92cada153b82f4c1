package oip

import (
	"fmt"
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

// datatypes are the facts of each, by its number.
var datatypes = [...]struct {
	name  string
	size  int
	dtype usmarray.DataType
}{
	BOOL: {"BOOL", 1, usmarray.Bool}, UINT8: {"UINT8", 1, usmarray.Uint8}, UINT16: {"UINT16", 2, usmarray.Uint16},
	UINT32: {"UINT32", 4, usmarray.Uint32}, UINT64: {"UINT64", 8, usmarray.Uint64},
	INT8: {"INT8", 1, usmarray.Int8}, INT16: {"INT16", 2, usmarray.Int16}, INT32: {"INT32", 4, usmarray.Int32},
	INT64: {"INT64", 8, usmarray.Int64},
	FP16:  {"FP16", 2, usmarray.Float16}, FP32: {"FP32", 4, usmarray.Float32}, FP64: {"FP64", 8, usmarray.Float64},
	BF16: {"BF16", 2, usmarray.Bfloat16}, BYTES: {"BYTES", 0, usmarray.DataType{}},
}

var byName = func() map[string]Datatype {
	m := make(map[string]Datatype, len(datatypes))
	for d := BOOL; d <= BYTES; d++ {
		m[datatypes[d].name] = d
	}
	return m
}()

// Parse finds a datatype by the protocol's name for it, such as "FP32". Errors: Invalid.
func Parse(name string) (Datatype, error) {
	if d, ok := byName[name]; ok {
		return d, nil
	}
	return 0, Errorf(Invalid, "datatype %s is none of the protocol's: BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32, FP64, BF16, BYTES", Quote(name))
}

func (d Datatype) known() bool { return d >= BOOL && d <= BYTES }

// String gives the protocol's name, "invalid" for what is no datatype.
func (d Datatype) String() string {
	if !d.known() {
		return "invalid"
	}
	return datatypes[d].name
}

// Size returns the bytes of one element, 0 for BYTES.
func (d Datatype) Size() int {
	if !d.known() {
		return 0
	}
	return datatypes[d].size
}

// DType returns the type of arrays. Errors: Unsupported for BYTES, which has none.
func (d Datatype) DType() (usmarray.DataType, error) {
	if !d.known() || d == BYTES {
		return usmarray.DataType{}, Errorf(Unsupported, "tensors of %s are not served: arrays have elements of one size", d)
	}
	return datatypes[d].dtype, nil
}

// Of finds the datatype of an array's elements; false where the protocol has no name for it.
func Of(t usmarray.DataType) (Datatype, bool) {
	for d := BOOL; d < BYTES; d++ {
		if datatypes[d].dtype == t {
			return d, true
		}
	}
	return 0, false
}

// MarshalText implements encoding.TextMarshaler: the protocol's name.
func (d Datatype) MarshalText() ([]byte, error) {
	if !d.known() {
		return nil, fmt.Errorf("datatype %d is none of the protocol's", uint8(d))
	}
	return []byte(d.String()), nil
}

// MaxRank is the most extents that a shape may have.
const MaxRank = usmarray.MaxDims

// Elements multiplies the extents of a shape; the empty one has one element. Errors: Invalid
// for a negative extent, for more than MaxRank, and for what does not fit a signed 64-bit
// number even without the extents that are 0.
func Elements(shape []int64) (uint64, error) {
	if len(shape) > MaxRank {
		return 0, Errorf(Invalid, "a shape of %d extents: at most %d are served", len(shape), MaxRank)
	}
	n, empty := uint64(1), false
	for _, extent := range shape {
		if extent < 0 {
			return 0, Errorf(Invalid, "shape %v: extents are not negative", shape)
		}
		if extent == 0 {
			empty = true
			continue
		}
		high, low := bits.Mul64(n, uint64(extent))
		if high != 0 || low > math.MaxInt64 {
			return 0, Errorf(TooLarge, "shape %v has more elements than can be counted", shape)
		}
		n = low
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// Bytes returns the bytes of the elements of a tensor, those of Elements and Datatype.Size
// multiplied. Errors: as of Elements, and Unsupported for BYTES.
func Bytes(d Datatype, shape []int64) (uint64, error) {
	if _, err := d.DType(); err != nil {
		return 0, err
	}
	n, err := Elements(shape)
	if err != nil {
		return 0, err
	}
	high, low := bits.Mul64(n, uint64(d.Size()))
	if high != 0 || low > math.MaxInt64 {
		return 0, Errorf(TooLarge, "shape %v of %s has more bytes than can be counted", shape, d)
	}
	return low, nil
}
