package rpc

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// elements decodes the contents of an input, an InferTensorContents with one field per element type,
// into the memory of the input.
type elements struct {
	name     string
	datatype oip.Datatype
	memory   []byte // of the input, after the elements that were written
	filled   bool
}

// contentsField returns the number of the field that has the elements of a datatype; 0 for none.
func contentsField(d oip.Datatype) protowire.Number {
	switch d {
	case oip.BOOL:
		return 1
	case oip.INT8, oip.INT16, oip.INT32:
		return 2
	case oip.INT64:
		return 3
	case oip.UINT8, oip.UINT16, oip.UINT32:
		return 4
	case oip.UINT64:
		return 5
	case oip.FP32:
		return 6
	case oip.FP64:
		return 7
	case oip.FP16, oip.BF16, oip.BYTES:
	}
	return 0
}

// read decodes one InferTensorContents. A message may have it in several parts.
func (e *elements) read(p part, typ protowire.Type, in *engine.Input) error {
	list, err := p.within(typ)
	if err != nil {
		return err
	}
	field := contentsField(e.datatype)
	if field == 0 {
		return oip.Errorf(oip.Invalid, "input %s: elements of %s have no field in contents; send raw_input_contents", oip.Quote(e.name), e.datatype)
	}
	if e.filled {
		return e.fields(list, field)
	}
	e.filled = true
	return in.Fill(func(memory []byte) error {
		e.memory = memory
		return e.fields(list, field)
	})
}

// complete checks that all elements have arrived.
func (e *elements) complete(in *engine.Input) error {
	if len(e.memory) == 0 {
		return nil
	}
	return oip.Errorf(oip.Invalid, "input %s takes %d elements, and its contents have %d", oip.Quote(e.name),
		in.Size()/uint64(e.datatype.Size()), (in.Size()-uint64(len(e.memory)))/uint64(e.datatype.Size()))
}

// fields decodes the message.
func (e *elements) fields(list part, want protowire.Number) error {
	for {
		num, typ, ok, err := list.field()
		if err != nil || !ok {
			return err
		}
		switch {
		case num == want && typ == protowire.BytesType:
			var packed part
			if packed, err = list.within(typ); err == nil {
				err = e.packed(packed)
			}
		case num == want:
			err = e.one(list, typ)
		case num <= 8:
			err = oip.Errorf(oip.Invalid, "input %s: elements of %s belong in field %d of contents, not in field %d", oip.Quote(e.name), e.datatype, want, num)
		default:
			err = list.in.Skip(typ)
		}
		if err != nil {
			return err
		}
	}
}

// packed decodes packed elements.
func (e *elements) packed(list part) error {
	if e.datatype == oip.FP32 || e.datatype == oip.FP64 { // the wire format is that of memory
		n := list.end - offset(list.in)
		if n > len(e.memory) {
			return e.tooMany()
		}
		if n%e.datatype.Size() != 0 {
			return list.malformed("elements that end in the middle of one")
		}
		if err := list.in.ReadFull(e.memory[:n]); err != nil {
			return err
		}
		e.memory = e.memory[n:]
		return nil
	}
	for offset(list.in) < list.end {
		v, err := list.in.Varint()
		if err != nil {
			return err
		}
		if err := e.put(v); err != nil {
			return err
		}
	}
	return list.whole()
}

// one decodes an element with its own tag.
func (e *elements) one(p part, typ protowire.Type) error {
	want := protowire.VarintType
	switch e.datatype {
	case oip.FP32:
		want = protowire.Fixed32Type
	case oip.FP64:
		want = protowire.Fixed64Type
	default:
	}
	if typ != want {
		return p.malformed("an element of another wire type than its field's")
	}
	if want == protowire.VarintType {
		v, err := p.in.Varint()
		if err != nil {
			return err
		}
		return e.put(v)
	}
	n := e.datatype.Size()
	if n > len(e.memory) {
		return e.tooMany()
	}
	if err := p.in.ReadFull(e.memory[:n]); err != nil {
		return err
	}
	e.memory = e.memory[n:]
	return nil
}

// put writes a varint as an element, if it is valid for the datatype.
func (e *elements) put(v uint64) error {
	n := e.datatype.Size()
	if n > len(e.memory) {
		return e.tooMany()
	}
	lo, hi := int64(0), int64(math.MaxInt64)
	switch e.datatype {
	case oip.BOOL:
		if v != 0 {
			v = 1
		}
	case oip.INT8, oip.INT16, oip.INT32:
		hi = 1<<(8*n-1) - 1
		lo = -hi - 1
	case oip.INT64, oip.UINT64:
		lo = math.MinInt64
	default:
		hi = 1<<(8*n) - 1
	}
	if s := int64(v); s < lo || s > hi {
		return oip.Errorf(oip.Invalid, "input %s: %d is no %s", oip.Quote(e.name), s, e.datatype)
	}
	switch n {
	case 1:
		e.memory[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(e.memory, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(e.memory, uint32(v))
	case 8:
		binary.NativeEndian.PutUint64(e.memory, v)
	}
	e.memory = e.memory[n:]
	return nil
}

func (e *elements) tooMany() error {
	return oip.Errorf(oip.Invalid, "input %s has more elements in its contents than in its shape", oip.Quote(e.name))
}
