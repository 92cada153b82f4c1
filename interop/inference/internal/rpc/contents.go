package rpc

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// encodings are the field of InferTensorContents and the wire type of the elements of a datatype.
var encodings = map[oip.Datatype]struct {
	field protowire.Number
	wire  protowire.Type
}{
	oip.BOOL: {1, protowire.VarintType},
	oip.INT8: {2, protowire.VarintType}, oip.INT16: {2, protowire.VarintType}, oip.INT32: {2, protowire.VarintType},
	oip.INT64: {3, protowire.VarintType},
	oip.UINT8: {4, protowire.VarintType}, oip.UINT16: {4, protowire.VarintType}, oip.UINT32: {4, protowire.VarintType},
	oip.UINT64: {5, protowire.VarintType},
	oip.FP32:   {6, protowire.Fixed32Type}, oip.FP64: {7, protowire.Fixed64Type},
}

// malformed returns the error for bytes that are not a message. n is the result of a function of package
// protowire.
func malformed(n int) error { return &codec.WireError{Reason: protowire.ParseError(n).Error()} }

// split returns the fields of an InferInputTensor except its typed contents, and these; nil for none. (The
// generated code would take up to eight times the bytes of the contents.)
func split(tensor []byte) (fields, contents []byte, err error) {
	fields = tensor
	for at := 0; at < len(tensor); {
		num, typ, n := protowire.ConsumeField(tensor[at:])
		if n < 0 {
			return nil, nil, malformed(n)
		}
		if num == contentsField && typ == protowire.BytesType {
			if contents != nil {
				return nil, nil, oip.Errorf(oip.Invalid, "an input has contents twice")
			}
			if len(tensor)-n > maxSmall {
				return nil, nil, errSmall
			}
			_, _, tag := protowire.ConsumeTag(tensor[at:])
			contents, _ = protowire.ConsumeBytes(tensor[at+tag:])
			fields = slices.Concat(tensor[:at], tensor[at+n:])
		}
		at += n
	}
	return fields, contents, nil
}

// elements writes the typed contents of an input to its memory.
type elements struct {
	name     string
	datatype oip.Datatype
	memory   []byte // after the elements that were written
}

// write writes an InferTensorContents. Elements are packed in a list, or have a tag each.
func (e *elements) write(contents []byte) error {
	encoding, ok := encodings[e.datatype]
	if !ok {
		return oip.Errorf(oip.Invalid, "input %s: elements of %s have no field in contents; send raw_input_contents", oip.Quote(e.name), e.datatype)
	}
	size := len(e.memory)
	for len(contents) > 0 {
		num, typ, n := protowire.ConsumeField(contents)
		if n < 0 {
			return malformed(n)
		}
		_, _, tag := protowire.ConsumeTag(contents)
		value := contents[tag:n]
		contents = contents[n:]
		switch {
		case num > 8: // unknown
			continue
		case num != encoding.field:
			return oip.Errorf(oip.Invalid, "input %s: elements of %s belong in field %d of contents, not in field %d", oip.Quote(e.name), e.datatype, encoding.field, num)
		case typ == protowire.BytesType:
			value, _ = protowire.ConsumeBytes(value)
		case typ != encoding.wire:
			return &codec.WireError{Reason: "an element of another wire type than its field's"}
		}
		put := e.floats
		if encoding.wire == protowire.VarintType {
			put = e.integers
		}
		if err := put(value); err != nil {
			return err
		}
	}
	if n := e.datatype.Size(); len(e.memory) > 0 {
		return oip.Errorf(oip.Invalid, "input %s takes %d elements, and its contents have %d", oip.Quote(e.name), size/n, (size-len(e.memory))/n)
	}
	return nil
}

// floats writes elements whose wire format is that of memory.
func (e *elements) floats(list []byte) error {
	if len(list)%e.datatype.Size() != 0 {
		return &codec.WireError{Reason: "elements that end in the middle of one"}
	}
	to, err := e.next(len(list))
	copy(to, list)
	return err
}

// integers writes elements, and checks that they are valid for the datatype.
func (e *elements) integers(list []byte) error {
	size := e.datatype.Size()
	unused := 64 - 8*size
	for len(list) > 0 {
		v, n := protowire.ConsumeVarint(list)
		if n < 0 {
			return malformed(n)
		}
		list = list[n:]
		to, err := e.next(size)
		if err != nil {
			return err
		}
		switch {
		case e.datatype == oip.BOOL:
			v = min(v, 1)
		case e.datatype >= oip.INT8 && int64(v)<<unused>>unused != int64(v), e.datatype < oip.INT8 && v<<unused>>unused != v:
			return oip.Errorf(oip.Invalid, "input %s: %d is no %s", oip.Quote(e.name), int64(v), e.datatype)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(to, b[:])
	}
	return nil
}

// next returns the memory of the next n bytes of elements.
func (e *elements) next(n int) ([]byte, error) {
	if n > len(e.memory) {
		return nil, oip.Errorf(oip.Invalid, "input %s has more elements in its contents than in its shape", oip.Quote(e.name))
	}
	to := e.memory[:n]
	e.memory = e.memory[n:]
	return to, nil
}
