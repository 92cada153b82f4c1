package rpc

import (
	"encoding/binary"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// typed returns the elements of a datatype in the typed contents of an input, as a slice of numbers or bools. Errors:
// Invalid for a datatype without a field in contents, and for numbers that it cannot have.
func typed(c *pb.InferTensorContents, d oip.Datatype) (elements any, err error) {
	switch d {
	case oip.BOOL:
		return c.GetBoolContents(), nil
	case oip.INT8:
		return narrow[int8](c.GetIntContents(), d)
	case oip.INT16:
		return narrow[int16](c.GetIntContents(), d)
	case oip.INT32:
		return c.GetIntContents(), nil
	case oip.INT64:
		return c.GetInt64Contents(), nil
	case oip.UINT8:
		return narrow[uint8](c.GetUintContents(), d)
	case oip.UINT16:
		return narrow[uint16](c.GetUintContents(), d)
	case oip.UINT32:
		return c.GetUintContents(), nil
	case oip.UINT64:
		return c.GetUint64Contents(), nil
	case oip.FP32:
		return c.GetFp32Contents(), nil
	case oip.FP64:
		return c.GetFp64Contents(), nil
	}
	return nil, oip.Errorf(oip.Invalid, "elements of %s have no field in contents; send raw_input_contents", d)
}

// narrow converts numbers to a smaller type.
func narrow[T int8 | int16 | uint8 | uint16, V int32 | uint32](values []V, d oip.Datatype) ([]T, error) {
	out := make([]T, len(values))
	for i, v := range values {
		if out[i] = T(v); V(out[i]) != v {
			return nil, oip.Errorf(oip.Invalid, "%d is no %s", v, d)
		}
	}
	return out, nil
}

// write writes the typed contents of an input to its memory.
func write(memory []byte, name string, c *pb.InferTensorContents, d oip.Datatype) error {
	elements, err := typed(c, d)
	if err != nil {
		return oip.Errorf(oip.Invalid, "input %s: %s", oip.Quote(name), err)
	}
	if n := binary.Size(elements); n != len(memory) {
		return oip.Errorf(oip.Invalid, "input %s takes %d elements; the field for %s in its contents has %d",
			oip.Quote(name), len(memory)/d.Size(), d, n/d.Size())
	}
	_, err = binary.Encode(memory, binary.NativeEndian, elements)
	return err
}
