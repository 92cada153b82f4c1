package usmarrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/usmbridge/usmbridge/usmarray"
)

var types = []struct {
	ours   usmarray.DataType
	theirs arrow.FixedWidthDataType
}{
	{usmarray.Int8, arrow.PrimitiveTypes.Int8.(arrow.FixedWidthDataType)},
	{usmarray.Int16, arrow.PrimitiveTypes.Int16.(arrow.FixedWidthDataType)},
	{usmarray.Int32, arrow.PrimitiveTypes.Int32.(arrow.FixedWidthDataType)},
	{usmarray.Int64, arrow.PrimitiveTypes.Int64.(arrow.FixedWidthDataType)},
	{usmarray.Uint8, arrow.PrimitiveTypes.Uint8.(arrow.FixedWidthDataType)},
	{usmarray.Uint16, arrow.PrimitiveTypes.Uint16.(arrow.FixedWidthDataType)},
	{usmarray.Uint32, arrow.PrimitiveTypes.Uint32.(arrow.FixedWidthDataType)},
	{usmarray.Uint64, arrow.PrimitiveTypes.Uint64.(arrow.FixedWidthDataType)},
	{usmarray.Float16, arrow.FixedWidthTypes.Float16},
	{usmarray.Float32, arrow.PrimitiveTypes.Float32.(arrow.FixedWidthDataType)},
	{usmarray.Float64, arrow.PrimitiveTypes.Float64.(arrow.FixedWidthDataType)},
}

// ArrowType returns the Arrow type of an element type. Errors: ErrType.
func ArrowType(dt usmarray.DataType) (arrow.FixedWidthDataType, error) {
	for _, t := range types {
		if t.ours == dt {
			return t.theirs, nil
		}
	}
	return nil, fmt.Errorf("%w: Arrow has no type with the memory layout of %v; view the elements as integers of the same size", ErrType, dt)
}

// DataType returns the element type of an Arrow type. Errors: ErrType.
func DataType(dt arrow.DataType) (usmarray.DataType, error) {
	for _, t := range types {
		if arrow.TypeEqual(t.theirs, dt) {
			return t.ours, nil
		}
	}
	return usmarray.DataType{}, fmt.Errorf("%w: values of type %v; tensors hold int8 to int64, uint8 to uint64, float16, float32 and float64", ErrType, dt)
}
