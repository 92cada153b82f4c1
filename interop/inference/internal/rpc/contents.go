package rpc

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// part is a message that arrives, or a message or list within it.
type part struct {
	in  *codec.Incoming
	end int // the offset after its last byte; math.MaxInt for the message
}

func offset(in *codec.Incoming) int { return in.Size() - in.Left() }

// more reports whether bytes are left. The last field that was read must not extend beyond the end.
func (p part) more() (bool, error) {
	at := offset(p.in)
	if at > p.end {
		return false, p.malformed("a field is longer than the message that it is in")
	}
	return at < p.end, nil
}

// field reads the next tag. The number is 0 at the end.
func (p part) field() (protowire.Number, protowire.Type, error) {
	if more, err := p.more(); err != nil || !more {
		return 0, 0, err
	}
	num, typ, err := p.in.Field()
	if errors.Is(err, io.EOF) {
		if p.end == math.MaxInt {
			return 0, 0, nil
		}
		err = p.malformed("it ends within a message")
	}
	return num, typ, err
}

// length reads the length of a field, and checks it against the end.
func (p part) length(typ protowire.Type) (int, error) {
	n, err := p.in.Length(typ)
	if err == nil && n > p.end-offset(p.in) {
		err = p.malformed("a field is longer than the message that it is in")
	}
	return n, err
}

// within reads the length of a field that is a message or a list.
func (p part) within(typ protowire.Type) (part, error) {
	n, err := p.length(typ)
	return part{p.in, offset(p.in) + n}, err
}

func (p part) malformed(reason string) error {
	return &codec.WireError{Offset: int64(offset(p.in)), Reason: reason}
}

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

// elements decodes the typed contents of an input.
type elements struct {
	name     string
	datatype oip.Datatype
	memory   []byte // of the input, after the elements that were written
}

// read decodes the contents and the rest of the input.
func (e *elements) read(tensor part, typ protowire.Type) error {
	size := len(e.memory)
	for num := protowire.Number(contentsField); num != 0; {
		var err error
		switch {
		case num < contentsField:
			err = oip.Errorf(oip.Invalid, "input %s has contents before its name, datatype, shape or parameters; send the fields in the order of their numbers", oip.Quote(e.name))
		case num > contentsField:
			err = tensor.in.Skip(typ)
		default: // Protocol Buffers merges a message that is sent in parts
			var p part
			if p, err = tensor.within(typ); err == nil {
				err = e.contents(p)
			}
		}
		if err == nil {
			num, typ, err = tensor.field()
		}
		if err != nil {
			return err
		}
	}
	if n := e.datatype.Size(); len(e.memory) > 0 {
		return oip.Errorf(oip.Invalid, "input %s takes %d elements, and its contents have %d", oip.Quote(e.name), size/n, (size-len(e.memory))/n)
	}
	return nil
}

// contents decodes an InferTensorContents. Elements are packed in a list, or have a tag each.
func (e *elements) contents(p part) error {
	encoding, ok := encodings[e.datatype]
	if !ok {
		return oip.Errorf(oip.Invalid, "input %s: elements of %s have no field in contents; send raw_input_contents", oip.Quote(e.name), e.datatype)
	}
	for {
		num, typ, err := p.field()
		switch {
		case err != nil || num == 0:
			return err
		case num > 8:
			err = p.in.Skip(typ)
		case num != encoding.field:
			err = oip.Errorf(oip.Invalid, "input %s: elements of %s belong in field %d of contents, not in field %d", oip.Quote(e.name), e.datatype, encoding.field, num)
		case typ == protowire.BytesType:
			var list part
			if list, err = p.within(typ); err == nil {
				err = e.packed(list, encoding.wire)
			}
		case typ != encoding.wire:
			err = p.malformed("an element of another wire type than its field's")
		case typ == protowire.VarintType:
			err = e.integer(p)
		default:
			err = e.floats(p, e.datatype.Size())
		}
		if err != nil {
			return err
		}
	}
}

// packed decodes a list of elements.
func (e *elements) packed(list part, wire protowire.Type) error {
	if wire != protowire.VarintType {
		return e.floats(list, list.end-offset(list.in))
	}
	for {
		more, err := list.more()
		if err == nil && more {
			err = e.integer(list)
		}
		if err != nil || !more {
			return err
		}
	}
}

// floats reads n bytes of elements, whose wire format is that of memory.
func (e *elements) floats(p part, n int) error {
	if n%e.datatype.Size() != 0 {
		return p.malformed("elements that end in the middle of one")
	}
	to, err := e.next(n)
	if err != nil {
		return err
	}
	return p.in.ReadFull(to)
}

// integer reads an element, and checks that it is valid for the datatype.
func (e *elements) integer(p part) error {
	v, err := p.in.Varint()
	if err != nil {
		return err
	}
	n := e.datatype.Size()
	to, err := e.next(n)
	if err != nil {
		return err
	}
	unused := 64 - 8*n
	switch {
	case e.datatype == oip.BOOL:
		v = min(v, 1)
	case e.datatype >= oip.INT8 && int64(v)<<unused>>unused != int64(v), e.datatype < oip.INT8 && v<<unused>>unused != v:
		return oip.Errorf(oip.Invalid, "input %s: %d is no %s", oip.Quote(e.name), int64(v), e.datatype)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(to, b[:])
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
