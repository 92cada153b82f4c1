package flight

import (
	"errors"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
)

// The fields of arrow.flight.protocol.FlightData.
const (
	fieldDescriptor = 1
	fieldHeader     = 2
	fieldBody       = 1000
)

// data is a FlightData message. To send it, set all fields except hasBody. read sets the descriptor
// and the header of a received message; the body is passed to a function.
type data struct {
	descriptor *flight.FlightDescriptor
	header     []byte
	body       mem.BufferSlice
	hasBody    bool // read has reached a body
}

// bodyPlace is the position of the body in a message with a body, modulo 64. pyarrow uses a message
// in the buffer in which gRPC's C library received it. The address of a large buffer is 32 modulo
// 64 (pyarrow 26), so the values are aligned to 64 bytes there. A test checks this with pyarrow.
// The receiver in this package does not depend on it: it copies values to aligned memory.
const bodyPlace = 32

// Buffers implements codec.Outgoing.
func (d *data) Buffers() (mem.BufferSlice, error) {
	var head []byte
	if d.descriptor != nil {
		b, err := proto.Marshal(d.descriptor)
		if err != nil {
			return nil, err
		}
		head = appendBytes(head, fieldDescriptor, b)
	}
	header, tail := d.header, []byte(nil)
	if n := d.body.Len(); n > 0 {
		tail = protowire.AppendVarint(protowire.AppendTag(nil, fieldBody, protowire.BytesType), uint64(n))
		for pad := range 64 { // zeros after the header's flatbuffer are padding
			if (len(head)+protowire.SizeTag(fieldHeader)+protowire.SizeBytes(len(header)+pad)+len(tail))%64 == bodyPlace {
				header = append(header[:len(header):len(header)], make([]byte, pad)...)
				break
			}
		}
	}
	head = append(appendBytes(head, fieldHeader, header), tail...)
	return append(mem.BufferSlice{mem.SliceBuffer(head)}, d.body...), nil
}

// appendBytes appends a length-delimited field.
func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// read reads a FlightData message on demand. At the beginning of the body it calls body with the
// body's length in bytes; the header must precede the body. Bytes that body does not read are
// discarded.
func (d *data) read(in *codec.Incoming, body func(in *codec.Incoming, n int) error) error {
	for {
		num, typ, err := in.Field()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch num {
		case fieldDescriptor:
			b, err := in.Bytes(typ)
			if err != nil {
				return err
			}
			d.descriptor = new(flight.FlightDescriptor)
			if err := proto.Unmarshal(b, d.descriptor); err != nil {
				return malformed("invalid descriptor: %v", err)
			}
		case fieldHeader:
			if d.header, err = in.Bytes(typ); err != nil {
				return err
			}
			if d.hasBody {
				return malformed("the header follows the body")
			}
		case fieldBody:
			n, err := in.Length(typ)
			if err != nil {
				return err
			}
			if d.hasBody {
				return malformed("more than one body in a message")
			}
			d.hasBody = true
			left := in.Left() - n
			if err := body(in, n); err != nil {
				return err
			}
			if err := in.Discard(in.Left() - left); err != nil {
				return err
			}
		default:
			if err := in.Skip(typ); err != nil {
				return err
			}
		}
	}
}
